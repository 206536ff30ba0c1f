"""Making the copies: topics like the originals, their newest records, flows over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from watershed.clusters import librdkafka
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_messages
from watershed.clusters.errors import RequestRefused
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_writes import create_acls
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import JsonObject
from watershed.cutover.drill.drill_preflight import Drill, find_copied_spans
from watershed.cutover.drill.drill_topology import DRILL_PREFIX
from watershed.cutover.drill.record_tally import RecordTally
from watershed.replicator.apply import apply_plan
from watershed.topology.inventory import InventoryAcl

_READ_S = 60.0
_FLUSH_S = 60.0
_MOST_KEYS = 500  # of a topic, that the rehearsal's producers write to
# Old records would expire before they are moved: retention counts from their own timestamps.
_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1", "min.compaction.lag.ms": "86400000"}
_NOT_COPIED = ("follower.replication.", "leader.replication.", "remote.", "local.")  # of the original's own log


def create_copies(
    drill: Drill, what: JsonObject, tally: RecordTally
) -> tuple[dict[str, int], dict[str, Sequence[bytes]]]:
    """Returns records copied and keys that occur, by topic of the wave. Not to be repeated: records would stand there
    twice. Raises ClusterError and CannotApply."""
    source = drill.settings[what["source"]]
    records: dict[str, int] = {}
    keys: dict[str, Sequence[bytes]] = {}
    with Admin(source) as admin:
        configs = admin.topic_configs([each["topic"] for each in what["copies"]])
        for each in what["copies"]:
            _guard(each["copy"])
            own = {k: v for k, v in configs[each["topic"]].items() if not k.startswith(_NOT_COPIED)}
            admin.create_topic(each["copy"], each["partitions"], each["replication_factor"], own | _FOR_EVER)
    for alias, allowed in what["allowed"].items():
        _allow(drill.settings[alias], allowed)
    for each in what["copies"]:
        records[each["topic"]], keys[each["topic"]] = _filled(drill, source, each, tally)
    apply_plan(drill.drill, drill.settings.__getitem__)
    return records, keys


def build_copy_acls(allowed: Sequence[Sequence[str]]) -> list[InventoryAcl]:
    """ALLOW WRITE rights on copies, from (principal, copy) pairs."""
    return [InventoryAcl(who, "WRITE", "ALLOW", "TOPIC", topic, "LITERAL") for who, topic in allowed]


def _guard(name: str) -> None:
    """The last line: whatever a plan or journal says, nothing else is ever made or removed."""
    if not name.startswith(DRILL_PREFIX):
        raise ValueError(f"{name} is no name of a rehearsal")


def _allow(settings: ConnectionSettings, allowed: Sequence[Sequence[str]]) -> None:
    for _, topic in allowed:
        _guard(topic)
    if not allowed:
        return
    with open_connection(settings) as inquiry:
        refused = create_acls(inquiry, build_copy_acls(allowed))
    if refused:
        why = "; ".join(sorted(set(refused.values())))
        raise RequestRefused(
            f"cluster {settings.alias}: rights for the rehearsal's copies: {why}", alias=settings.alias
        )


def _filled(
    drill: Drill, source: ConnectionSettings, each: Mapping[str, str | int], tally: RecordTally
) -> tuple[int, Sequence[bytes]]:
    """Records as they are, with their partitions and timestamps."""
    topic, copy = str(each["topic"]), str(each["copy"])
    failed: list[KafkaError] = []
    producer = Producer(
        source.librdkafka(
            {
                "client.id": "watershed-drill",
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 20,
                "message.max.bytes": 1_000_000_000,  # what brokers take is their topic's affair
            }
        )
    )

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    count, keys = 0, dict[bytes, None]()
    for message in read_messages(
        source, topic, find_copied_spans(drill, copy, topic, int(each["partitions"])), _READ_S
    ):
        key, value = _bytes(message.key()), _bytes(message.value())
        kind, at_ms = message.timestamp()
        stamp = at_ms if kind and at_ms >= 0 else 0  # 0: of now
        sent = {"key": key, "partition": message.partition() or 0, "on_delivery": delivered, "timestamp": stamp}
        try:
            _produce(producer, copy, value, {**sent, "headers": message.headers()})
        except KafkaException as error:
            raise librdkafka.build_cluster_error(
                source,
                librdkafka.extract_kafka_error(error),
                librdkafka.LibrdkafkaErrors(),
                doing=f"filling {copy}",
                topic=copy,
            ) from None
        tally.copied(topic, key, value)
        count += 1
        if key is not None and len(keys) < _MOST_KEYS:
            keys[key] = None
        if failed:
            break
    left = producer.flush(_FLUSH_S)
    if failed:
        raise librdkafka.build_cluster_error(
            source, failed[0], librdkafka.LibrdkafkaErrors(), doing=f"filling {copy}", topic=copy
        )
    if left:
        raise source.unreachable(f"{left} records of {copy} are not acknowledged after {_FLUSH_S:g} s")
    return count, list(keys) or [b"drill-%d" % number for number in range(50)]


def _produce(producer: Producer, topic: str, value: bytes | None, sent: Mapping[str, Any]) -> None:
    """Waits while librdkafka's queue is full. Raises KafkaException."""
    while True:
        try:
            producer.produce(topic, value, **sent)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
