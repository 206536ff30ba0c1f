"""The offset map of transactional topics: what it takes in the ledger, how long it loads, what a lookup costs.

Two kinds of rows. `real`: BENCH_TRANSACTIONS (default 5,000) transactions of one record each, by librdkafka on real
brokers, copied by a real worker while they are produced; the ledger is what that worker wrote, and every record is
looked up both ways and compared with both logs. `made`: RUNS runs of the same shape handed to the very code that writes
the ledger, with a writer that only counts bytes; so that a million transactions need not be produced.

Bytes are keys and values. `written`: all records that were ever appended. `stays`: the newest of every key, without
tombstones, which is what compaction leaves.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from watershed.bench.bench_clusters import BenchClusters, run_bench_clusters
from watershed.bench.copy_contenders import WatershedContender
from watershed.bench.results import BenchGoal, choose_size, publish_results
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import ControlRecord, read_messages
from watershed.clusters.control_topics import LEDGER_TOPIC, SLOT_COUNT, encode_control_value
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.ledger import build_ledger, read_ledger
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.transaction_positions import PositionAndRuns, PositionTracker, TransactionPosition
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity

_RUNS = choose_size(1_000_000, 1_000)
_LOOKUPS = choose_size(20_000, 200)
_PRODUCERS = 8
_TOPIC = "orders"
_KEY = PartitionKey("source-to-target", _TOPIC, _TOPIC, 0)
_SOURCE, _TARGET = uuid.uuid4(), uuid.uuid4()
_MOST_STAYS_MB, _MOST_LOOKUP_MS, _MOST_LOAD_S = 20.0, 1.0, 10.0

OffsetsRow = dict[str, Any]


def main() -> int:
    """Measures real and generated offset maps. Returns the exit code."""
    transactions = int(os.environ.get("BENCH_TRANSACTIONS", choose_size("5000", "80")))
    rows: list[OffsetsRow] = []
    with tempfile.TemporaryDirectory(prefix="watershed-bench-") as scratch, run_bench_clusters(Path(scratch)) as place:
        rows.append(measure_real_transactions(place, transactions))
    for records, fetched in ((1, 1), (100, 1), (100, 500)):
        rows.append(_measure_sequenced_map(records, fetched))
    rows.append(_measure_transaction_map(100))
    goals = []
    for row in rows:
        per_million = row["stays_mb"] * 1_000_000 / row["runs"]
        goals += [
            BenchGoal(f"{row['case']}: MB that stay in the ledger for 10⁶ runs", per_million, _MOST_STAYS_MB, "lower"),
            BenchGoal(f"{row['case']}: lookup p99, ms", row["p99_ms"], _MOST_LOOKUP_MS, "lower"),
            BenchGoal(f"{row['case']}: seconds to load", row["load_s"], _MOST_LOAD_S, "lower"),
        ]
    goals.append(BenchGoal("real: offsets that the map gets wrong", rows[0]["wrong"], 0, "lower"))
    return publish_results("offsets", rows, goals)


# -- real brokers ------------------------------------------------------------------------------------------------------


def measure_real_transactions(place: BenchClusters, transactions: int) -> OffsetsRow:
    """Produces transactions, copies them, and compares every record's offsets with the map, both ways."""
    with Admin(place.source) as admin:
        admin.create_topic(_TOPIC, 1)
    with WatershedContender(place).running(_TOPIC) as (_, prefix):
        _produce(place, transactions)
        offsets, load_s = _copied(place, f"{prefix}.{_TOPIC}")
        there = TopicPartition(f"{prefix}.{_TOPIC}", 0)
        with Admin(place.target) as admin:
            end = admin.offsets([there], "read_uncommitted")[there].end
            ledger = admin.offsets(
                (TopicPartition(LEDGER_TOPIC, slot) for slot in range(SLOT_COUNT)), "read_uncommitted"
            )
    todo = {key.partition: (span.start, span.end) for key, span in ledger.items() if span.start < span.end}
    counted = _CountedLedger()
    for message in read_messages(place.target, LEDGER_TOPIC, todo, 60):
        counted.count((message.key() or b"").decode(), message.value())
    wrong = sum(
        offsets.to_target(here, end) != at or offsets.to_source(at) != here
        for here, at in zip(_places(place, "source", _TOPIC), _places(place, "target", there.topic), strict=True)
    )
    row = _row(f"real, {transactions:,} transactions of 1 record", offsets, end, counted, load_s)
    return row | {"wrong": wrong}


def _produce(place: BenchClusters, transactions: int) -> None:
    """Several producers side by side, each one transaction after the other."""
    failures: list[BaseException] = []

    def some(count: int) -> None:
        try:
            producer = Producer(
                place.source.librdkafka({"transactional.id": str(uuid.uuid4()), "linger.ms": 0, "acks": "all"})
            )
            producer.init_transactions(60)
            for number in range(count):
                producer.begin_transaction()
                producer.produce(_TOPIC, b"%d" % number, partition=0)
                producer.commit_transaction(60)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=some, args=(transactions // _PRODUCERS,)) for _ in range(_PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _copied(place: BenchClusters, target_topic: str) -> tuple[OffsetMap, float]:
    """The map when everything is copied, and how long the last read of it took."""
    here, there = TopicPartition(_TOPIC, 0), TopicPartition(target_topic, 0)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with Admin(place.source) as source, Admin(place.target) as target:
            wanted = source.offsets([here])[here].end
            end = target.offsets([there], "read_uncommitted")[there].end
        started = time.perf_counter()
        copies = read_ledger(place.target).copies()
        took = time.perf_counter() - started
        for key, (offsets, _) in copies.items():
            if key.target_topic == target_topic and offsets.source_position(end) == wanted:
                return offsets, took
        time.sleep(0.5)
    raise TimeoutError("the topic was not copied within 300 s")


def _places(place: BenchClusters, side: str, topic: str) -> Iterator[int]:
    """The offsets of the committed records."""
    settings = place.source if side == "source" else place.target
    where = TopicPartition(topic, 0)
    with Admin(settings) as admin:
        span = admin.offsets([where])[where]
    for message in read_messages(settings, topic, {0: (span.start, span.end)}, 60):
        yield message.offset() or 0


# -- runs of the same shape, without brokers ---------------------------------------------------------------------------


@dataclass(slots=True)
class _CountedLedger:
    """A ledger that is only counted; `live` holds what compaction would leave."""

    live: dict[str, bytes] = field(default_factory=dict)
    written: int = 0
    records: int = 0

    def count(self, key: str, value: bytes | None) -> None:
        self.records += 1
        self.written += len(key) + len(value or b"")
        if value is None:
            self.live.pop(key, None)
        else:
            self.live[key] = value

    @property
    def stays(self) -> int:
        return sum(len(key) + len(value) for key, value in self.live.items())


class _CountingWriter:
    """Stands in for ControlWriter: everything is acknowledged at once."""

    def __init__(self, counted: _CountedLedger) -> None:
        self.counted = counted
        self.later: list[Callable[[], None]] = []

    def put_nowait(self, _topic: str, key: str, value: OffsetsRow | None, _partition: int, on_done: Any) -> None:
        self.counted.count(key, None if value is None else encode_control_value(value))
        on_done(None, self.counted.records)


def _measure_sequenced_map(largest: int, fetched: int) -> OffsetsRow:
    """Transactions of 1 to `largest` records; so many runs (`fetched`) come with one Fetch answer."""
    chance, counted = random.Random(1), _CountedLedger()  # noqa: S311
    writer = _CountingWriter(counted)
    template = LedgerBlock(
        _KEY, Generation(1, f"host-{uuid.uuid4()}"), 1, 0, ProducerIdentity(7, 0, 0), _SOURCE, _TARGET, ()
    )
    ledger = PartitionLedgerWriter(writer, template, lambda _: None, _raise, writer.later.append)  # type: ignore[arg-type]
    target = source = 0
    for _ in range(_RUNS // fetched):
        runs = []
        for _ in range(fetched):
            runs.append(OffsetRun(target, source))
            records = chance.randint(1, largest)
            target, source = target + records, source + records + 1
        ledger.append(runs)
        while writer.later:
            writer.later.pop(0)()
    offsets, load_s = _loaded(counted)
    return _row(f"made, 1 to {largest} records, {fetched} a fetch", offsets, target, counted, load_s)


def _measure_transaction_map(largest: int) -> OffsetsRow:
    """Merged with another writer's records: a stretch for every transaction, each of ours holds one of the source's."""
    chance, counted = random.Random(2), _CountedLedger()  # noqa: S311
    track = PositionTracker(PositionAndRuns(TransactionPosition(_KEY, _SOURCE, _TARGET, OffsetRun(0, 0), 0)))
    target = source = 0
    for _ in range(_RUNS):
        records = chance.randint(1, largest)
        for key, value in track.advance([ExplicitRun(target, source, records)], source + records + 1, 0):
            counted.count(key, None if value is None else encode_control_value(value))
        track.committed()
        target, source = target + records + chance.randint(1, 3), source + records + 1
    offsets, load_s = _loaded(counted)
    return _row(f"made, in transactions, 1 to {largest} records", offsets, target, counted, load_s)


def _loaded(counted: _CountedLedger) -> tuple[OffsetMap, float]:
    gc.collect()
    started = time.perf_counter()
    records = [ControlRecord(0, at, 0, key, json.loads(value)) for at, (key, value) in enumerate(counted.live.items())]
    offsets = build_ledger(records).map(_KEY.flow, _TOPIC, 0)
    return offsets, time.perf_counter() - started


def _raise(error: Exception) -> None:
    raise error


def _row(case: str, offsets: OffsetMap, end: int, counted: _CountedLedger, load_s: float) -> OffsetsRow:
    chance, position = random.Random(3), offsets.source_position(end)  # noqa: S311
    took: list[float] = []
    for _ in range(_LOOKUPS):
        source, target = chance.randrange(position), chance.randrange(end)
        started = time.perf_counter()
        offsets.to_target(source, end)
        half = time.perf_counter()
        offsets.to_source(target)
        took += [half - started, time.perf_counter() - half]
    cuts = statistics.quantiles(took, n=100)
    return {
        "case": case,
        "runs": len(offsets.runs),
        "written_mb": round(counted.written / 1e6, 2),
        "records": counted.records,
        "stays_mb": round(counted.stays / 1e6, 3),
        "stays_records": len(counted.live),
        "load_s": round(load_s, 2),
        "p50_ms": round(cuts[49] * 1e3, 4),
        "p99_ms": round(cuts[98] * 1e3, 4),
        "wrong": "",
    }


if __name__ == "__main__":
    sys.exit(main())
