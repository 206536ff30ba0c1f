"""How much later a record arrives behind a copy than before it, at 1,000 records a second.

One process produces at an even pace (linger 0, the number of the record in its value) and consumes both the source
and the target topic. Added latency of a record: arrival from the target minus arrival from the source, so that
producing and consuming, which cost the same on both sides, fall out.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from watershed.bench.bench_clusters import BenchClusters
from watershed.bench.results import choose_size
from watershed.bench.workload import COPY_BENCH_PARTITIONS
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings

_A_SECOND = 1_000
_SIZE = 100
_WARM_UP_S = choose_size(3.0, 0.5)
_NUMBER = struct.Struct(">qq")  # which measurement, and which record of it
_NEVER = 0


@dataclass(frozen=True, slots=True)
class AddedLatency:
    """Milliseconds added to `records` records, longest of all; `lost` never arrived at the target within the time they
    had."""

    records: int
    lost: int
    p50: float
    p99: float
    p999: float
    longest: float
    cpu_s_per_million: float


def measure_added_latency(
    place: BenchClusters,
    source_topic: str,
    target_topic: str,
    seconds: float,
    cpu: Callable[[], float],
    busy: Callable[[], bool],
) -> AddedLatency:
    """Measure while the copy of `source_topic` runs; `busy` says whether the conditions of the measurement hold."""
    count = int((_WARM_UP_S + seconds) * _A_SECOND)
    arrivals = [[_NEVER] * count for _ in range(2)]
    ending = threading.Event()
    run = time.monotonic_ns()
    sides = ((place.source, source_topic), (place.target, target_topic))
    readers = [
        threading.Thread(target=_read, args=(settings, topic, run, seen, ending))
        for (settings, topic), seen in zip(sides, arrivals, strict=True)
    ]
    for reader in readers:
        reader.start()
    spent = 0.0
    usable = count
    producer = Producer(place.source.librdkafka({"linger.ms": 0, "acks": "all"}))
    begin = time.monotonic() + 1.0
    skip = int(_WARM_UP_S * _A_SECOND)
    for number in range(count):
        wait = begin + number / _A_SECOND - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        if number == skip:
            spent = cpu()
        if number % _A_SECOND == 0 and not busy():
            usable = number
            break
        producer.produce(
            source_topic,
            _NUMBER.pack(run, number) + b"." * (_SIZE - _NUMBER.size),
            partition=number % COPY_BENCH_PARTITIONS,
        )
        producer.poll(0)
    spent = cpu() - spent
    producer.flush(10)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and _NEVER in arrivals[1][:usable]:
        time.sleep(0.05)
    ending.set()
    for reader in readers:
        reader.join()
    if usable <= skip + _A_SECOND:
        raise RuntimeError(f"only {usable / _A_SECOND:.0f} s under load: load more, or measure less long")
    pairs = list(zip(*(seen[skip:usable] for seen in arrivals), strict=True))
    late = sorted((there - here) / 1e6 for here, there in pairs if here != _NEVER and there != _NEVER)
    if not late:
        raise RuntimeError(f"no record of {source_topic} arrived in {target_topic}")
    return AddedLatency(
        records=len(late),
        lost=len(pairs) - len(late),
        p50=_quantile(late, 0.5),
        p99=_quantile(late, 0.99),
        p999=_quantile(late, 0.999),
        longest=late[-1],
        cpu_s_per_million=spent / (usable - skip) * 1e6,
    )


def wait_for_topic(settings: ConnectionSettings, topic: str, patience_s: float = 60.0) -> None:
    """Until the copy has created its topic."""
    deadline = time.monotonic() + patience_s
    with Admin(settings) as admin:
        while admin.topic(topic) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was not created within {patience_s:.0f} s")
            time.sleep(0.1)


def _read(settings: ConnectionSettings, topic: str, run: int, seen: list[int], ending: threading.Event) -> None:
    consumer = Consumer(
        settings.librdkafka({"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"})
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(COPY_BENCH_PARTITIONS)])
    while not ending.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            raise RuntimeError(f"{topic}: {message.error()}")
        now = time.monotonic_ns()
        of, number = _NUMBER.unpack_from(message.value() or b"", 0)
        if of == run:
            seen[number] = now
    consumer.close()


def _quantile(ordered: list[float], share: float) -> float:
    """Nearest rank."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
