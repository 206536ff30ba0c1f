"""Preload: writes a topic full of numbered records, as fast as one core allows, and accounts for them in short.

`python -m watershed.lab.preload --help`. Instead of an entry a record, `<directory>/<topic>.load.json` holds the count
of each
partition and the last number of each key: written only when everything is acknowledged (or committed). Loading again
into the same directory goes on from there.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from watershed.lab.application_records import read_application_description, write_application_description
from watershed.lab.errors import LabError
from watershed.lab.record_values import MAX_TOPIC_KEYS, choose_partition, encode_key, encode_numbered_value

_TRANSACTION = 20_000  # records of a preload's transaction
_FLUSH_S = 120.0


@dataclass(frozen=True, slots=True)
class PreloadAccount:
    """What one topic got from one preload application: `counts` by partition, `last` number by key."""

    app: str
    topic: str
    cluster: str
    counts: dict[int, int] = field(default_factory=dict)
    last: list[int] = field(default_factory=list)
    began_ms: int = 0
    ended_ms: int = 0

    @property
    def records(self) -> int:
        """Records written by all loads into this topic."""
        return sum(self.counts.values())


def preload_topic(
    directory: Path,
    app: str,
    cluster: str,
    bootstrap: str,
    topic: str,
    records: int,
    keys: int = 1000,
    compression: str = "none",
    value_bytes: int = 120,
    transactional_id: str | None = None,
) -> PreloadAccount:
    """Writes `records` records, round robin over the keys; returns the account of all loads so far.

    In transactions when there is a transactional id, the last but one of which is aborted first and then written
    again. Raises LabError when not everything was acknowledged; then nothing is accounted for.
    """
    if not 1 <= keys <= MAX_TOPIC_KEYS:
        raise LabError(f"{keys} keys: there must be 1 to {MAX_TOPIC_KEYS}")
    producer = Producer(_configuration(bootstrap, app, compression, transactional_id), logger=None)
    partitions = _partitions(producer, topic, cluster)
    before = read_preload(directory, topic) or PreloadAccount(app, topic, cluster)
    last = before.last + [0] * (keys - len(before.last))
    began = int(time.time() * 1000)
    targets = [(encode_key(key), choose_partition(key, partitions)) for key in range(keys)]
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:  # called for failures only: see the configuration
        if error is not None:
            failures.append(error.str())

    def write(first: int, count: int) -> None:
        now = int(time.time() * 1000)
        for index in range(first, first + count):
            key = index % keys
            value = encode_numbered_value(app, topic, key, last[key] + index // keys + 1, now, value_bytes)
            key_value, partition = targets[key]
            _produce_patiently(producer, topic, value, key_value, partition, delivered)
            if index % 5000 == 0:
                now = int(time.time() * 1000)
                producer.poll(0)

    if transactional_id:
        try:
            _in_transactions(producer, records, write)
        except KafkaException as error:
            why = error.args[0].str()
            raise LabError(f"transactions for {topic} at {cluster} failed: {why}") from None
    else:
        write(0, records)
    _require_acknowledged(producer.flush(_FLUSH_S), failures, f"{topic} at {cluster}")
    counts = {partition: before.counts.get(partition, 0) for partition in range(partitions)}
    for key, (_, partition) in enumerate(targets):
        wrote = len(range(key, records, keys))
        last[key] += wrote
        counts[partition] += wrote
    done = PreloadAccount(app, topic, cluster, counts, last, before.began_ms or began, int(time.time() * 1000))
    _write(directory, done)
    return done


def _produce_patiently(producer: Producer, topic: str, value: bytes, key: bytes, partition: int, on_done: Any) -> None:
    """Waits while the producer's queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=on_done)
            return
        except BufferError:
            producer.poll(0.02)


def _require_acknowledged(left: int, failures: Sequence[str], where: str) -> None:
    if left or failures:
        why = failures[0] if failures else f"not acknowledged in {_FLUSH_S:.0f} s"
        raise LabError(f"{left or len(failures)} records for {where} were not written: {why}")


def read_preload(directory: Path, topic: str) -> PreloadAccount | None:
    """The account of one topic's preload, if there was one."""
    path = directory / f"{topic}.load.json"
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    return PreloadAccount(**{**value, "counts": {int(key): count for key, count in value["counts"].items()}})


def list_preloads(directory: Path) -> Iterator[PreloadAccount]:
    """All preloads that the directory accounts for."""
    for path in sorted(directory.glob("*.load.json")):
        if found := read_preload(directory, path.name.removesuffix(".load.json")):
            yield found


def create_lab_topics(
    bootstrap: str, topics: list[str], partitions: int, configs: dict[str, str] | None = None
) -> None:
    """Creates those that are not there yet. Raises LabError.

    Their replicas are as many as by the lab's `default.replication.factor`, for which a broker before Kafka 2.4 cannot
    be asked (KIP-464).
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    there = admin.list_topics(timeout=10)
    copies = min(3, len(there.brokers))
    wanted = [
        NewTopic(topic, partitions, copies, config=configs or {}) for topic in topics if topic not in there.topics
    ]
    for topic, future in (admin.create_topics(wanted) if wanted else {}).items():
        try:
            future.result(30)
        except KafkaException as error:
            raise LabError(f"topic {topic} was not created: {error.args[0].str()}") from None


def _in_transactions(producer: Producer, records: int, write: Callable[[int, int], None]) -> None:
    producer.init_transactions(60)
    starts = range(0, records, _TRANSACTION)
    for turn, start in enumerate(starts):
        count = min(_TRANSACTION, records - start)
        if turn == len(starts) - 2:
            producer.begin_transaction()
            write(start, count)
            producer.flush(_FLUSH_S)
            producer.abort_transaction(60)
        producer.begin_transaction()
        write(start, count)
        producer.commit_transaction(120)


def _partitions(producer: Producer, topic: str, cluster: str) -> int:
    try:
        found = producer.list_topics(timeout=10).topics.get(topic)
    except KafkaException as error:
        raise LabError(f"cluster {cluster} does not answer: {error.args[0].str()}") from None
    if found is None:
        raise LabError(f"cluster {cluster} has no topic {topic}; create it first (--partitions N does)")
    return len(found.partitions)


def _write(directory: Path, done: PreloadAccount) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    topics = {each.topic for each in list_preloads(directory)} | {done.topic}
    path = directory / f"{done.topic}.load.json"
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(done)))
    scratch.replace(path)
    if (directory / "app.json").exists():
        topics |= set(read_application_description(directory)["topics"])
    write_application_description(
        directory, {"name": done.app, "role": "producer", "topics": sorted(topics), "group": None}
    )


def _configuration(bootstrap: str, app: str, compression: str, transactional_id: str | None) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": app,
        "acks": "all",
        "enable.idempotence": True,
        "delivery.report.only.error": True,
        "compression.type": compression,
        "linger.ms": 20,
        "batch.size": 262_144,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 131_072,
        "log_level": 3,
        **({"transactional.id": transactional_id} if transactional_id else {}),
    }


def main(argv: list[str] | None = None) -> None:
    """Loads one topic and prints how many records it holds by now."""
    parser = ArgumentParser(prog="python -m watershed.lab.preload", description="Fills a topic with numbered records.")
    parser.add_argument("--directory", type=Path, required=True, help="where the account is kept")
    parser.add_argument("--name", default="history", help="the application in the values")
    parser.add_argument("--cluster", required=True, help="alias of the cluster, for the account")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--partitions", type=int, help="create the topic with so many when it is not there")
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--compression", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--value-bytes", type=int, default=120)
    parser.add_argument("--transactional-id", help="write transactions, one of them aborted and repeated")
    options = parser.parse_args(argv)
    began = time.monotonic()
    try:
        if options.partitions:
            create_lab_topics(options.bootstrap, [options.topic], options.partitions)
        done = preload_topic(
            options.directory,
            options.name,
            options.cluster,
            options.bootstrap,
            options.topic,
            options.records,
            options.keys,
            options.compression,
            options.value_bytes,
            options.transactional_id,
        )
    except LabError as error:
        sys.exit(f"watershed.lab.preload: {error}")
    seconds = time.monotonic() - began
    rate = options.records / seconds
    click.echo(f"{options.topic}: {options.records} records in {seconds:.1f} s ({rate:.0f}/s), {done.records} in all")


if __name__ == "__main__":
    main()
