"""The in-memory cleaner leaves what Kafka's leaves."""

from __future__ import annotations

from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_log import PartitionLog
from watershed.clusters.record_batch import BatchRecord, build_batch, decode_batch_header, decode_batch_records

NOW = 1_790_000_000_000


def log_of(*batches: bytes) -> PartitionLog:
    log = PartitionLog({"cleanup.policy": "compact"})
    for batch in batches:
        log.write(batch, NOW)
    return log


def batch(*keys: str, producer_id: int = -1, sequence: int = -1, values: tuple[bytes | None, ...] = ()) -> bytes:
    records = [
        BatchRecord(at, NOW + at, key.encode(), values[at] if values else b"v%d" % at) for at, key in enumerate(keys)
    ]
    epoch = 0 if producer_id >= 0 else -1
    return build_batch(records, producer_id=producer_id, epoch=epoch, base_sequence=sequence)


def test_the_newest_of_each_key_stays_and_offsets_do_not_move() -> None:
    log = log_of(batch("a", "b", "a"), batch("c"), batch("b", "d"), batch("tail"))
    log.compact(log.end, NOW)
    assert [(kept.header.base_offset, kept.header.last_offset, kept.header.count) for kept in log.batches] == [
        (0, 2, 1), (3, 3, 1), (4, 5, 2), (6, 6, 1),
    ]  # fmt: skip
    assert [record.offset for record in log.visible(True)] == [2, 3, 4, 5, 6]
    assert log.end == 7


def test_a_batch_without_records_is_gone_but_a_producers_last_one_stays_empty() -> None:
    log = log_of(
        batch("a", producer_id=5, sequence=0),
        batch("a", producer_id=5, sequence=1),
        batch("b", "a", producer_id=6, sequence=0),
        batch("b", "c"),
        batch("tail"),
    )
    log.compact(log.end, NOW)
    assert [(kept.header.producer_id, kept.header.count) for kept in log.batches] == [(5, 0), (6, 1), (-1, 2), (-1, 1)]
    empty, partial = log.batches[0].header, log.batches[1].header
    assert (empty.base_offset, empty.last_offset, empty.base_sequence) == (1, 1, 1)
    assert (partial.base_offset, partial.last_offset, partial.base_sequence) == (2, 3, 0)


def test_the_active_segment_and_open_transactions_are_left_alone() -> None:
    cluster = FakeCluster(clock=lambda: NOW)
    cluster.create_topic("t", 1, configs={"cleanup.policy": "compact"})
    cluster.produce("t", 0, [b"1"], keys=[b"k"])
    cluster.produce("t", 0, [b"2"], keys=[b"k"])
    cluster.produce_transaction("t", 0, [[b"3"]], end="open")
    cluster.produce("t", 0, [b"4"], keys=[b"k"])
    log = cluster.log("t", 0)
    log.compact(log.end, NOW)
    assert [record.offset for kept in log.batches for record in decode_batch_records(kept.data)] == [1, 2, 3]


def test_tombstones_get_a_delete_horizon_and_keep_their_times() -> None:
    log = log_of(batch("a", "b", "a", values=(b"x", None, b"y")), batch("a"), batch("tail"))
    log.compact(log.end, NOW)
    (kept, *_) = log.batches
    assert decode_batch_header(kept.data).attributes == 0x40
    assert decode_batch_header(kept.data).base_timestamp == NOW + 86_400_000
    assert [(each.offset, each.timestamp, each.value) for each in decode_batch_records(kept.data)] == [
        (1, NOW + 1, None)
    ]
    again = kept.data
    log.compact(log.end, NOW + 5)
    assert log.batches[0].data == again


def test_aborted_records_go_their_markers_stay() -> None:
    cluster = FakeCluster(clock=lambda: NOW)
    cluster.create_topic("t", 1)
    cluster.produce_transaction("t", 0, [[b"1"], [b"2"]], end="abort")
    cluster.produce("t", 0, [b"3"])
    log = cluster.log("t", 0)
    log.compact(log.end, NOW)
    assert [(kept.header.is_control, kept.header.count) for kept in log.batches] == [(False, 0), (True, 1), (False, 1)]
