"""The bytes of Fetch and Produce: our own half against the generated schemas, which know the other half."""

from __future__ import annotations

import io
import struct
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import response as fetch_schema
from kio.schema.fetch.v13.request import FetchRequest
from kio.schema.produce.v13 import response as schema
from kio.schema.produce.v13.request import ProduceRequest
from kio.schema.produce.v13.response import ProduceResponse
from kio.schema.types import BrokerId, ProducerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from clusters.wire import error_codes, fetch, produce
from clusters.wire.messages import FetchedPartition, FetchPartition, ProducedPartition, ProducePartition

topic_ids = st.uuids(version=4)
offsets = st.integers(-1, 2**63 - 1)
indexes = st.integers(0, 2**31 - 1)


def read(kind: Any, body: bytes) -> Any:
    entity, size = entity_reader(kind)(memoryview(body).toreadonly(), 0)
    assert size == len(body), "bytes are left over"
    return entity


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


# -- Produce ---------------------------------------------------------------------------------------------------

sends = st.lists(
    st.tuples(topic_ids, indexes, st.lists(st.binary(max_size=200), min_size=1, max_size=4)),
    max_size=8,
    unique_by=lambda send: send[:2],
)


@given(sends, st.integers(0, 2**31 - 1))
@settings(max_examples=150, deadline=None)
def test_produce_request(sends: list[tuple[uuid.UUID, int, list[bytes]]], timeout_ms: int) -> None:
    parts = [ProducePartition(topic, index, tuple(pieces)) for topic, index, pieces in sends]
    request = read(ProduceRequest, b"".join(produce.encode_produce_request(parts, timeout_ms)))
    assert (request.transactional_id, int(request.acks)) == (None, -1)
    assert request.timeout == timedelta(milliseconds=timeout_ms)
    told = {
        (topic.topic_id, int(part.index)): bytes(part.records or b"")
        for topic in request.topic_data
        for part in topic.partition_data
    }
    assert told == {(topic, index): b"".join(pieces) for topic, index, pieces in sends}
    assert len(request.topic_data) == len({topic for topic, _, _ in sends})


@pytest.mark.parametrize("size", [126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152])
def test_produce_lengths(size: int) -> None:
    topic = uuid.uuid4()
    body = b"".join(produce.encode_produce_request([ProducePartition(topic, 0, (bytes(61), bytes(size - 61)))], 1))
    ((part,),) = [entry.partition_data for entry in read(ProduceRequest, body).topic_data]
    assert len(part.records) == size


def test_produce_does_not_copy_batches() -> None:
    payload = memoryview(bytearray(100))
    pieces = produce.encode_produce_request([ProducePartition(uuid.uuid4(), 0, (b"head", payload))], 1)
    assert any(piece is payload for piece in pieces)


def test_produce_refuses_a_partition_twice() -> None:
    part = ProducePartition(uuid.uuid4(), 3, (b"x",))
    with pytest.raises(ValueError, match=r"partition 3 of topic .* twice"):
        produce.encode_produce_request([part, part], 1)


def test_produce_answer() -> None:
    topic = uuid.uuid4()

    answer = ProduceResponse(
        responses=(
            schema.TopicProduceResponse(
                topic_id=topic,
                partition_responses=(
                    schema.PartitionProduceResponse(
                        index=i32(4), error_code=ErrorCode.none, base_offset=i64(70), log_start_offset=i64(3),
                        log_append_time=datetime.fromtimestamp(1_790_000_000.123, UTC),
                        record_errors=(), error_message=None,
                    ),
                    schema.PartitionProduceResponse(
                        index=i32(5), error_code=ErrorCode.out_of_order_sequence_number, base_offset=i64(-1),
                        log_append_time=None, log_start_offset=i64(-1), error_message="why",
                        record_errors=(
                            schema.BatchIndexAndErrorMessage(
                                batch_index=i32(2), batch_index_error_message="a record"
                            ),
                            schema.BatchIndexAndErrorMessage(batch_index=i32(300), batch_index_error_message=None),
                        ),
                    ),
                ),
            ),
        ),
        throttle_time=i32Timedelta.parse(timedelta(milliseconds=7)),
    )  # fmt: skip
    throttle, told = produce.decode_produce_response(memoryview(written(answer)))
    assert throttle == 7
    assert told == [
        ProducedPartition(topic, 4, error_codes.NONE, 70, 3, append_time=1_790_000_000_123),
        ProducedPartition(
            topic, 5, error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1, "why", ((2, "a record"), (300, "")),
        ),
    ]  # fmt: skip


# -- Fetch -----------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(FetchPartition, topic_ids, indexes, offsets, st.integers(-1, 2**31 - 1), indexes),
        max_size=8,
        unique_by=lambda part: (part.topic_id, part.partition),
    ),
    st.integers(0, 1),
)
@settings(max_examples=100, deadline=None)
def test_fetch_request(parts: list[FetchPartition], isolation: int) -> None:
    built = fetch.encode_fetch_request(parts, max_wait_ms=250, min_bytes=1, max_bytes=1 << 25, isolation=isolation)
    request = read(FetchRequest, built)
    assert (int(request.replica_id), int(request.isolation_level)) == (-1, isolation)
    assert (int(request.session_id), int(request.session_epoch)) == (0, -1)  # sessionless
    told = {
        (topic.topic_id, int(part.partition)): (
            int(part.fetch_offset),
            int(part.last_fetched_epoch),
            int(part.partition_max_bytes),
            int(part.current_leader_epoch),
        )
        for topic in request.topics
        for part in topic.partitions
    }
    assert told == {(p.topic_id, p.partition): (p.offset, p.last_epoch, p.max_bytes, -1) for p in parts}


@st.composite
def fetched(draw: st.DrawFn) -> FetchedPartition:
    return FetchedPartition(
        topic_id=draw(topic_ids),
        partition=draw(indexes),
        error=draw(st.sampled_from((0, 1, 3, 6, 29, 100))),
        high_watermark=draw(offsets),
        last_stable=draw(offsets),
        log_start=draw(offsets),
        records=memoryview(draw(st.binary(max_size=300))),
        aborted=tuple(draw(st.lists(st.tuples(st.integers(0, 2**63 - 1), offsets), max_size=3))),
        diverging_epoch=draw(st.none() | st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))),
    )


def as_schema(part: FetchedPartition, *, null: bool) -> fetch_schema.PartitionData:
    extra = {}
    if part.diverging_epoch is not None:
        epoch, end = part.diverging_epoch
        extra["diverging_epoch"] = fetch_schema.EpochEndOffset(epoch=i32(epoch), end_offset=i64(end))
    return fetch_schema.PartitionData(
        partition_index=i32(part.partition),
        error_code=ErrorCode(part.error),
        high_watermark=i64(part.high_watermark),
        last_stable_offset=i64(part.last_stable),
        log_start_offset=i64(part.log_start),
        aborted_transactions=None
        if null and not part.aborted
        else tuple(
            fetch_schema.AbortedTransaction(producer_id=ProducerId(producer), first_offset=i64(first))
            for producer, first in part.aborted
        ),
        preferred_read_replica=BrokerId(-1),
        records=None if null and not part.records else bytes(part.records),
        **extra,
    )


@given(st.lists(fetched(), max_size=6, unique_by=lambda part: (part.topic_id, part.partition)), st.booleans())
@settings(max_examples=150, deadline=None)
def test_fetch_answer(parts: list[FetchedPartition], null: bool) -> None:
    """Null or empty arrays, a diverging epoch, aborted transactions, one topic with several partitions."""
    parts = [part if at % 2 else _at(part, parts[0].topic_id, at) for at, part in enumerate(parts)]
    by_topic: dict[uuid.UUID, list[FetchedPartition]] = {}
    for part in parts:
        by_topic.setdefault(part.topic_id, []).append(part)
    answer = fetch_schema.FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=ErrorCode.none,
        session_id=i32(0),
        responses=tuple(
            fetch_schema.FetchableTopicResponse(
                topic_id=topic, partitions=tuple(as_schema(part, null=null) for part in each)
            )
            for topic, each in by_topic.items()
        ),
    )
    throttle, error, told = fetch.decode_fetch_response(memoryview(written(answer)))
    assert (throttle, error) == (0, 0)
    assert told == [part for each in by_topic.values() for part in each]


def _at(part: FetchedPartition, topic: uuid.UUID, index: int) -> FetchedPartition:
    return FetchedPartition(
        topic, index, part.error, part.high_watermark, part.last_stable, part.log_start, part.records,
        part.aborted, part.diverging_epoch,
    )  # fmt: skip


def test_fetch_answer_refused_as_a_whole() -> None:
    answer = fetch_schema.FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta(seconds=3)),
        error_code=ErrorCode.unsupported_version,
        session_id=i32(0),
        responses=(),
    )
    assert fetch.decode_fetch_response(memoryview(written(answer))) == (3000, 35, [])


def test_records_are_views_into_the_answer() -> None:
    part = FetchedPartition(uuid.uuid4(), 0, 0, 9, 9, 0, memoryview(b"records"))
    answer = fetch_schema.FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=ErrorCode.none,
        session_id=i32(0),
        responses=(
            fetch_schema.FetchableTopicResponse(topic_id=part.topic_id, partitions=(as_schema(part, null=False),)),
        ),
    )
    frame = memoryview(bytearray(written(answer)))
    ((told,),) = [fetch.decode_fetch_response(frame)[2]]
    assert told.records.obj is frame.obj


@given(st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_bytes_that_are_no_answer(body: bytes) -> None:
    """`Connection.fetch` turns these three errors into ProtocolError; anything else would end the link."""

    with suppress(struct.error, IndexError, ValueError):
        fetch.decode_fetch_response(memoryview(body))
    with suppress(struct.error, IndexError, ValueError):
        produce.decode_produce_response(memoryview(body))


# -- codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, value in vars(error_codes).items() if name.isupper() and isinstance(value, int)]
)
def test_codes_are_kafka_s(name: str) -> None:
    assert error_codes.describe_error_code(getattr(error_codes, name)) == name


def test_unknown_codes_have_a_name_too() -> None:
    assert error_codes.describe_error_code(31_000) == "error 31000"
