"""What is copied: topics made of exact batches, so many records of such a size with such a codec.

One batch of each kind is built by librdkafka and read back as stored; loading repeats it. No batch is larger than
`max.message.bytes` (1 MiB), so 10 KB records come in batches of 100 instead of 1,000. A record alone in its batch
is not smaller when compressed (librdkafka then sends it as it is), so batches of one record have no codec.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from clusters.admin import Admin
from clusters.settings import ConnectionSettings
from clusters.wire.connection import connect
from clusters.wire.messages import READ_UNCOMMITTED, FetchPartition, ProducedPartition, ProducePartition
from replicator.batches import batches_in
from replicator.header import HEADER_SIZE, rewritten

PARTITIONS = 4
_IN_FLIGHT = 5
_LARGEST = 1 << 20
_BYTES_A_SECOND = 300e6  # what a copy may reach at best, and batches; a case is loaded for that
_BATCHES_A_SECOND = 30e3
_MOST_BYTES = 800e6


@dataclass(frozen=True, slots=True)
class Case:
    """Records of `size` bytes (value; no key), `records` in a batch, all batches with `codec`."""

    size: int
    codec: str
    records: int

    @property
    def name(self) -> str:
        return f"{self.size}b-{self.codec}-{self.records}"


CASES = tuple(
    Case(size, codec, records)
    for size in (100, 1_000, 10_000)
    for codec in ("none", "lz4", "zstd")
    for records in (1, 10, 100 if size == 10_000 else 1_000)
    if codec == "none" or records > 1
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A topic on the source: every one of its PARTITIONS holds `batches` times the same batch."""

    case: Case
    topic: str
    template: bytes
    batches: int  # a partition

    @property
    def records(self) -> int:
        return self.batches * PARTITIONS * self.case.records

    @property
    def bytes(self) -> int:
        return self.batches * PARTITIONS * len(self.template)


def values(case: Case, count: int) -> Iterator[bytes]:
    """Values that compress about as well as orders in JSON do."""
    chance = random.Random(count)  # noqa: S311 - not a secret
    states = ("created", "paid", "packed", "shipped", "returned")
    for number in range(count):
        text = ""
        while len(text) < case.size:
            text += (
                f'{{"order":{number},"customer":"c-{chance.randrange(10**6):06d}","state":"{chance.choice(states)}",'
                f'"amount":{chance.randrange(10**5) / 100},"currency":"EUR",'
                f'"at":{1790000000000 + chance.randrange(10**9)}}}'
            )
        yield text[: case.size].encode()


def load(case: Case, source: ConnectionSettings, topic: str, seconds: float, most_bytes: float = _MOST_BYTES) -> Loaded:
    """Create `topic` and fill it with what a fast copy needs about `seconds` for, but with `most_bytes` at most."""
    template = _template(case, source, f"{topic}.template")
    wanted = min(_BATCHES_A_SECOND * seconds, min(_BYTES_A_SECOND * seconds, most_bytes) / len(template))
    loaded = Loaded(case, topic, template, max(int(wanted / PARTITIONS), 3))
    with Admin(source) as admin:
        topic_id = admin.create_topic(topic, PARTITIONS).topic_id
    header = b"\0" * 8 + template[8:12] + b"\xff" * 4 + template[16:HEADER_SIZE]  # base offset 0, no leader epoch
    pieces = (header, memoryview(template)[HEADER_SIZE:])
    request = tuple(ProducePartition(topic_id, number, pieces) for number in range(PARTITIONS))
    pump(source, (request for _ in range(loaded.batches)))
    return loaded


def ready(loaded: Loaded, producer_id: int, topic_id: uuid.UUID) -> list[tuple[ProducePartition, ...]]:
    """The topic as requests that only have to be sent: the headers are a replicator's, the payload is shared."""
    payload = memoryview(loaded.template)[HEADER_SIZE:]
    requests = []
    for batch in range(loaded.batches):
        header = rewritten(
            loaded.template[:HEADER_SIZE], producer_id=producer_id, epoch=0, sequence=batch * loaded.case.records
        )
        requests.append(tuple(ProducePartition(topic_id, number, (header, payload)) for number in range(PARTITIONS)))
    return requests


def pump(settings: ConnectionSettings, requests: Iterable[tuple[ProducePartition, ...]]) -> None:
    """Send all, IN_FLIGHT at a time, on one connection to a cluster of one broker."""
    with closing(connect(settings)) as connection:
        unanswered = 0
        for request in requests:
            if unanswered == _IN_FLIGHT:
                _accepted(connection.receive_produce())
                unanswered -= 1
            connection.send_produce(request)
            unanswered += 1
        for _ in range(unanswered):
            _accepted(connection.receive_produce())


def _accepted(answers: list[ProducedPartition]) -> None:
    for answer in answers:
        if answer.error:
            raise RuntimeError(f"partition {answer.partition} was refused: code {answer.error} {answer.message}")


def _template(case: Case, source: ConnectionSettings, topic: str) -> bytes:
    with Admin(source) as admin:
        topic_id = admin.create_topic(topic, 1).topic_id
        producer = Producer(
            source.librdkafka(
                {
                    "linger.ms": 60_000,  # until the batch is full, or flushed
                    "batch.num.messages": case.records,
                    "batch.size": 2 * _LARGEST,
                    "message.max.bytes": 2 * _LARGEST,  # before compression
                    "compression.type": case.codec,
                    "sticky.partitioning.linger.ms": 60_000,
                }
            )
        )
        for value in values(case, case.records):
            producer.produce(topic, value, partition=0, timestamp=int(time.time() * 1000))
        if producer.flush(30):
            raise RuntimeError("the batch was not taken within 30 s")
        with closing(connect(source)) as connection:
            (answer,) = connection.fetch((FetchPartition(topic_id, 0, 0),), isolation=READ_UNCOMMITTED)
    delete(source, topic)
    batches = list(batches_in(answer.records))
    if len(batches) != 1 or batches[0].records != case.records:
        raise RuntimeError(f"{case.name}: expected one batch, found {[batch.records for batch in batches]}")
    if (batches[0].attributes & 7 != 0) != (case.codec != "none"):
        raise RuntimeError(f"{case.name}: the batch is not compressed as asked for")
    return bytes(batches[0].data)


def delete(settings: ConnectionSettings, *topics: str) -> None:
    """Delete topics and wait until the cluster has answered."""
    client = AdminClient(settings.librdkafka())
    for future in client.delete_topics(list(topics), operation_timeout=30).values():
        future.result()
