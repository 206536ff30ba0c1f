"""A producer of the rehearsal: it writes a few records a second, as a careful application would."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from watershed.clusters import librdkafka
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.drill.record_tally import RecordTally

_RATE = 50  # records a second
_FLUSH_S = 30.0
KeysByTopic = Mapping[str, Sequence[bytes]]  # by topic of the wave: keys that its records have


@dataclass(slots=True)
class DrillProducer:
    """One client's life at one cluster, in a thread of its own. topics: topic of the wave → what it is called there.
    numbers: goes on from one life to the next. failure: why it has ended by itself."""

    name: str
    settings: ConnectionSettings
    topics: Mapping[str, str]
    keys: KeysByTopic
    numbers: itertools.count[int]
    tally: RecordTally
    stopping: threading.Event
    failure: str = ""

    def run(self) -> None:
        """Writes until it is told to stop; an error ends the thread and is kept in `failure`."""
        try:
            self._run()
        except KafkaException as error:
            self.failure = librdkafka.extract_kafka_error(error).str()
        except Exception as error:  # noqa: BLE001  whoever looks at the application is told
            self.failure = f"{type(error).__name__}: {error}"

    def _run(self) -> None:
        producer = Producer(
            self.settings.librdkafka(
                {
                    "client.id": self.name,
                    "acks": "all",
                    "enable.idempotence": True,
                    "partitioner": "murmur2_random",  # the same key in the same partition, as Java's clients have it
                    "linger.ms": 5,
                    "delivery.timeout.ms": int(_FLUSH_S * 1000),
                }
            )
        )
        turns = itertools.cycle([(topic, key) for topic in self.topics for key in self.keys[topic]])
        began, sent = time.monotonic(), 0
        while not self.stopping.is_set() and not self.failure:
            if sent < (time.monotonic() - began) * _RATE:
                self._send(producer, *next(turns))
                sent += 1
            producer.poll(0 if sent < (time.monotonic() - began) * _RATE else 0.01)
        if producer.flush(_FLUSH_S):
            self.failure = self.failure or f"not acknowledged in {_FLUSH_S:g} s"
            producer.purge()

    def _send(self, producer: Producer, topic: str, key: bytes) -> None:
        value = self.tally.value(self.name, next(self.numbers))

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.tally.acknowledged(self.name, topic, key, value, self.settings.alias)
            else:
                self.failure = error.str()

        producer.produce(self.topics[topic], value, key, on_delivery=delivered)
