"""Sample consumer group: processes each record once, and keeps a record of every processed one.

`python -m watershed.lab.billing_consumer --help`. Control endpoint: lab/control_endpoint.py. Records:
lab/application_records.py.
Offsets are committed by hand, after the records were written down. `auto.offset.reset` is `error`: at a cluster
where somebody forgot the group's offsets it stops and says so. Only the very first client of an empty
directory commits the start offsets of its topics (--first earliest).
"""

from __future__ import annotations

import threading
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from watershed.lab.application_records import ApplicationRecord, ApplicationRecordFile, write_application_description
from watershed.lab.control_endpoint import (
    ClientAddress,
    add_application_options,
    parse_client_address,
    serve_control_endpoint,
)
from watershed.lab.errors import LabError
from watershed.lab.record_values import decode_numbered_value

_COMMIT_S = 0.5
_SESSION_MS = 45_000  # the default of librdkafka
_CLOSE_COMMIT_S = 30.0
_Positions = dict[tuple[str, int], int]


class _BillingConsumer:
    """The application; `run` is one client's life."""

    role = "consumer"

    def __init__(
        self,
        name: str,
        directory: Path,
        group: str,
        topics: tuple[str, ...],
        isolation: str,
        first: str,
        session_ms: int = _SESSION_MS,
    ) -> None:
        self._session_ms = session_ms
        self.name = name
        self._group = group
        self._topics = topics
        self._isolation = isolation
        self._records = ApplicationRecordFile(directory)
        self._begun = directory / "begun"
        if first == "none":
            self._begun.touch()

    def counts(self) -> dict[str, int]:
        return {"processed": self._records.count}

    def run(self, place: ClientAddress, stopping: threading.Event) -> None:
        """Raises LabError: no committed offset, a topic is missing."""
        consumer = Consumer(self._configuration(place))
        try:
            if not self._begun.exists():
                self._commit_start(consumer, place, stopping)
                self._begun.touch()
            self._consume(consumer, place, stopping)
        finally:
            consumer.close()

    def _consume(self, consumer: Consumer, place: ClientAddress, stopping: threading.Event) -> None:
        positions: _Positions = {}  # processed, written down, not yet committed

        def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
            _commit(consumer, _taken(positions, partitions))

        def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
            _taken(positions, partitions)

        consumer.subscribe(list(self._topics), on_revoke=revoked, on_lost=lost)
        committed = time.monotonic()
        while not stopping.is_set():
            for message in consumer.consume(2000, 0.1):
                if message.error() is not None:
                    self._judge(message, place)
                    continue
                self._process(message, place)
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None  # none of the three is, in a message without an error
                assert partition is not None
                assert offset is not None
                positions[topic, partition] = offset + 1
            self._records.flush()
            if positions and time.monotonic() - committed > _COMMIT_S:
                if _commit(consumer, positions):
                    positions.clear()
                committed = time.monotonic()
        deadline = time.monotonic() + _CLOSE_COMMIT_S
        while positions and not _commit(consumer, positions):
            if time.monotonic() > deadline:
                raise LabError(f"group {self._group} could not commit its last offsets at {place.cluster}")
            time.sleep(0.1)

    def _process(self, message: Any, place: ClientAddress) -> None:
        try:
            value = decode_numbered_value(message.value())
        except ValueError as error:  # somebody else's, and of no account
            where = f"{message.topic()}[{message.partition()}]@{message.offset()}"
            click.echo(f"{self.name}: {where} at {place.cluster} is passed over: {error}", err=True)
            return
        at = (message.topic(), message.partition(), message.offset(), place.cluster)
        self._records.add(ApplicationRecord(*value, *at, int(time.time() * 1000)))

    def _judge(self, message: Any, place: ClientAddress) -> None:
        """Raises LabError for errors that waiting does not heal."""
        error = message.error()
        where = f"{message.topic()}[{message.partition()}] at {place.cluster}"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise LabError(f"group {self._group} has no usable offset for {where}: {error.str()}")
        if error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise LabError(f"group {self._group} cannot read {where}: {error.str()}")
        click.echo(f"{self.name}: {where}: {error.str()}", err=True)

    def _commit_start(self, consumer: Consumer, place: ClientAddress, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                there = consumer.list_topics(timeout=5).topics
                missing = [topic for topic in self._topics if topic not in there]
                if missing:
                    raise LabError(f"cluster {place.cluster} has no topic {', '.join(missing)}; create it first")
                partitions = [TopicPartition(topic, each) for topic in self._topics for each in there[topic].partitions]
                known = consumer.committed(partitions, timeout=10)
                fresh = [
                    TopicPartition(each.topic, each.partition, consumer.get_watermark_offsets(each, timeout=10)[0])
                    for each in known
                    if each.offset < 0
                ]
                if fresh:
                    consumer.commit(offsets=fresh, asynchronous=False)
                return
            except KafkaException as error:
                click.echo(f"{self.name}: {error.args[0].str()}", err=True)
                time.sleep(0.2)

    def _configuration(self, place: ClientAddress) -> dict[str, Any]:
        return {
            "bootstrap.servers": place.bootstrap,
            "client.id": self.name,
            "group.id": self._group,
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": self._isolation,
            "queued.max.messages.kbytes": 32768,
            "session.timeout.ms": self._session_ms,
            "reconnect.backoff.max.ms": 1000,
        }


def _taken(positions: _Positions, partitions: list[TopicPartition]) -> _Positions:
    keys = [(each.topic, each.partition) for each in partitions]
    return {key: positions.pop(key) for key in keys if key in positions}


def _commit(consumer: Consumer, positions: _Positions) -> bool:
    """Commits for good; False when it should be tried again (coordinator away, rebalance under way)."""
    if not positions:
        return True
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
    try:
        answer = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        click.echo(f"commit: {error.args[0].str()}", err=True)
        return False
    return all(each.error is None for each in answer)


def main(argv: list[str] | None = None) -> None:
    """Runs the sample consumer until it is told to end (SIGTERM)."""
    parser = ArgumentParser(
        prog="python -m watershed.lab.billing_consumer", description="Sample consumer with a control endpoint."
    )
    add_application_options(parser)
    parser.add_argument("--group", help="consumer group; default: the name")
    parser.add_argument("--topics", required=True, help="comma-separated")
    parser.add_argument("--isolation", default="read_committed", choices=["read_committed", "read_uncommitted"])
    parser.add_argument(
        "--first",
        default="earliest",
        choices=["earliest", "none"],
        help="the very first client commits the start offsets where the group has none; none: it never does",
    )
    parser.add_argument("--session-ms", type=int, default=_SESSION_MS, help="until a client that died is forgotten")
    options = parser.parse_args(argv)
    try:
        place = parse_client_address(options)
    except LabError as error:
        parser.error(str(error))
    group = options.group or options.name
    topics = tuple(options.topics.split(","))
    about = {"name": options.name, "role": _BillingConsumer.role, "topics": topics, "group": group}
    write_application_description(options.directory, about)
    billing = _BillingConsumer(
        options.name, options.directory, group, topics, options.isolation, options.first, options.session_ms
    )
    serve_control_endpoint(billing, options, place)


if __name__ == "__main__":
    main()
