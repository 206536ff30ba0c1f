"""What a Fetch is answered, run against the cluster in memory and against a real broker."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

import pytest

from tests.clusters.sites import Site, send
from watershed.clusters.cluster_protocol import TopicDescription
from watershed.clusters.record_batch import build_simple_batch, decode_batch_records, split_batches
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED, FetchedPartition, FetchPartition, Wire

NOW = int(time.time() * 1000)


def fetch(
    wire: Wire, topic: TopicDescription, offset: int, *, isolation: int = READ_COMMITTED, **extra: int
) -> FetchedPartition:
    (answer,) = wire.fetch(
        (FetchPartition(topic.topic_id, 0, offset, **extra),), max_wait_ms=100, min_bytes=1, isolation=isolation
    )
    return answer


def spans(answer: FetchedPartition) -> list[tuple[int, int]]:
    """(first, last offset) of the whole batches in an answer."""
    return [(found.base_offset, found.last_offset) for found, _ in split_batches(answer.records)]


def filled(site: Site, name: str, count: int = 4, size: int = 5) -> tuple[TopicDescription, Wire, int]:
    """`count` batches of `size` records each; the topic, a connection and the size of one batch in bytes."""
    topic, wire = site.admin.create_topic(name, 1), site.wire()
    batch = build_simple_batch([b"value"] * size, timestamp=NOW)
    for _ in range(count):
        assert send(wire, topic, batch).error == 0
    return topic, wire, len(batch)


@dataclass(frozen=True)
class Read:
    """A Fetch of a log of four batches of five records, and what must come back."""

    name: str
    offset: int
    spans: list[tuple[int, int]]
    batches_allowed: float = 100.0  # partition max_bytes, in batches
    error: int = 0
    bytes_in_batches: float | None = None


READS = [
    Read("from the start", 0, [(0, 4), (5, 9), (10, 14), (15, 19)]),
    Read("at a boundary", 10, [(10, 14), (15, 19)]),
    Read("inside a batch: the whole batch comes", 12, [(10, 14), (15, 19)]),
    Read("at the end: nothing yet", 20, []),
    Read("beyond the end", 21, [], error=1),
    Read("cut off at max_bytes", 0, [(0, 4), (5, 9)], batches_allowed=2.5, bytes_in_batches=2.5),
    Read("a first batch above max_bytes is whole", 5, [(5, 9)], batches_allowed=0.5, bytes_in_batches=1),
]


@pytest.mark.parametrize("case", READS, ids=lambda case: case.name)
def test_fetch(case: Read, site: Site, topic_name: str) -> None:
    topic, wire, size = filled(site, topic_name)
    answer = fetch(wire, topic, case.offset, max_bytes=int(size * case.batches_allowed))
    wire.close()
    assert (answer.error, spans(answer)) == (case.error, case.spans)
    if case.error == 0:
        assert (answer.high_watermark, answer.last_stable, answer.log_start) == (20, 20, 0)
    if case.bytes_in_batches is not None:
        assert len(answer.records) == int(size * case.bytes_in_batches)


def test_stored_batch_is_what_was_sent(site: Site, topic_name: str) -> None:
    topic, wire = site.admin.create_topic(topic_name, 1), site.wire()
    sent = build_simple_batch(
        [b"a", None, b"c"],
        keys=[b"1", b"2", b"3"],
        timestamp=NOW,
        codec="gzip",
        producer_id=9,
        epoch=2,
        base_sequence=7,
    )
    for _ in range(2):
        wire_answer = send(wire, topic, build_simple_batch([b"x"], timestamp=NOW))
        assert wire_answer.error == 0
    send(wire, topic, sent)
    answer = fetch(wire, topic, 2)
    wire.close()
    (found, data), *rest = split_batches(answer.records)
    assert rest == []
    assert (found.base_offset, found.producer_id, found.producer_epoch, found.base_sequence) == (2, 9, 2, 7)
    assert bytes(data[17:]) == sent[17:]  # everything under the CRC, and the CRC
    assert [(record.offset, record.key, record.value) for record in decode_batch_records(data)] == [
        (2, b"1", b"a"),
        (3, b"2", None),
        (4, b"3", b"c"),
    ]


def test_log_append_time(site: Site, topic_name: str) -> None:
    topic = site.admin.create_topic(topic_name, 1, configs={"message.timestamp.type": "LogAppendTime"})
    wire = site.wire()
    send(wire, topic, build_simple_batch([b"a", b"b"], timestamp=NOW - 500_000))
    ((found, data),) = split_batches(fetch(wire, topic, 0).records)
    wire.close()
    assert found.attributes == 0x08
    assert found.max_timestamp > NOW - 100_000
    assert {record.timestamp for record in decode_batch_records(data)} == {found.max_timestamp}


def test_unknown_topic_id(site: Site, topic_name: str) -> None:
    topic, wire, _ = filled(site, topic_name)
    (answer,) = wire.fetch((FetchPartition(uuid.uuid4(), 0, 0),), max_wait_ms=100)
    assert answer.error == 100
    site.delete_topic(topic_name)
    recreated = site.admin.create_topic(topic_name, 1)
    assert fetch(wire, topic, 0).error == 100
    assert fetch(wire, recreated, 0).error == 0
    wire.close()


def test_deleted_records_are_out_of_range(site: Site, topic_name: str) -> None:
    topic, wire, _ = filled(site, topic_name)
    site.delete_records(topic_name, 7)
    gone, kept = fetch(wire, topic, 6), fetch(wire, topic, 7)
    starts = wire.list_offsets(((topic_name, 0),), -2)
    wire.close()
    assert gone.error == 1
    assert (kept.error, kept.log_start, spans(kept)[0]) == (0, 7, (5, 9))
    assert starts[0].offset == 7


def test_diverging_epoch_needs_a_known_epoch(site: Site, topic_name: str) -> None:
    topic, wire, _ = filled(site, topic_name)
    ((found, _), *_rest) = split_batches(fetch(wire, topic, 0).records)
    same = fetch(wire, topic, 10, last_epoch=found.leader_epoch)
    wire.close()
    assert same.diverging_epoch is None
    assert spans(same) == [(10, 14), (15, 19)]


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_transactions(isolation: int, site: Site, topic_name: str) -> None:
    """Markers take offsets; aborted transactions are named to read_committed only."""
    topic, wire = site.admin.create_topic(topic_name, 1), site.wire()
    site.transaction(topic_name, [[b"a", b"b"], [b"c"]], commit=True)  # 0, 1, 2, marker 3
    site.transaction(topic_name, [[b"d"], [b"e", b"f"]], commit=False)  # 4, 5, 6, marker 7
    send(wire, topic, build_simple_batch([b"g"], timestamp=NOW))  # 8
    site.transaction(topic_name, [[b"h"]], commit=False)  # 9, marker 10
    answer = fetch(wire, topic, 0, isolation=isolation)
    later = fetch(wire, topic, 8, isolation=isolation)
    wire.close()
    assert spans(answer) == [(0, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 7), (8, 8), (9, 9), (10, 10)]
    found = [header for header, _ in split_batches(answer.records)]
    assert [header.is_control for header in found] == [False, False, True, False, False, True, False, False, True]
    assert [header.is_transactional for header in found] == [True] * 6 + [False, True, True]
    markers = [decode_batch_records(data)[0].key for header, data in split_batches(answer.records) if header.is_control]
    assert markers == [b"\0\0\0\1", b"\0\0\0\0", b"\0\0\0\0"]
    if isolation == READ_COMMITTED:
        assert sorted(answer.aborted, key=lambda entry: entry[1]) == [
            (found[3].producer_id, 4),
            (found[7].producer_id, 9),
        ]
        assert later.aborted == ((found[7].producer_id, 9),)
    else:
        assert answer.aborted == later.aborted == ()
    assert site.admin.offsets([TopicPartition(topic_name, 0)])[TopicPartition(topic_name, 0)].end == 11


def test_offsets_by_time(site: Site, topic_name: str) -> None:
    topic, wire = site.admin.create_topic(topic_name, 1), site.wire()
    for number in range(3):
        send(wire, topic, build_simple_batch([b"a", b"b", b"c"], timestamp=NOW + number * 10))
    asked = [NOW - 5, NOW + 1, NOW + 5, NOW + 21, NOW + 23]
    found = [wire.list_offsets(((topic_name, 0),), moment)[0].offset for moment in asked]
    missing = wire.list_offsets((("no-such-topic", 0), (topic_name, 5)), -1)
    wire.close()
    assert found == [0, 1, 3, 7, -1]
    assert [answer.error for answer in missing] == [3, 3]


def test_metadata(site: Site, topic_name: str) -> None:
    topic = site.admin.create_topic(topic_name, 3)
    wire = site.wire()
    known = wire.metadata((topic_name, f"{topic_name}-no"))
    everything = wire.metadata()
    wire.close()
    by_name = {entry.name: entry for entry in known.topics}
    assert by_name[topic_name].topic_id == topic.topic_id
    assert sorted(leader.partition for leader in by_name[topic_name].partitions) == [0, 1, 2]
    assert {leader.node for leader in by_name[topic_name].partitions} <= set(known.brokers)
    assert by_name[f"{topic_name}-no"].error == 3
    assert known.cluster_id == site.admin.cluster_id()
    assert topic_name in {entry.name for entry in everything.topics}


def test_fetch_waits_for_new_records(site: Site, topic_name: str) -> None:
    topic, wire, _ = filled(site, topic_name)
    began = time.monotonic()
    (answer,) = wire.fetch((FetchPartition(topic.topic_id, 0, 20),), max_wait_ms=400)
    waited = time.monotonic() - began
    wire.close()
    assert len(answer.records) == 0
    assert 0.35 < waited < 30
