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

from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.answered_fetch import fetch_one
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import READ_UNCOMMITTED, FetchPartition, ProducedPartition, ProducePartition
from watershed.replicator.batch.header_rewrite import BATCH_HEADER_BYTES, rewrite_header
from watershed.replicator.batch.record_batch import decode_batches

COPY_BENCH_PARTITIONS = 4
_IN_FLIGHT = 5
_LARGEST = 1 << 20
_BYTES_A_SECOND = 300e6  # what a copy may reach at best, and batches; a case is loaded for that
_BATCHES_A_SECOND = 200e3
_MOST_BYTES = 800e6


@dataclass(frozen=True, slots=True)
class CopyCase:
    """Records of `size` bytes (value; no key), `records` in a batch, all batches with `codec`."""

    size: int
    codec: str
    records: int

    @property
    def name(self) -> str:
        """Such as `100b-lz4-1000`."""
        return f"{self.size}b-{self.codec}-{self.records}"


COPY_CASES = tuple(
    CopyCase(size, codec, records)
    for size in (100, 1_000, 10_000)
    for codec in ("none", "lz4", "zstd")
    for records in (1, 10, 100 if size == 10_000 else 1_000)
    if codec == "none" or records > 1
)


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """A topic on the source: every one of its PARTITIONS holds `batches` times the same batch."""

    case: CopyCase
    topic: str
    template: bytes
    batches: int  # a partition

    @property
    def records(self) -> int:
        """Of all partitions."""
        return self.batches * COPY_BENCH_PARTITIONS * self.case.records

    @property
    def bytes(self) -> int:
        """As stored, of all partitions."""
        return self.batches * COPY_BENCH_PARTITIONS * len(self.template)


def generate_values(case: CopyCase, count: int) -> Iterator[bytes]:
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


def load_topic(
    case: CopyCase, source: ConnectionSettings, topic: str, seconds: float, most_bytes: float = _MOST_BYTES
) -> LoadedTopic:
    """Create `topic` and fill it with what a fast copy needs about `seconds` for, but with `most_bytes` at most."""
    template = _template(case, source, f"{topic}.template")
    wanted = min(_BATCHES_A_SECOND * seconds, min(_BYTES_A_SECOND * seconds, most_bytes) / len(template))
    loaded = LoadedTopic(case, topic, template, max(int(wanted / COPY_BENCH_PARTITIONS), 3))
    with Admin(source) as admin:
        topic_id = admin.create_topic(topic, COPY_BENCH_PARTITIONS).topic_id
    header = (
        b"\0" * 8 + template[8:12] + b"\xff" * 4 + template[16:BATCH_HEADER_BYTES]
    )  # base offset 0, no leader epoch
    pieces = (header, memoryview(template)[BATCH_HEADER_BYTES:])
    request = tuple(ProducePartition(topic_id, number, pieces) for number in range(COPY_BENCH_PARTITIONS))
    send_requests(source, (request for _ in range(loaded.batches)))
    return loaded


def build_ready_requests(
    loaded: LoadedTopic, producer_id: int, topic_id: uuid.UUID
) -> list[tuple[ProducePartition, ...]]:
    """The topic as requests that only have to be sent: the headers are a replicator's, the payload is shared."""
    payload = memoryview(loaded.template)[BATCH_HEADER_BYTES:]
    requests = []
    for batch in range(loaded.batches):
        header = rewrite_header(
            loaded.template[:BATCH_HEADER_BYTES], producer_id=producer_id, epoch=0, sequence=batch * loaded.case.records
        )
        requests.append(
            tuple(ProducePartition(topic_id, number, (header, payload)) for number in range(COPY_BENCH_PARTITIONS))
        )
    return requests


def send_requests(settings: ConnectionSettings, requests: Iterable[tuple[ProducePartition, ...]]) -> None:
    """Send all, _IN_FLIGHT at a time, on one connection to a cluster of one broker."""
    with closing(open_connection(settings)) as connection:
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


def _template(case: CopyCase, source: ConnectionSettings, topic: str) -> bytes:
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
        # Records that wait for the topic's metadata when `flush` is called are sent in batches of their own.
        producer.list_topics(topic, timeout=30)
        for value in generate_values(case, case.records):
            producer.produce(topic, value, partition=0, timestamp=int(time.time() * 1000))
        if producer.flush(30):
            raise RuntimeError("the batch was not taken within 30 s")
        with closing(open_connection(source)) as connection:
            answer = fetch_one(connection, FetchPartition(topic_id, 0, 0), max_wait_ms=500, isolation=READ_UNCOMMITTED)
    delete_bench_topic(source, topic)
    batches = list(decode_batches(answer.records))
    if len(batches) != 1 or batches[0].records != case.records:
        raise RuntimeError(f"{case.name}: expected one batch, found {[batch.records for batch in batches]}")
    if (batches[0].attributes & 7 != 0) != (case.codec != "none"):
        raise RuntimeError(f"{case.name}: the batch is not compressed as asked for")
    return bytes(batches[0].data)


def delete_bench_topic(settings: ConnectionSettings, *topics: str) -> None:
    """Delete topics and wait until the cluster has answered."""
    client = AdminClient(settings.librdkafka())
    for future in client.delete_topics(list(topics), operation_timeout=30).values():
        future.result()
