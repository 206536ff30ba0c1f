"""What one partition costs Watershed's own code, measured without clusters: sizes of records, microseconds, memory.

Everything runs the code of a worker or a reader on a partition as a real estate has it: copied, quiet, with names of
some thirty characters. Microseconds are processor time of one core, the best of _ROUNDS.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka.admin._metadata import PartitionMetadata

from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import encode_control_value
from watershed.clusters.control_values import decode_control_value
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.record_batch import BatchRecord, build_batch
from watershed.clusters.wire.fetch import FETCH_BY_ID, encode_fetch_request
from watershed.clusters.wire.fetch_session import build_lone_question
from watershed.clusters.wire.messages import FetchPartition
from watershed.replicator.batch.codecs import CODEC_NAMES, compress_payload
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.consolidation import SPARE_BLOCKS
from watershed.replicator.ledger.ledger import build_tolerant_ledger
from watershed.replicator.ledger.ledger_block import CLAIM_NUMBER, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.ledger.record_format import parse_ledger_key
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.active_copy import ActiveCopy
from watershed.replicator.transport.rate_limit import RateLimit
from watershed.replicator.worker.assignment import needs_report
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW_ID = "onprem-to-cloud"
# Each takeover leaves a record; above SPARE_BLOCKS more than the map needs it is written anew as one. So the mean.
LEDGER_RECORDS = SPARE_BLOCKS // 2 + 1
_WORKER = "orders-cloud-12"
_NOW_MS = 1_790_000_000_000
_ROUNDS = 3
_LZ4 = CODEC_NAMES.index("lz4")
_HEADER_BYTES = 61  # of a record batch (KIP-98)
_NOWHERE = BrokerAddress("127.0.0.1", 1)
_SOURCE_ID, _TARGET_ID = uuid.UUID(int=1 << 100 | 7), uuid.UUID(int=1 << 101 | 9)


@dataclass(frozen=True, slots=True)
class PartitionCosts:
    """Of one quiet partition.

    report_bytes: key and value of its report. quiet_us: to see that there is nothing to report, once a second.
    report_us: to make, compare and encode a report. read_us: to decode a report's JSON and
    make the report of it. ledger_bytes: key and value of a ledger record with one run. ledger_us: to decode one of
    LEDGER_RECORDS and build the partition's state from them; ledger_key_us: to see that one is of another topology.
    begin_us: to make the ledger block, the copy, the task and a first
    report. kib: memory of a task with its copy, its ledger and its report. fetch_bytes: that name it in a Fetch.
    listing_us: to make the client library's objects for it, where a worker lists a cluster's topics.
    """

    report_bytes: float
    quiet_us: float
    report_us: float
    read_us: float
    ledger_bytes: float
    ledger_us: float
    ledger_key_us: float
    begin_us: float
    kib: float
    fetch_bytes: float
    listing_us: float


def build_flow_record(flow_id: str = FLOW_ID) -> FlowRecord:
    """A flow that copies all topics of the estate."""
    topics = TopicSelection((Selector("glob", "team-*"),))
    return FlowRecord(PlanFlow(flow_id, "onprem", "cloud", topics), "sha256:0", "orders", producer_id=4_711)


def build_topic_name(number: int) -> str:
    """The name of a topic of the estate, some thirty characters long."""
    return f"team-{number % 97:02d}.orders.events-{number:07d}"


def measure_partition_costs(partitions: int) -> PartitionCosts:
    """Measured over so many partitions; from a few hundred on the figures stand still."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [_build_copied_task(number) for number in range(partitions)]
    kib = (tracemalloc.get_traced_memory()[0] - before) / partitions / 1024
    tracemalloc.stop()
    now = time.monotonic()
    reports = [task.report(_WORKER, 4_711) for task in tasks]  # of a partition at its source's end, without a rate
    encoded = [encode_control_value(report.to_json()) for report in reports]
    ledger = [_build_ledger_records(task.key) for task in tasks]
    read_us = _measure_us(lambda: [PartitionStatus.from_json(decode_control_value(each)) for each in encoded])
    return PartitionCosts(
        report_bytes=sum(len(report.key) + len(value) for report, value in zip(reports, encoded, strict=True))
        / partitions,
        quiet_us=_measure_us(lambda: [task.is_quiet(now) for task in tasks]),
        report_us=_measure_us(lambda: [_write_report(task) for task in tasks]),
        read_us=read_us,
        ledger_bytes=sum(len(key) + len(payload) for records in ledger for key, payload in records)
        / (partitions * LEDGER_RECORDS),
        ledger_us=_measure_us(lambda: [build_tolerant_ledger(map(_decode_ledger, each)) for each in ledger])
        / LEDGER_RECORDS,
        ledger_key_us=_measure_us(lambda: [parse_ledger_key(key) for each in ledger for key, _payload in each]),
        begin_us=_measure_us(lambda: [_build_copied_task(number) for number in range(partitions)]),
        kib=kib,
        fetch_bytes=_count_fetch_bytes(partitions),
        listing_us=_measure_us(lambda: [_build_listed_partition(number) for number in range(partitions)]),
    )


def compute_stored_report_bytes(together: int) -> float:
    """Bytes of a report as the status topic stores it, where so many stand in one batch: compressed with lz4, with its
    share of the batch's header."""
    tasks = [_build_copied_task(number) for number in range(together)]
    reports = [task.report(_WORKER, 4_711) for task in tasks]
    records = [
        BatchRecord(number, _NOW_MS, report.key.encode(), encode_control_value(report.to_json()))
        for number, report in enumerate(reports)
    ]
    batch = build_batch(records)
    return (_HEADER_BYTES + len(compress_payload(_LZ4, batch[_HEADER_BYTES:]))) / together


def _measure_us(work: Callable[[], list[Any]]) -> float:
    """Processor time of one of the things that `work` does and returns, in microseconds."""
    seconds = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        done = len(work())
        seconds.append((time.process_time() - began) / done)
    return min(seconds) * 1e6


def _build_copied_task(number: int) -> PartitionTask:
    """A partition whose copy has reached the end of its source."""
    topic, partition = build_topic_name(number // 10), number % 10
    key = PartitionKey(FLOW_ID, topic, topic, partition)
    end = number * 2_654_435_761 % 10_000_000  # other digits for each: equal ones would compress too well
    copy = PartitionCopy(
        key,
        _SOURCE_ID,
        _TARGET_ID,
        SourceCursor(end, 4),
        TargetProgress(end),
        producer=SequencedProducer(ProducerIdentity(4_711, 0, 0), 5, depth_confirmed=5),
    )
    copy.source.end = copy.source.high_watermark = end
    copy.source.seen_at = time.monotonic()
    ledger = PartitionLedgerWriter(
        _NoWriter(),  # type: ignore[arg-type]
        _build_block(key),
        copy.durable,
        lambda _error: None,
        lambda _todo: None,
    )
    task = PartitionTask(key, _RECORD)
    task.attach_copy(ActiveCopy(copy, ledger, RateLimit(None), lambda _batch: False, _NOWHERE, _NOWHERE))
    task.report(_WORKER, 4_711)
    return task


_RECORD = build_flow_record()


class _NoWriter:
    """Where nothing is written."""


def _write_report(task: PartitionTask) -> bytes:
    report = task.report(_WORKER, 4_711)
    needs_report(report, task.published)
    task.published = report
    return encode_control_value(report.to_json())


def _build_block(key: PartitionKey) -> LedgerBlock:
    return LedgerBlock(
        key=key,
        generation=Generation(3, _WORKER),
        number=CLAIM_NUMBER + 1,
        start=1_204_233,
        identity=ProducerIdentity(4_711, 0, 0),
        source_id=_SOURCE_ID,
        target_id=_TARGET_ID,
        runs=(OffsetRun(1_204_233, 1_204_233),),
    )


def _build_ledger_records(key: PartitionKey) -> list[tuple[str, bytes]]:
    """What is in the ledger of a partition that was taken over again and again."""
    blocks = [replace(_build_block(key), generation=Generation(number, _WORKER)) for number in range(LEDGER_RECORDS)]
    return [(block.record_key, encode_control_value(block.to_json())) for block in blocks]


def _decode_ledger(record: tuple[str, bytes]) -> ControlRecord:
    key, payload = record
    return ControlRecord(0, 0, _NOW_MS, key, decode_control_value(payload))


def _build_listed_partition(number: int) -> PartitionMetadata:
    """As `list_topics` does, whose own code is compiled: this is the least that it costs."""
    listed = PartitionMetadata()
    listed.id, listed.leader, listed.replicas, listed.isrs = number, 1, [1, 2, 3], [1, 2, 3]
    return listed


def _count_fetch_bytes(partitions: int) -> float:
    """Of a Fetch that names all of them, in topics of ten."""
    parts = [FetchPartition(uuid.UUID(int=number // 10 + 1), number % 10, 1_204_233, 4) for number in range(partitions)]
    question = build_lone_question(parts)
    body = encode_fetch_request(
        FETCH_BY_ID, question, str, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, isolation=1
    )
    return len(body) / partitions
