"""Fetch answers as digests: which records count, at which offsets, and what damage is."""

from __future__ import annotations

import uuid

import pytest

from tests.replicator.build import abort, answer, batch_of, commit, damaged, data, emptied, transactional
from tests.replicator.old_formats import Old, message
from watershed.clusters.record_fingerprint import digest_record
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.messages import FetchedPartition
from watershed.replicator.adoption.digest_reader import FetchDigester, PartitionRange
from watershed.replicator.adoption.log_digests import ConsecutiveRecords, DigestedLog, DigestedLogBuilder
from watershed.replicator.batch.records import build_raw_batch, decode_records
from watershed.replicator.errors import BadBatch

KEY = b"k" * 32
HERE = ConnectionSettings(alias="a", bootstrap=("h:1",))


def fetched(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedPartition:
    return FetchedPartition(uuid.UUID(int=1), 0, 0, 1000, 1000, 0, answer(*batches), aborted)


def taken(
    given: FetchedPartition, start: int = 0, end: int = 1000, *, aborted: bool = False
) -> tuple[DigestedLog, int]:
    taking = FetchDigester(PartitionRange(HERE, "t", 0, start, end), KEY, DigestedLogBuilder(), aborted=aborted)
    position = taking.take(given, start)
    return taking.builder.finished(), position


def held(log: DigestedLog) -> list[ConsecutiveRecords]:
    return list(log.held(0, len(log))) if len(log) else []


def test_records_markers_and_gaps() -> None:
    log, position = taken(fetched(data(0, 3), transactional(3, 2, 7), commit(5, 7), data(9, 1), emptied(10, 4)))
    assert held(log) == [ConsecutiveRecords(0, 0, 5), ConsecutiveRecords(5, 9, 1)]
    assert (log.aborted, position) == ((), 14)
    (first, *_) = decode_records(batch_of(data(0, 3)))
    assert log.slice(0, 1) == digest_record(KEY, first.rest, first.timestamp)


def test_aborted_records_are_named_or_left_out() -> None:
    given = fetched(
        transactional(0, 2, 7), transactional(2, 1, 8), abort(3, 7), transactional(4, 1, 7), commit(5, 7), commit(6, 8),
        aborted=((7, 0),),
    )  # fmt: skip
    log, _ = taken(given, aborted=True)
    assert held(log) == [ConsecutiveRecords(0, 0, 3), ConsecutiveRecords(3, 4, 1)]
    assert log.aborted == ((0, 2),)
    kept, _ = taken(given)
    assert held(kept) == [ConsecutiveRecords(0, 2, 1), ConsecutiveRecords(1, 4, 1)]
    assert kept.aborted == ()


def test_a_range_begins_and_ends_inside_batches() -> None:
    log, position = taken(fetched(data(0, 10), data(10, 10)), 4, 13)
    assert held(log) == [ConsecutiveRecords(0, 4, 9)]
    assert position == 20
    whole, _ = taken(fetched(data(0, 10), data(10, 10)))
    assert log.slice(0, 9) == whole.slice(4, 13)


def test_holes_inside_a_batch() -> None:
    log, position = taken(fetched(data(20, offsets=(0, 1, 5, 9), span=12)))
    assert held(log) == [ConsecutiveRecords(0, 20, 2), ConsecutiveRecords(2, 25, 1), ConsecutiveRecords(3, 29, 1)]
    assert position == 32


def test_old_formats() -> None:
    log, position = taken(fetched(message(1, Old(0, b"k", b"v", 5)), message(1, Old(1, None, None, 6))))
    assert held(log) == [ConsecutiveRecords(0, 0, 2)]
    assert position == 2
    again, _ = taken(fetched(message(1, Old(0, b"k", b"v", 5))))
    assert again.slice(0, 1) == log.slice(0, 1)


def test_damage_is_said() -> None:
    with pytest.raises(BadBatch, match="CRC"):
        taken(fetched(data(0, 3), damaged(data(3, 3))))


def test_the_batching_and_the_codec_do_not_matter() -> None:
    records = decode_records(batch_of(data(0, 6)))
    one, _ = taken(fetched(data(0, 6)))
    other, _ = taken(
        fetched(
            *(
                bytes(build_raw_batch(records[at : at + 2], codec, at + 2).data)
                for at, codec in ((0, 1), (2, 4), (4, 0))
            )
        )
    )
    assert one.slice(0, 6) == other.slice(0, 6)
