"""The settings of a cluster link by what becomes of them: carried over, left behind for a reason, or unknown.

Source: Confluent's "Configure Cluster Linking on Confluent Platform" and "Configure and Manage Cluster Links on
Confluent Cloud" (7.0 to 8.1), and the settings that confluentinc/cli prints of a link (link create).
"""

from __future__ import annotations

import re

from watershed.topology.interop import mm2_settings
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes

# those that tell a link's file from another client's
_OWN = """
link.mode connection.mode cluster.link.prefix cluster.link.paused consumer.offset.sync.enable consumer.offset.sync.ms
consumer.offset.group.filters consumer.group.prefix.enable acl.sync.enable acl.sync.ms acl.filters topic.config.sync.ms
topic.config.sync.include auto.create.mirror.topics.enable auto.create.mirror.topics.filters mirror.start.offset.spec
"""
LINK_ONLY_KEYS = frozenset(_OWN.split())
# what `linking_flow` reads
_CARRIED = LINK_ONLY_KEYS - {"consumer.group.prefix.enable", "acl.sync.ms", "topic.config.sync.ms"}
LINK_MODES = ("DESTINATION", "SOURCE", "BIDIRECTIONAL")
LINK_CONNECTION_MODES = ("OUTBOUND", "INBOUND")
MAX_LINK_PREFIX_LETTERS = 12

_LEFT: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (r"consumer\.group\.prefix\.enable", "groups keep their names"),
        (r"acl\.sync\.ms|topic\.config\.sync\.ms", "Watershed compares every 30 seconds"),
        (r"metadata\.max\.age\.ms", "`workers.discovery` says how often new topics are looked for"),
        (
            r"num\.cluster\.link\.fetchers|cluster\.link\.fetch.*|replica\..*",
            "`workers.count` and `quota` say how fast",
        ),
        (r"availability\.check\..*|cluster\.link\.retry\.timeout\.ms", "a flow tries again until it is stopped"),
        (r"local\.listener(?:\.name)?", "Watershed's workers connect to `bootstrap` like any client"),
        (r"remote\.link\.connection\.mode|reverse\.connection.*", "Watershed's workers connect to both clusters"),
        (r"link\.fetcher\..*|auto\.alter\..*|availability\..*|share\.group\..*", "tuning of the link in the brokers"),
        (r"deduplicate\.topic.*|persistent\.topic.*|unsupported\..*", "tuning of the link in the brokers"),
        (r"schema\.registry\..*", "schemas are carried over by `sync.schemas` and `clusters.…schema_registry`"),
    )
)
_KNOWN = sorted(LINK_ONLY_KEYS | {"bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.jaas.config"})


def strip_local_prefix(key: str) -> str | None:
    """`local.sasl.mechanism` is `sasl.mechanism` of the cluster that the link is on; None for other keys."""
    plain = key.removeprefix("local.")
    return plain if plain != key and mm2_settings.is_connection_key(plain) else None


def _is_read(key: str) -> bool:
    return key in _CARRIED or mm2_settings.is_connection_key(key) or strip_local_prefix(key) is not None


def check_link_settings(config: dict[str, ForeignSetting], notes: ImportNotes) -> None:
    """Says what is unknown, and why what is known stays behind."""
    mm2_settings.check_known_settings(
        {key: said for key, said in config.items() if not _is_read(key)},
        _LEFT,
        _KNOWN,
        "setting of a cluster link",
        notes,
    )


def parse_link_flag(config: dict[str, ForeignSetting], key: str, notes: ImportNotes) -> bool:
    """A boolean setting, false when it is not said. Anything but true and false is said, and counts as false."""
    said = config.get(key)
    if said is None:
        return False
    text = said.text.strip().lower()
    if text not in ("true", "false"):
        notes.add_problem("SYN011", f"`{said.name}`: expected true or false; it counts as false", said.span)
    return text == "true"


def parse_link_milliseconds(config: dict[str, ForeignSetting], key: str, low: int, notes: ImportNotes) -> int | None:
    """A number of at least `low`; None when it is not said, or wrong, which the notes then have."""
    said = config.get(key)
    if said is None:
        return None
    text = said.text.strip()
    if re.fullmatch(r"[0-9]{1,15}", text) is None or int(text) < low:
        notes.add_problem(
            "SYN011", f"`{said.name}`: expected milliseconds, a whole number of at least {low}", said.span
        )
        return None
    return int(text)
