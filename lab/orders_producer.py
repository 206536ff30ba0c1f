"""Sample producer: writes orders without a pause, and keeps a record of every acknowledged one.

`python -m watershed.lab.orders_producer --help`. Control endpoint: lab/control_endpoint.py. Records:
lab/application_records.py.
Idempotent, acks=all. With --transactional-id small transactions, every so many of them aborted on purpose; only
committed records count as acknowledged, an aborted transaction's numbers are used again.
"""

from __future__ import annotations

import threading
import time
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from watershed.lab.application_records import (
    ApplicationRecord,
    ApplicationRecordFile,
    read_application_records,
    write_application_description,
)
from watershed.lab.control_endpoint import (
    ClientAddress,
    add_application_options,
    parse_client_address,
    serve_control_endpoint,
)
from watershed.lab.errors import LabError
from watershed.lab.record_values import MAX_TOPIC_KEYS, encode_key, encode_numbered_value

_FLUSH_S = 30.0
_IN_FLIGHT = 10_000  # most records that may be sent and not yet acknowledged
_Series = tuple[str, int]  # topic, key


@dataclass(frozen=True, slots=True)
class _OrdersSettings:
    """What is written and how. `rate` in records a second over all topics; `value_bytes` about."""

    topics: tuple[str, ...]
    rate: float = 100.0
    keys: int = 50
    compression: str = "none"
    value_bytes: int = 120
    transactional_id: str | None = None
    transaction_records: int = 20
    abort_every: int = 5


class _OrdersProducer:
    """The application; `run` is one client's life. Numbers go on from what the directory holds."""

    role = "producer"

    def __init__(self, name: str, directory: Path, settings: _OrdersSettings) -> None:
        self.name = name
        self._settings = settings
        self._records = ApplicationRecordFile(directory)
        self._numbers: dict[_Series, int] = {}
        for record in read_application_records(directory):
            self._numbers[record.origin, record.key] = record.number
        self._failed = 0
        self._turn = 0
        # Left by a run that did not end in order: numbers that it sent and never saw acknowledged are not reused.
        self._open = directory / "open"
        if self._open.exists():
            series = [(topic, key) for topic in settings.topics for key in range(settings.keys)]
            self._numbers |= {each: self._numbers.get(each, 0) + _IN_FLIGHT for each in series}

    def counts(self) -> dict[str, int]:
        return {"acked": self._records.count, "failed": self._failed}

    def run(self, place: ClientAddress, stopping: threading.Event) -> None:
        """Raises LabError: a topic is missing, the producer was fenced."""
        producer = Producer(self._configuration(place))
        if not self._topics_there(producer, place, stopping):
            return
        self._open.touch()
        if self._settings.transactional_id:
            self._transactions(producer, place, stopping)
        else:
            self._stream(producer, place, stopping)
        self._records.flush()
        self._open.unlink(missing_ok=True)

    def _stream(self, producer: Producer, place: ClientAddress, stopping: threading.Event) -> None:
        pace = _OrdersPace(self._settings.rate)
        while not stopping.is_set():
            for _ in range(pace.due()):
                self._send(producer, self._next(), self._records.add, place)
            producer.poll(0.01)
            self._records.flush()
        left = producer.flush(_FLUSH_S)
        if left:
            producer.purge()
            producer.flush(1)

    def _transactions(self, producer: Producer, place: ClientAddress, stopping: threading.Event) -> None:
        _persist(lambda: producer.init_transactions(30), stopping)
        pace = _OrdersPace(self._settings.rate)
        number = 0
        while not stopping.is_set():
            number += 1
            sent: list[_Series] = []
            delivered: list[ApplicationRecord] = []
            began = time.monotonic()
            producer.begin_transaction()
            while len(sent) < self._settings.transaction_records and time.monotonic() - began < 1.0:
                for _ in range(min(pace.due(), self._settings.transaction_records - len(sent))):
                    series = self._next()
                    sent.append(series)
                    self._send(producer, series, delivered.append, place)
                producer.poll(0.01)
                if stopping.is_set():
                    break
            give_up = self._settings.abort_every and number % self._settings.abort_every == 0
            if give_up:
                producer.flush(5)  # so that aborted records really are in the log
            if give_up or not self._commit(producer):
                _persist(lambda: producer.abort_transaction(30))
                for series in sent:
                    self._numbers[series] -= 1
                continue
            now = int(time.time() * 1000)
            for record in delivered:
                self._records.add(record._replace(time_ms=now))
            self._records.flush()
        producer.flush(_FLUSH_S)

    def _commit(self, producer: Producer) -> bool:
        """False: the transaction must be aborted."""
        try:
            _persist(lambda: producer.commit_transaction(30))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return False
            raise LabError(f"transaction of {self.name} failed: {error.args[0].str()}") from error
        return True

    def _send(self, producer: Producer, series: _Series, acked: Any, place: ClientAddress) -> None:
        topic, key = series
        number = self._numbers[series] = self._numbers.get(series, 0) + 1
        value = encode_numbered_value(
            self.name, topic, key, number, int(time.time() * 1000), self._settings.value_bytes
        )

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._failed += 1
                return
            now = int(time.time() * 1000)
            at = (topic, message.partition(), message.offset(), place.cluster)
            acked(ApplicationRecord(self.name, topic, key, number, *at, now))

        while True:
            try:
                producer.produce(topic, value, encode_key(key), on_delivery=delivered)
                return
            except BufferError:
                producer.poll(0.05)

    def _next(self) -> _Series:
        self._turn += 1
        topics = self._settings.topics
        return topics[self._turn % len(topics)], self._turn // len(topics) % self._settings.keys

    def _topics_there(self, producer: Producer, place: ClientAddress, stopping: threading.Event) -> bool:
        while not stopping.is_set():
            try:
                there = producer.list_topics(timeout=5).topics
            except KafkaException:
                continue  # the cluster does not answer yet
            missing = [topic for topic in self._settings.topics if topic not in there]
            if missing:
                raise LabError(f"cluster {place.cluster} has no topic {', '.join(missing)}; create it first")
            return True
        return False

    def _configuration(self, place: ClientAddress) -> dict[str, Any]:
        transactional = self._settings.transactional_id
        return {
            "bootstrap.servers": place.bootstrap,
            "client.id": self.name,
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "consistent",
            "compression.type": self._settings.compression,
            "linger.ms": 5,
            "queue.buffering.max.messages": _IN_FLIGHT,
            "reconnect.backoff.max.ms": 1000,
            **({"transactional.id": transactional} if transactional else {}),
        }


class _OrdersPace:
    """How many records are due; what could not be sent in the last second is not made up for."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._sent = 0

    def due(self) -> int:
        owed = int((time.monotonic() - self._began) * self._rate) - self._sent
        if owed > self._rate + 1:
            self._began, self._sent, owed = time.monotonic(), 0, 1
        self._sent += owed
        return owed


def _persist(action: Any, stopping: threading.Event | None = None) -> None:
    """Repeats what the client says may be repeated (a coordinator that restarts), for at most two minutes."""
    deadline = time.monotonic() + 120
    while True:
        try:
            action()
            return
        except KafkaException as error:
            over = time.monotonic() > deadline or (stopping is not None and stopping.is_set())
            if not error.args[0].retriable() or over:
                raise
            time.sleep(0.1)


def main(argv: list[str] | None = None) -> None:
    """Runs the sample producer until it is told to end (SIGTERM)."""
    parser = ArgumentParser(
        prog="python -m watershed.lab.orders_producer", description="Sample producer with a control endpoint."
    )
    add_application_options(parser)
    parser.add_argument("--topics", required=True, help="comma-separated")
    parser.add_argument("--rate", type=float, default=100.0, help="records a second over all topics")
    parser.add_argument("--keys", type=int, default=50, help="number of keys of each topic")
    parser.add_argument("--compression", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--value-bytes", type=int, default=120)
    parser.add_argument("--transactional-id", help="write small transactions under this id")
    parser.add_argument("--transaction-records", type=int, default=20, help="records of a transaction")
    parser.add_argument("--abort-every", type=int, default=5, help="abort every n-th transaction; 0: none")
    options = parser.parse_args(argv)
    if not 1 <= options.keys <= MAX_TOPIC_KEYS:
        parser.error(f"--keys {options.keys}: there must be 1 to {MAX_TOPIC_KEYS}")
    settings = _OrdersSettings(
        tuple(options.topics.split(",")),
        options.rate,
        options.keys,
        options.compression,
        options.value_bytes,
        options.transactional_id,
        options.transaction_records,
        options.abort_every,
    )
    try:
        place = parse_client_address(options)
    except LabError as error:
        parser.error(str(error))
    about = {"name": options.name, "role": _OrdersProducer.role, "topics": settings.topics, "group": None}
    write_application_description(options.directory, about)
    serve_control_endpoint(_OrdersProducer(options.name, options.directory, settings), options, place)


if __name__ == "__main__":
    main()
