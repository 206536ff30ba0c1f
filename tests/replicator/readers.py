"""Who reads what was copied: Java's consumers (both group protocols, share groups) and confluent-kafka, as one kind of
thing, so that a test can send any of them from the source to the target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer
from kio.schema.incremental_alter_configs.v1 import request as alter
from kio.static.primitive import i8

from tests.replicator.real import Record
from watershed.clusters.admin import Admin
from watershed.clusters.group_offsets import GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.lab import console_consumer

_INCREMENTAL_ALTER_CONFIGS, _GROUP = 44, 32  # request; kind of resource (KIP-848)
Rows = dict[int, list[tuple[int, Record]]]  # by partition: (offset, record), in the order read
Reader = Callable[[ConnectionSettings, str, str, int], Rows]  # settings, topic, group, how many records


def _java(protocol: console_consumer.GroupProtocol) -> Reader:
    def read(settings: ConnectionSettings, topic: str, group: str, count: int) -> Rows:
        found: Rows = {}
        for each in console_consumer.consume_with_console(",".join(settings.bootstrap), topic, group, protocol, count):
            record = (each.key, each.value, each.timestamp, each.headers)
            found.setdefault(each.partition, []).append((each.offset, record))
        return found

    return read


def _share(settings: ConnectionSettings, topic: str, group: str, count: int) -> Rows:
    """In two sittings: a group's start offset is stored with the acknowledgements behind those that move it, so that
    after one sitting it may still be where it was."""
    read = _java("share")
    found = read(settings, topic, group, count // 2)
    for number, rows in read(settings, topic, group, count - count // 2).items():
        found.setdefault(number, []).extend(rows)
    return found


def _confluent(protocol: str) -> Reader:
    def read(settings: ConnectionSettings, topic: str, group: str, count: int) -> Rows:
        own = {"group.id": group, "group.protocol": protocol, "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer(settings.librdkafka(own))
        found: Rows = {}
        deadline = time.monotonic() + 180
        try:
            consumer.subscribe([topic])
            left = count
            while left:
                assert time.monotonic() < deadline, f"group {group}: {left} of {count} records did not come"
                for message in consumer.consume(min(left, 1_000), timeout=0.5):
                    assert message.error() is None, message.error()
                    headers = tuple(message.headers() or ())
                    record = (message.key(), message.value(), message.timestamp()[1], headers)
                    found.setdefault(message.partition(), []).append((message.offset(), record))
                    left -= 1
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return found

    return read


READERS: dict[str, Reader] = {
    "java classic": _java("classic"),
    "java consumer": _java("consumer"),
    "java share": _share,
    "confluent classic": _confluent("classic"),
    "confluent consumer": _confluent("consumer"),
}


def isolated(settings: ConnectionSettings, group: str) -> None:
    """A share group reads what was rolled back, too, unless it is told not to. And what a member has left behind waits
    for as short a time as brokers allow."""
    wanted = {"share.isolation.level": "read_committed", "share.record.lock.duration.ms": "15000"}
    configs = tuple(
        alter.AlterableConfig(name=name, config_operation=i8(0), value=value) for name, value in wanted.items()
    )
    resource = alter.AlterConfigsResource(resource_type=i8(_GROUP), resource_name=group, configs=configs)
    with open_connection(settings) as inquiry:
        answer = inquiry.ask(_INCREMENTAL_ALTER_CONFIGS, highest=1, resources=(resource,), validate_only=False)
        for each in answer.responses:
            inquiry.check(int(each.error_code), f"configuring group {group}")


def positioned(settings: ConnectionSettings, reader: str, group: str, at: dict[TopicPartition, int]) -> None:
    """Where this group, which has no members, goes on."""
    if reader == "java share":
        isolated(settings, group)
        with GroupOffsets(settings) as groups:
            deadline = time.monotonic() + 180  # the first time, brokers have yet to load the state of share groups
            while any((refused := groups.alter_share(group, at)).values()):
                assert time.monotonic() < deadline, refused
                time.sleep(0.2)
    else:
        with Admin(settings) as admin:
            admin.commit_offsets(group, at)


def settled(
    settings: ConnectionSettings, reader: str, group: str, since: Mapping[TopicPartition, int], rows: Rows, read: Rows
) -> dict[TopicPartition, int]:
    """Where the group stands after it went on at `since` and has read `read`, with `rows` in its topic.

    It stands right behind what it read; a share group may be shown before that (see `_share`).
    """
    deadline = time.monotonic() + 180
    while (found := _position(settings, reader, group)) == since:
        assert time.monotonic() < deadline, f"group {group} has committed nothing: {found}"
        time.sleep(0.2)
    for place, offset in found.items():
        passed = [row for row in rows[place.partition] if since[place] <= row[0] < offset]
        has_read = read.get(place.partition, [])
        assert passed == (has_read[: len(passed)] if reader == "java share" else has_read), (place, offset)
    return found


def _position(settings: ConnectionSettings, reader: str, group: str) -> dict[TopicPartition, int]:
    if reader == "java share":
        with GroupOffsets(settings) as groups:
            return {place: held.offset for place, held in groups.read_share_offsets([group])[group].positions.items()}
    with Admin(settings) as admin:
        return dict(admin.group(group).offsets)


def from_on(rows: Rows, topic: str, at: dict[TopicPartition, int]) -> Rows:
    """The rows at these offsets and behind them."""
    found = {
        number: [(offset, record) for offset, record in each if offset >= at[TopicPartition(topic, number)]]
        for number, each in rows.items()
    }
    return {number: each for number, each in found.items() if each}
