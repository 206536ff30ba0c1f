"""The bytes of Fetch and Produce: our own half against the generated schemas, which know the other half."""

from __future__ import annotations

import io
import struct
import sys
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from watershed.clusters.wire import error_codes, fetch, produce
from watershed.clusters.wire.fetch_session import SessionQuestion, build_lone_question
from watershed.clusters.wire.messages import FetchedPartition, FetchPartition, ProducedPartition, ProducePartition
from watershed.clusters.wire.request_codec import build_request, load_message_class

topic_ids = st.uuids(version=4)
offsets = st.integers(-1, 2**63 - 1)
indexes = st.integers(0, 2**31 - 1)


def read(kind: Any, body: bytes) -> Any:
    entity, size = entity_reader(kind)(memoryview(body).toreadonly(), 0)
    assert size == len(body), "bytes are left over"
    return entity


def written(name: str, version: int, **values: Any) -> memoryview:
    """An answer in that version; values that it has no field for are left out."""
    entity = build_request(load_message_class(name, version, "response"), values)
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return memoryview(bytearray(buffer.getvalue()))


PRODUCE, FETCH = range(3, 14), range(4, 14)
produce_versions = pytest.mark.parametrize("version", PRODUCE)
fetch_versions = pytest.mark.parametrize("version", FETCH)


def name_of(topic_id: uuid.UUID) -> str:
    return f"topic.{topic_id}"


def id_of(name: str) -> uuid.UUID:
    return uuid.UUID(name.removeprefix("topic."))


def topic_of(entry: Any) -> uuid.UUID:
    """However the version names it."""
    named = getattr(entry, "name", None) or getattr(entry, "topic", None)
    return id_of(str(named)) if named else entry.topic_id


def naming(topic_id: uuid.UUID) -> dict[str, Any]:
    return {"topic_id": topic_id, "name": name_of(topic_id), "topic": name_of(topic_id)}


# -- Produce ---------------------------------------------------------------------------------------------------

sends = st.lists(
    st.tuples(topic_ids, indexes, st.lists(st.binary(max_size=200), min_size=1, max_size=4)),
    max_size=8,
    unique_by=lambda send: send[:2],
)


@produce_versions
@given(sends, st.integers(0, 2**31 - 1), st.none() | st.text(max_size=20))
@settings(max_examples=25, deadline=None)
def test_produce_request(
    version: int, sends: list[tuple[uuid.UUID, int, list[bytes]]], timeout_ms: int, transactional: str | None
) -> None:
    parts = [ProducePartition(topic, index, tuple(pieces)) for topic, index, pieces in sends]
    body = b"".join(produce.encode_produce_request(version, parts, name_of, timeout_ms, transactional))
    request = read(load_message_class("produce", version, "request"), body)
    assert (request.transactional_id, int(request.acks)) == (transactional, -1)
    assert request.timeout == timedelta(milliseconds=timeout_ms)
    told = {
        (topic_of(topic), int(part.index)): bytes(part.records or b"")
        for topic in request.topic_data
        for part in topic.partition_data
    }
    assert told == {(topic, index): b"".join(pieces) for topic, index, pieces in sends}
    assert len(request.topic_data) == len({topic for topic, _, _ in sends})


@pytest.mark.parametrize("size", [126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152])
def test_produce_lengths(size: int) -> None:
    part = ProducePartition(uuid.uuid4(), 0, (bytes(61), bytes(size - 61)))
    body = b"".join(produce.encode_produce_request(13, [part], name_of, 1))
    request = read(load_message_class("produce", 13, "request"), body)
    ((part,),) = [entry.partition_data for entry in request.topic_data]
    assert len(part.records) == size


def test_produce_does_not_copy_batches() -> None:
    payload = memoryview(bytearray(100))
    pieces = produce.encode_produce_request(13, [ProducePartition(uuid.uuid4(), 0, (b"head", payload))], name_of, 1)
    assert any(piece is payload for piece in pieces)


def test_produce_refuses_a_partition_twice() -> None:
    part = ProducePartition(uuid.uuid4(), 3, (b"x",))
    with pytest.raises(ValueError, match=r"partition 3 of topic .* twice"):
        produce.encode_produce_request(13, [part, part], name_of, 1)


@produce_versions
def test_produce_answer(version: int) -> None:
    topic = uuid.uuid4()
    parts: tuple[dict[str, Any], ...] = (
        {
            "index": 4, "error_code": ErrorCode.none, "base_offset": 70, "log_start_offset": 3,
            "log_append_time": datetime.fromtimestamp(1_790_000_000.123, UTC), "record_errors": (),
            "error_message": None,
        },
        {
            "index": 5, "error_code": ErrorCode.out_of_order_sequence_number, "base_offset": -1,
            "log_append_time": None, "log_start_offset": -1, "error_message": "why",
            "record_errors": (
                {"batch_index": 2, "batch_index_error_message": "a record"},
                {"batch_index": 300, "batch_index_error_message": None},
            ),
        },
    )  # fmt: skip
    answer = written(
        "produce",
        version,
        responses=({**naming(topic), "partition_responses": parts},),
        throttle_time=timedelta(milliseconds=7),
    )
    throttle, told = produce.decode_produce_response(version, answer, id_of)
    assert throttle == 7
    why = ("why", ((2, "a record"), (300, ""))) if version >= 8 else ("", ())
    assert told == [
        ProducedPartition(topic, 4, error_codes.NONE, 70, 3 if version >= 5 else -1, append_time=1_790_000_000_123),
        ProducedPartition(topic, 5, error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1, *why),
    ]


# -- Fetch -----------------------------------------------------------------------------------------------------


@fetch_versions
@given(
    st.lists(
        st.builds(FetchPartition, topic_ids, indexes, offsets, st.integers(-1, 2**31 - 1), indexes),
        max_size=8,
        unique_by=lambda part: (part.topic_id, part.partition),
    ),
    st.integers(0, 1),
    st.text(max_size=10),
)
@settings(max_examples=25, deadline=None)
def test_fetch_request(version: int, parts: list[FetchPartition], isolation: int, rack: str) -> None:
    built = fetch.encode_fetch_request(
        version,
        build_lone_question(parts),
        name_of,
        max_wait_ms=250,
        min_bytes=1,
        max_bytes=1 << 25,
        isolation=isolation,
        rack=rack,
    )
    request = read(load_message_class("fetch", version, "request"), built)
    assert (int(request.replica_id), int(request.isolation_level)) == (-1, isolation)
    assert (getattr(request, "session_id", 0), getattr(request, "session_epoch", -1)) == (0, -1)  # sessionless
    assert getattr(request, "rack_id", rack) == rack
    told = {
        (topic_of(topic), int(part.partition)): (
            int(part.fetch_offset),
            int(getattr(part, "last_fetched_epoch", -1)),
            int(part.partition_max_bytes),
            int(getattr(part, "current_leader_epoch", -1)),
        )
        for topic in request.topics
        for part in topic.partitions
    }
    assert told == {
        (p.topic_id, p.partition): (p.offset, p.last_epoch if version >= 12 else -1, p.max_bytes, -1) for p in parts
    }


@pytest.mark.parametrize("version", range(7, 14))
def test_fetch_request_of_a_session(version: int) -> None:
    topics = uuid.uuid4(), uuid.uuid4()
    question = SessionQuestion(
        7, 3, (FetchPartition(topics[0], 1, 9),), ((topics[0], 2), (topics[1], 0), (topics[0], 5))
    )
    built = fetch.encode_fetch_request(
        version, question, name_of, max_wait_ms=250, min_bytes=1, max_bytes=1 << 25, isolation=1
    )
    request = read(load_message_class("fetch", version, "request"), built)
    assert (int(request.session_id), int(request.session_epoch)) == (7, 3)
    forgotten = {topic_of(each): [int(number) for number in each.partitions] for each in request.forgotten_topics_data}
    assert forgotten == {topics[0]: [2, 5], topics[1]: [0]}


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


def as_values(part: FetchedPartition, *, null: bool) -> dict[str, Any]:
    diverging = {}
    if part.diverging_epoch is not None:
        entity = load_message_class("fetch", 13, "response")
        module = sys.modules[entity.__module__]
        epoch, end = part.diverging_epoch
        diverging["diverging_epoch"] = module.EpochEndOffset(epoch=epoch, end_offset=end)
    return {
        "partition_index": part.partition,
        "error_code": ErrorCode(part.error),
        "high_watermark": part.high_watermark,
        "last_stable_offset": part.last_stable,
        "log_start_offset": part.log_start,
        "aborted_transactions": None
        if null and not part.aborted
        else tuple({"producer_id": producer, "first_offset": first} for producer, first in part.aborted),
        "preferred_read_replica": part.preferred,
        "records": None if null and not part.records else bytes(part.records),
        **diverging,
    }


def as_told(version: int, part: FetchedPartition) -> FetchedPartition:
    """What an answer of that version has fields for."""
    return replace(
        part,
        log_start=part.log_start if version >= 5 else -1,
        preferred=part.preferred if version >= 11 else -1,
        diverging_epoch=part.diverging_epoch if version >= 12 else None,
    )


@fetch_versions
@given(st.lists(fetched(), max_size=6, unique_by=lambda part: (part.topic_id, part.partition)), st.booleans())
@settings(max_examples=30, deadline=None)
def test_fetch_answer(version: int, parts: list[FetchedPartition], null: bool) -> None:
    """Null or empty arrays, a diverging epoch, aborted transactions, one topic with several partitions."""
    parts = [
        part if at % 2 else replace(part, topic_id=parts[0].topic_id, partition=at) for at, part in enumerate(parts)
    ]
    by_topic: dict[uuid.UUID, list[FetchedPartition]] = {}
    for part in parts:
        by_topic.setdefault(part.topic_id, []).append(part)
    answer = written(
        "fetch",
        version,
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        session_id=0,
        responses=tuple(
            {**naming(topic), "partitions": tuple(as_values(part, null=null) for part in each)}
            for topic, each in by_topic.items()
        ),
    )
    found = fetch.decode_fetch_response(version, answer, id_of)
    assert (found.throttle_ms, found.error) == (0, 0)
    assert found.partitions == [as_told(version, part) for each in by_topic.values() for part in each]


@pytest.mark.parametrize("version", range(7, 14))
def test_fetch_answer_refused_as_a_whole(version: int) -> None:
    answer = written(
        "fetch",
        version,
        throttle_time=timedelta(seconds=3),
        error_code=ErrorCode.unsupported_version,
        session_id=0,
        responses=(),
    )
    assert fetch.decode_fetch_response(version, answer, id_of) == (3000, 35, [], 0)


@fetch_versions
def test_records_are_views_into_the_answer(version: int) -> None:
    part = FetchedPartition(uuid.uuid4(), 0, 0, 9, 9, 0, memoryview(b"records"))
    topic = {**naming(part.topic_id), "partitions": (as_values(part, null=False),)}
    frame = written(
        "fetch", version, throttle_time=timedelta(0), error_code=ErrorCode.none, session_id=0, responses=(topic,)
    )
    ((told,),) = [fetch.decode_fetch_response(version, frame, id_of).partitions]
    assert told.records.obj is frame.obj


@fetch_versions
def test_an_answer_that_ends_within_its_records_is_refused(version: int) -> None:
    """In the old layout nothing follows the last records, so a short answer would pass for a short batch."""
    part = FetchedPartition(uuid.uuid4(), 0, 0, 9, 9, 0, memoryview(b"records"))
    topic = {**naming(part.topic_id), "partitions": (as_values(part, null=False),)}
    frame = written(
        "fetch", version, throttle_time=timedelta(0), error_code=ErrorCode.none, session_id=0, responses=(topic,)
    )
    with pytest.raises((ValueError, IndexError)):
        fetch.decode_fetch_response(version, frame[:-3], id_of)


@pytest.mark.parametrize("version", [3, 9, 12, 13])
@given(st.binary(max_size=60))
@settings(max_examples=40, deadline=None)
def test_bytes_that_are_no_answer(version: int, body: bytes) -> None:
    """`Connection` turns these errors into ProtocolError; anything else would end the link."""

    with suppress(struct.error, IndexError, ValueError):
        fetch.decode_fetch_response(max(version, 4), memoryview(body), id_of)
    with suppress(struct.error, IndexError, ValueError):
        produce.decode_produce_response(version, memoryview(body), id_of)


# -- codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, value in vars(error_codes).items() if name.isupper() and isinstance(value, int)]
)
def test_codes_are_kafka_s(name: str) -> None:
    assert error_codes.describe_error_code(getattr(error_codes, name)) == name


def test_unknown_codes_have_a_name_too() -> None:
    assert error_codes.describe_error_code(31_000) == "error 31000"
