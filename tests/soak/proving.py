"""Live traffic for the soak of the proof: nothing of it must ever be called different.

Topics, each with its copy by a real worker:

plain       several producers and codecs, headers, nulls
exactly     transactions, one in three aborted, two at a time
short       retention works on both sides all the time: small segments, few bytes, each side for itself
compacted   the cleaner works on both sides all the time, each for itself
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import count

from confluent_kafka import KafkaException, Producer

from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings

PARTITIONS = 2
RETENTION = {"segment.bytes": "1048576", "retention.bytes": "1572864", "retention.ms": "60000"}
CLEANER = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
    "max.compaction.lag.ms": "2000",
}
TOPICS: dict[str, dict[str, str]] = {"plain": {}, "exactly": {}, "short": RETENTION, "compacted": CLEANER}


def topics_of(name: str) -> dict[str, str]:
    """Kind → topic."""
    return {kind: f"{name}-{kind}" for kind in TOPICS}


def create_sources(settings: ConnectionSettings, name: str) -> None:
    with Admin(settings) as admin:
        for kind, topic in topics_of(name).items():
            admin.create_topic(topic, PARTITIONS, 1, TOPICS[kind])


class Traffic:
    """Writes to all topics until `end`."""

    def __init__(self, settings: ConnectionSettings, name: str, chance: random.Random) -> None:
        self._settings, self._topics = settings, topics_of(name)
        self._stop = threading.Event()
        self._failures: list[Exception] = []
        self.written = count()
        works: list[Callable[[random.Random], None]] = [
            self._plain("lz4"),
            self._plain("zstd"),
            self._plain("none"),
            self._transactions,
            self._short,
            self._compacted,
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(work, random.Random(chance.random())), daemon=True)
            for work in works
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> int:
        """Waits for the writers, and answers how many records they wrote. Raises what went wrong in one."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a writer never ended"
        self.alive()
        return next(self.written)

    def alive(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _run(self, work: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            work(chance)
        except Exception as error:  # noqa: BLE001  raised again by `alive`
            self._failures.append(error)

    def _plain(self, codec: str) -> Callable[[random.Random], None]:
        def work(chance: random.Random) -> None:
            sending = self._producer({"compression.type": codec, "enable.idempotence": codec != "none"})
            while not self._stop.wait(0.2):
                self._put(sending, self._topics["plain"], chance, chance.randrange(20, 120))
                sending.flush(30)

        return work

    def _transactions(self, chance: random.Random) -> None:
        sending: Producer | None = None
        while not self._stop.wait(0.3):
            try:
                if sending is None:
                    sending = self._producer({"transactional.id": self._topics["exactly"]})
                    sending.init_transactions(60)
                sending.begin_transaction()
                self._put(sending, self._topics["exactly"], chance, chance.randrange(1, 40))
                sending.flush(30)
                if chance.random() < 1 / 3:
                    sending.abort_transaction(60)
                else:
                    sending.commit_transaction(60)
            except KafkaException:
                sending = None  # a new one ends what the old one left open

    def _short(self, chance: random.Random) -> None:
        sending = self._producer({"compression.type": "lz4"})
        while not self._stop.wait(0.3):
            self._put(sending, self._topics["short"], chance, 40, size=2_000)
            sending.flush(30)

    def _compacted(self, chance: random.Random) -> None:
        sending = self._producer({})
        while not self._stop.wait(0.3):
            for _ in range(60):
                key = b"key %d" % chance.randrange(80)
                value = None if chance.random() < 0.1 else b"%d" % next(self.written)
                sending.produce(self._topics["compacted"], value, key)
            sending.flush(30)

    def _put(self, sending: Producer, topic: str, chance: random.Random, records: int, size: int = 200) -> None:
        for _ in range(records):
            number = next(self.written)
            value = None if number % 97 == 0 else b"" if number % 89 == 0 else chance.randbytes(chance.randrange(size))
            headers = [("n", b"%d" % number), ("null", None), ("n", b"again")][: number % 4] or None
            sending.produce(topic, value, b"key %d" % (number % 300) if number % 7 else None, headers=headers)
        sending.poll(0)

    def _producer(self, config: dict[str, object]) -> Producer:
        return Producer(self._settings.librdkafka({"linger.ms": 5, **config}))
