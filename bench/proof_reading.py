"""Measures what it costs to read a topic, each reader in its own process: the proof's reader in both ways, and a plain
consumer.

    python -m watershed.bench.proof_reading digests|fingerprints|plain ADDRESS TOPIC

prints the cost as JSON: records, bytes as stored (for plain: keys and values), seconds, CPU seconds, peak MiB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import click

from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import LATEST

_KINDS = ("digests", "fingerprints", "plain")


@dataclass(frozen=True, slots=True)
class ReadingCost:
    """What one reader needs to read one whole topic."""

    records: int
    bytes: int
    seconds: float
    cpu_s: float
    peak_mib: float


def measure_reading(kind: str, settings: ConnectionSettings, topic: str) -> ReadingCost:
    """Runs one reader in its own process and waits for its result."""
    command = [sys.executable, "-m", "watershed.bench.proof_reading", kind, settings.bootstrap[0], topic]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind} of {topic} ended with {done.returncode}: {done.stderr[-800:]}")
    return ReadingCost(**json.loads(done.stdout))


def _proof(kind: str, settings: ConnectionSettings, topic: str) -> tuple[int, int]:
    from watershed.spark.reading.fetch_answers import PartitionAddress
    from watershed.spark.reading.offset_range import OffsetRange
    from watershed.spark.reading.range_reader import read_batch_digests, read_fingerprints

    with closing(open_connection(settings)) as link:
        [found] = link.metadata((topic,)).topics
        ends = {
            each.partition: link.list_offsets(((topic, each.partition),), LATEST)[0].offset for each in found.partitions
        }
    records = size = 0
    for partition, end in ends.items():
        address = PartitionAddress(settings, topic, found.topic_id, partition)
        if kind == "digests":
            for block in read_batch_digests(address, OffsetRange(0, end)):
                records, size = records + int(block.count.sum()), size + int(block.size.sum())
        else:
            for prints in read_fingerprints(address, OffsetRange(0, end)):
                records, size = records + len(prints), size + int(prints.size.sum())
    return records, size


def _plain(settings: ConnectionSettings, topic: str) -> tuple[int, int]:
    """A plain consumer in the fastest way of confluent-kafka: many messages a call. It verifies checksums, too."""
    from confluent_kafka import Consumer, TopicPartition

    more: dict[str, Any] = {"group.id": "bench", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer(settings.librdkafka(more | {"auto.offset.reset": "error", "fetch.queue.backoff.ms": 0}))
    partitions = [TopicPartition(topic, each, 0) for each in consumer.list_topics(topic, 10).topics[topic].partitions]
    wanted = sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions)
    consumer.assign(partitions)
    records = size = 0
    while records < wanted:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            records += 1
            size += len(message.value() or b"") + len(message.key() or b"")
    consumer.close()
    return records, size


def main() -> None:
    """Reads one topic and prints its cost as JSON."""
    kind, address, topic = sys.argv[1:]
    settings = ConnectionSettings("bench", (address,))
    if kind != "plain":
        import watershed.spark.reading.range_reader  # noqa: F401  imported here, so that the import is not measured
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    records, size = _plain(settings, topic) if kind == "plain" else _proof(kind, settings, topic)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = after.ru_maxrss / 1024
    click.echo(json.dumps(asdict(ReadingCost(records, size, seconds, cpu, peak))))


if __name__ == "__main__":
    main()
