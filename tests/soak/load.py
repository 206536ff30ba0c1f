"""What a soak writes and reads meanwhile: two writers at the source, one reader of the target, all in the history."""

from __future__ import annotations

import random
import threading
import time
from itertools import count as numbers
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.soak.history import History
from watershed.clusters.settings import ConnectionSettings

_NUMBERS = numbers()  # no two records of a run have the same
A_DAY_MS = 86_400_000


class Load:
    """Ends with `end`; `rate` in records a second a writer, `age_ms`: how old the records say they are."""

    def __init__(
        self,
        history: History,
        source: ConnectionSettings,
        target: ConnectionSettings,
        topic: str,
        chance: random.Random,
        rate: int = 600,
        age_ms: int = 0,
    ) -> None:
        self._history, self._topic, self._rate, self._age_ms = history, topic, rate, age_ms
        self._stop = threading.Event()
        self._failures: list[Exception] = []
        self.written = 0
        works = {
            "plain": (self._plain, (source,)),
            "transactions": (self._transactions, (source, random.Random(chance.random()))),
            "reader": (self._read, (target,)),
        }
        self._threads = [
            threading.Thread(target=self._run, args=work, name=name, daemon=True) for name, work in works.items()
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait until everybody is done. Raises what went wrong in a thread."""
        self._stop.set()
        for thread in self._threads:
            thread.join(320)
            assert not thread.is_alive(), f"{thread.name} never ended"
        if self._failures:
            raise self._failures[0]

    def _run(self, work: Any, arguments: tuple[Any, ...]) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001  raised again by `end`
            self._failures.append(error)

    def _plain(self, source: ConnectionSettings) -> None:
        """One idempotent producer, which tries for as long as a broker may be away."""
        sending = Producer(
            source.librdkafka(
                {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "delivery.timeout.ms": 300_000}
            )
        )
        while not self._stop.wait(0.25):
            sent, acked = self._put(sending, "plain", max(1, self._rate // 4))
            if sending.flush(310) == 0 and len(acked) == len(sent):
                self._told("plain", "ok", {"acked": acked})
            else:
                self._told("plain", "info", {"sent": sent})

    def _transactions(self, source: ConnectionSettings, chance: random.Random) -> None:
        """Small transactions, one in three aborted. After an unclear end a new producer (Jepsen's advice), whose
        start also ends what the old one left open: so the last one of all must have a clear end."""
        sending: Producer | None = None
        while not self._stop.wait(0.5) or sending is None:
            sent: list[int] = []
            acked: list[tuple[int, int, int]] = []
            try:
                if sending is None:
                    sending = Producer(source.librdkafka({"transactional.id": f"soak-{self._topic}", "linger.ms": 0}))
                    sending.init_transactions(60)
                sending.begin_transaction()
                sent, acked = self._put(sending, "transactions", chance.randrange(1, 40))
                sending.flush(60)
                if chance.random() < 1 / 3:
                    sending.abort_transaction(60)
                    self._told("transactions", "fail", {"sent": sent})
                else:
                    sending.commit_transaction(60)
                    self._told("transactions", "ok", {"acked": acked})
            except KafkaException as error:
                self._told("transactions", "info", {"sent": sent, "error": str(error)})
                sending = None

    def _put(self, sending: Producer, who: str, count: int) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Records with a number each as their key. Returns the numbers, and where they landed (filled in later)."""
        sent = [next(_NUMBERS) for _ in range(count)]
        acked: list[tuple[int, int, int]] = []

        def landed(number: int, error: KafkaError | None, message: Any) -> None:
            if error is None:
                acked.append((message.partition(), message.offset(), number))

        self._told(who, "invoke", {"sent": sent})
        time_ms = int(time.time() * 1000) - self._age_ms
        for number in sent:
            value = None if number % 97 == 0 else b"v" * (number % 300)
            sending.produce(
                self._topic,
                value,
                key=b"%d" % number,
                headers=[("n", b"%d" % number), ("null", None)] if number % 5 == 0 else None,
                timestamp=time_ms,
                on_delivery=lambda error, message, number=number: landed(number, error, message),
            )
        self.written += count
        return sent, acked

    def _told(self, who: str, kind: str, value: dict[str, Any]) -> None:
        self._history.add(who, kind, "send", {"topic": self._topic} | value)

    def _read(self, target: ConnectionSettings) -> None:
        """Reads the copy as an application would, from its start, new partitions too."""
        reading = Consumer(
            target.librdkafka(
                {
                    "group.id": "soak-reader",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "topic.metadata.refresh.interval.ms": 5_000,
                }
            )
        )
        known: set[int] = set()
        look_again = 0.0
        try:
            while not self._stop.is_set():
                if time.monotonic() >= look_again:
                    look_again = time.monotonic() + 5
                    there = self._partitions(reading)
                    if fresh := there - known:
                        known |= fresh
                        reading.incremental_assign([TopicPartition(self._topic, number, 0) for number in fresh])
                messages = reading.consume(2_000, timeout=0.5)
                read = [
                    (message.partition(), message.offset(), int(message.key() or b"-1"))
                    for message in messages
                    if message.error() is None
                ]
                if read:
                    self._history.add("reader", "ok", "poll", {"topic": self._topic, "read": read})
        finally:
            reading.close()

    def _partitions(self, reading: Consumer) -> set[int]:
        try:
            described = reading.list_topics(self._topic, timeout=5).topics[self._topic]
        except KafkaException:
            return set()
        return set() if described.error else set(described.partitions)
