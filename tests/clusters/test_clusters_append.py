"""What a broker answers to a batch, as a table, run against the cluster in memory and against a real broker.

The rows come from research (batch-passthrough §1, sequence-numbers §1) and were seen on Apache Kafka 4.3.1.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field

import pytest

from tests.clusters.sites import Site, send
from watershed.clusters.record_batch import (
    BatchRecord,
    build_batch,
    build_marker_batch,
    build_simple_batch,
    compute_batch_crc,
)
from watershed.clusters.wire.messages import ProducePartition

OURS = 700_001  # an id that no broker issued: as good as any (sequence-numbers 6d)
NOW = int(time.time() * 1000)
WRAP = 1 << 31


def batch(first: int, count: int = 5, *, pid: int = OURS, epoch: int = 0, codec: str = "none", at: int = NOW) -> bytes:
    """`count` records whose sequence numbers start at `first`."""
    values = [b"%d" % (first + number) for number in range(count)]
    return build_simple_batch(
        values,
        keys=values,
        timestamp=at,
        codec=codec,
        producer_id=pid,
        epoch=epoch,
        base_sequence=first % WRAP,
    )


def patched(data: bytes, at: int, layout: str, value: int, *, crc: bool = True) -> bytes:
    """`data` with one header field changed, and the CRC made to match (or not)."""
    kept = bytearray(data)
    struct.pack_into(layout, kept, at, value)
    if crc:
        struct.pack_into(">I", kept, 17, compute_batch_crc(kept))
    return bytes(kept)


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def rising(*steps: tuple[int, int]) -> list[tuple[bytes, int, int]]:
    return [(batch(first, count), 0, first) for first, count in steps]


@dataclass(frozen=True)
class Case:
    """Batches in order, each with the error code and the base offset of its answer."""

    name: str
    steps: list[tuple[bytes, int, int]]
    end: int
    configs: dict[str, str] = field(default_factory=dict)


FIVES = rising(*((first, 5) for first in range(0, 50, 5)))  # [0..49] in ten batches

CASES = [
    Case("in order", FIVES, 50),
    Case("no producer id", [(build_simple_batch([b"a"], timestamp=NOW), 0, 0)], 1),
    # sequence-numbers §1, 2 to 5
    Case("repeat newest", [*FIVES, (batch(45), 0, 45)], 50),
    Case("repeat 5th newest", [*FIVES, (batch(25), 0, 25)], 50),
    Case("repeat newest with other bytes", [*FIVES, (batch(45, codec="gzip"), 0, 45)], 50),
    Case("repeat 6th newest", [*FIVES, (batch(20), 45, -1)], 50),
    Case("repeat oldest", [*FIVES, (batch(0), 45, -1)], 50),
    *(
        Case(f"overlap {first}+{count}", [*FIVES, (batch(first, count), 45, -1)], 50)
        for first, count in [(45, 3), (40, 10), (48, 5), (45, 10), (47, 3)]
    ),
    Case("gap by 1, then the right one", [*FIVES, (batch(51), 45, -1), (batch(50), 0, 50)], 55),
    Case("gap by 950", [*FIVES, (batch(1000), 45, -1)], 50),
    # 6: without state anything is accepted
    Case("fresh partition, sequence 7", [(batch(7), 0, 0), (batch(0), 45, -1), (batch(12), 0, 5)], 10),
    Case("unknown id on a used partition", [*FIVES, (batch(44, pid=OURS + 1), 0, 50)], 55),
    Case("unknown id with epoch 7", [(batch(44, epoch=7), 0, 0)], 5),
    # 10: a failure in the pipeline
    Case("corrupt one, then the next", [*FIVES, (broken(batch(50)), 2, -1), (batch(55), 45, -1)], 50),
    Case("fresh partition, first corrupt", [(broken(batch(0)), 2, -1), (batch(5), 0, 0)], 5),
    # 11: wrap at 2^31
    Case(
        "wrap inside a batch",
        [(batch(WRAP - 12, 10), 0, 0), (batch(WRAP - 2, 5), 0, 10), (batch(3), 0, 15), (batch(WRAP - 2, 5), 0, 10)],
        20,
    ),
    Case("wrap between batches", [(batch(WRAP - 5), 0, 0), (batch(0), 0, 5), (batch(2), 45, -1)], 10),
    # 12, 13: others do not touch our sequence
    Case(
        "two producers",
        [(batch(0), 0, 0), (batch(0, pid=OURS + 1), 0, 5), (batch(5), 0, 10), (batch(0, pid=OURS + 1), 0, 5)],
        15,
    ),
    Case("foreign records between", [(batch(0), 0, 0), (build_simple_batch([b"x"]), 0, 5), (batch(5), 0, 6)], 11),
    # 15: epochs
    Case("new epoch not at 0", [*FIVES, (batch(50, epoch=1), 45, -1)], 50),
    Case(
        "new epoch at 0 fences the old",
        [*FIVES, (batch(0, epoch=3), 0, 50), (batch(50), 47, -1), (batch(45), 47, -1), (batch(5, epoch=3), 0, 55)],
        60,
    ),
    # batch-passthrough §1.2: header fields
    Case("base offset not 0", [(patched(batch(0), 0, ">q", 5), 87, -1)], 0),
    Case("leader epoch of another cluster", [(patched(batch(0), 12, ">i", 77), 0, 0)], 5),
    Case("two batches", [(batch(0) + batch(5), 87, -1)], 0),
    Case("no batch", [(b"", 87, -1)], 0),
    Case("CRC", [(patched(batch(0), 57, ">i", 6, crc=False), 2, -1)], 0),
    Case("count too high", [(patched(batch(0), 57, ">i", 6), 87, -1)], 0),
    Case("count too low", [(patched(batch(0), 57, ">i", 4), 87, -1)], 0),
    Case("unused attribute bits", [(patched(batch(0), 21, ">h", 0x400), 0, 0)], 5),
    Case("log append time bit", [(patched(batch(0), 21, ">h", 0x08), 0, 0)], 5),
    Case(
        "log append time bit on a log append time topic",
        [(patched(batch(0), 21, ">h", 0x08), 32, -1)],
        0,
        {"message.timestamp.type": "LogAppendTime"},
    ),
    Case("transactional bit without a transaction", [(patched(batch(0), 21, ">h", 0x10), 53, -1)], 0),
    Case("control record", [(patched(build_marker_batch(OURS, 0, 0, NOW), 21, ">h", 0x20), 87, -1)], 0),
    Case("sequence -1 with an id", [(patched(batch(0), 53, ">i", -1), 87, -1)], 0),
    Case("empty batch", [(build_batch([], producer_id=OURS, epoch=0, base_sequence=0), 87, -1)], 0),
    Case(
        "compaction gap",
        [
            (
                build_batch([BatchRecord(0, NOW, b"a", b"1"), BatchRecord(4, NOW, b"b", b"2")], last_offset_delta=4),
                87,
                -1,
            )
        ],
        0,
    ),
    Case(
        "trimmed batch",
        [(build_batch([BatchRecord(3, NOW, b"a", b"1"), BatchRecord(4, NOW, b"b", b"2")]), 87, -1)],
        0,
    ),
    Case("compressed", [(batch(0, codec="gzip"), 0, 0), (batch(5, codec="gzip"), 0, 5)], 10),
    # §1.3: content and configs
    Case("too large", [(batch(0, 200), 10, -1), (batch(0), 0, 0)], 5, {"max.message.bytes": "1000"}),
    Case("two hours ahead", [(batch(0, at=NOW + 7_200_000), 32, -1)], 0),
    Case("of 1980", [(batch(0, at=315_532_800_000), 0, 0)], 5),
    Case(
        "older than the topic allows",
        [(batch(0, at=NOW - 86_400_000), 32, -1)],
        0,
        {"message.timestamp.before.max.ms": "3600000"},
    ),
    Case(
        "no key on a compacted topic",
        [(build_simple_batch([b"x"], timestamp=NOW), 87, -1), (batch(0), 0, 0)],
        5,
        {"cleanup.policy": "compact"},
    ),
    Case(
        "log append time topic", [(batch(0), 0, 0), (batch(5), 0, 5)], 10, {"message.timestamp.type": "LogAppendTime"}
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_append(case: Case, site: Site, topic_name: str) -> None:
    topic = site.admin.create_topic(topic_name, 1, configs=case.configs)
    wire = site.wire()
    answers = [send(wire, topic, data) for data, _, _ in case.steps]
    (end,) = wire.list_offsets(((topic_name, 0),), -1)
    wire.close()
    assert [(answer.error, answer.base_offset) for answer in answers] == [
        (error, base) for _, error, base in case.steps
    ]
    assert end.offset == case.end


def test_pipelined_answers_come_in_order(site: Site, topic_name: str) -> None:
    topic = site.admin.create_topic(topic_name, 2)
    wire = site.wire()
    for number in range(20):
        wire.send_produce(
            (
                ProducePartition(topic.topic_id, 0, (batch(number * 5),)),
                ProducePartition(topic.topic_id, 1, (batch(number * 3, 3),)),
            )
        )
    answers = [{part.partition: (part.error, part.base_offset) for part in wire.receive_produce()} for _ in range(20)]
    wire.close()
    assert answers == [{0: (0, number * 5), 1: (0, number * 3)} for number in range(20)]


def test_batch_in_pieces(site: Site, topic_name: str) -> None:
    topic = site.admin.create_topic(topic_name, 1)
    wire, data = site.wire(), batch(0)
    wire.send_produce((ProducePartition(topic.topic_id, 0, (data[:61], memoryview(data)[61:])),))
    (answer,) = wire.receive_produce()
    wire.close()
    assert (answer.error, answer.base_offset, answer.log_start) == (0, 0, 0)


def test_recreated_topic_is_not_written(site: Site, topic_name: str) -> None:
    before = site.admin.create_topic(topic_name, 1)
    wire = site.wire()
    assert send(wire, before, batch(0)).error == 0
    site.delete_topic(topic_name)
    after = site.admin.create_topic(topic_name, 1)
    assert after.topic_id != before.topic_id
    assert send(wire, before, batch(5)).error == 100
    assert send(wire, after, batch(0)).base_offset == 0
    wire.close()


def test_state_survives_the_deletion_of_records(site: Site, topic_name: str) -> None:
    topic = site.admin.create_topic(topic_name, 1)
    wire = site.wire()
    for first in range(0, 30, 5):
        send(wire, topic, batch(first))
    site.delete_records(topic_name, 30)
    answers = [send(wire, topic, batch(first)) for first in (25, 40, 30)]
    error, states = wire.describe_producers(topic_name, 0)
    wire.close()
    assert [(answer.error, answer.base_offset) for answer in answers] == [(0, 25), (45, -1), (0, 30)]
    assert error == 0
    assert [(state.producer_id, state.epoch, state.last_sequence) for state in states] == [(OURS, 0, 34)]


def test_describe_producers(site: Site, topic_name: str) -> None:
    topic = site.admin.create_topic(topic_name, 1)
    wire = site.wire()
    send(wire, topic, batch(0, at=NOW - 50_000))
    send(wire, topic, batch(7, 2, pid=OURS + 1, epoch=4, at=NOW))
    error, states = wire.describe_producers(topic_name, 0)
    missing, _ = wire.describe_producers(f"{topic_name}-no", 0)
    wire.close()
    assert (error, missing) == (0, 3)
    assert sorted((s.producer_id, s.epoch, s.last_sequence, s.last_timestamp, s.transaction_start) for s in states) == [
        (OURS, 0, 4, NOW - 50_000 + 4, -1),
        (OURS + 1, 4, 8, NOW + 1, -1),
    ]


def test_producer_ids_are_fresh(site: Site) -> None:
    wire = site.wire()
    issued: list[int] = [wire.issue_producer_id() for _ in range(3)]
    wire.close()
    assert len(set(issued)) == 3
    assert min(issued) >= 0
