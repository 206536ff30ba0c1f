"""The settings of Confluent Replicator by what becomes of them: carried over, left behind for a reason, or unknown.

Source: Confluent's "Replicator Configuration Reference" (5.4 to 8.1) and "Understanding Consumer Offset Translation".
"""

from __future__ import annotations

import re

from watershed.topology.interop import mm2_settings
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes

# what `replicator` reads
_CARRIED = """
name connector.class tasks.max topic.whitelist topic.blacklist topic.regex topic.rename.format topic.auto.create
topic.preserve.partitions topic.config.sync topic.poll.interval.ms topic.timestamp.type dest.topic.replication.factor
provenance.header.enable header.converter offset.translator.tasks.max
src.consumer.auto.offset.reset src.consumer.isolation.level schema.registry.topic
"""
CARRIED_REPLICATOR_KEYS = frozenset(_CARRIED.split())
_BYTES = "records are copied byte for byte, without converters"
_OFFSETS = "Watershed keeps its positions and its exact offset map in a ledger on the target"
_CLIENT = "tuning of a Kafka client; Watershed tunes its own"
_LEFT: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (r"(?:src\.)?(?:key|value|header)\.converter(?:\..+)?", _BYTES),
        (r"provenance\.header\.filter\.overrides", "the guard knows no exceptions; `forward` says what travels on"),
        (r"offset\.(?:start|topic\.commit|timestamps\.commit)|src\.consumer\.group\.id", _OFFSETS),
        (r"offset\.translator\..+|timestamps\..+|(?:src|dest)\.kafka\.timestamps\..+", _OFFSETS),
        (r"topic\.config\.sync\.interval\.ms", "Watershed compares every 30 seconds"),
        (r"topic\.create\.backoff\.ms", "a flow tries again until it is stopped"),
        (r"schema\.(?:registry|subject)\..+", "declare `schema_registry` of both clusters and use `sync.schemas`"),
        (r"confluent\.(?:topic|license|metadata|monitoring).*", "Confluent's licence and its topics are not needed"),
        (r"(?:src|dest)\.zookeeper\..+", "Watershed talks to brokers only"),
        (r"(?:src|dest)\.kafka\.(?:client\.id|request\.timeout\.ms|retry\..+|.+\.(?:ms|bytes))", _CLIENT),
        (r"(?:src|dest)\.kafka\.(?:metric.*|interceptor.*|confluent\..+|client\..+)", _CLIENT),
        (r"(?:src\.consumer|producer|consumer|producer\.override|consumer\.override|admin\.override)\..+", _CLIENT),
        (r"partition\.assignment|task\.id", "Replicator's own bookkeeping"),
    )
)


_START_OF_A_GROUP = frozenset({"offset.start", "src.consumer.group.id"})


def has_start_of_group(config: dict[str, ForeignSetting]) -> bool:
    """Whether the connector begins where its consumer group stands, and not where Connect remembers it."""
    said = config.get("offset.start")
    return said is not None and said.text.strip().lower() == "consumer"


def split_connection_key(key: str) -> tuple[str, str] | None:
    """`src.kafka.sasl.mechanism` is ("source", "sasl.mechanism"); None for keys that say nothing about connecting."""
    for head, side in (("src.kafka.", "source"), ("dest.kafka.", "target"), ("producer.override.", "target")):
        plain = key.removeprefix(head)
        if plain != key and mm2_settings.is_connection_key(plain):
            return side, plain
    return None


def check_replicator_settings(config: dict[str, ForeignSetting], notes: ImportNotes) -> None:
    """Says what is unknown, and why what is known stays behind."""
    carried = CARRIED_REPLICATOR_KEYS | (_START_OF_A_GROUP if has_start_of_group(config) else frozenset())
    mm2_settings.check_known_settings(
        {key: said for key, said in config.items() if key not in carried and split_connection_key(key) is None},
        _LEFT,
        carried,
        "setting of Replicator",
        notes,
    )
