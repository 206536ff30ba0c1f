"""All answers that kio knows, walked: to the very end, and no further than their bytes."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import struct
import uuid
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta, i64Timedelta

from watershed.clusters.wire.bounded_decoding import build_length_check
from watershed.clusters.wire.request_codec import decode_response, load_message_class

NAMES = sorted(name for name, versions in schema_name_map.items() if EntityType.response in versions[max(versions)])
SIZES = {"int8": 7, "int16": 15, "uint16": 15, "int32": 31, "int64": 63}


def made(kind: Any, random_: random.Random) -> Any:
    """An answer of this class, with something in every field."""
    hints = get_type_hints(kind)
    return kind(
        **{
            each.name: value(hints[each.name], each.metadata.get("kafka_type"), random_)
            for each in dataclasses.fields(kind)
        }
    )


def value(hint: Any, kafka_type: str | None, random_: random.Random) -> Any:
    if NoneType in get_args(hint):
        if random_.random() < 0.2 and kafka_type != "uuid":
            return None
        (hint,) = [each for each in get_args(hint) if each is not NoneType]
    if get_origin(hint) is tuple:
        return tuple(value(get_args(hint)[0], kafka_type, random_) for _ in range(random_.choice([0, 1, 1, 2, 3])))
    if dataclasses.is_dataclass(hint):
        return made(hint, random_)
    if kafka_type in SIZES:
        return random_.randrange(1 << SIZES[kafka_type])
    return {
        "bool": lambda: random_.random() < 0.5,
        "float64": random_.random,
        "uuid": lambda: uuid.UUID(int=random_.randrange(1, 1 << 128)),
        "error_code": lambda: random_.choice(list(ErrorCode)),
        "string": lambda: "x" * random_.choice([0, 1, 5, 200]),
        "bytes": lambda: b"x" * random_.choice([0, 1, 5, 200]),
        "records": lambda: b"x" * random_.choice([0, 1, 5, 200]),
        "datetime_i64": lambda: datetime.datetime.fromtimestamp(random_.randrange(1 << 30), datetime.UTC),
        "timedelta_i32": lambda: i32Timedelta.parse(datetime.timedelta(milliseconds=random_.randrange(1 << 30))),
        "timedelta_i64": lambda: i64Timedelta.parse(datetime.timedelta(milliseconds=random_.randrange(1 << 30))),
    }[str(kafka_type)]()


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_walked_to_its_end(name: str) -> None:
    """kio writes what kio reads: where the walk ends, its reader ends."""
    random_ = random.Random(name)
    for version in sorted(schema_name_map[name]):
        kind = load_message_class(name, version, "response")
        for _ in range(5):
            answer = made(kind, random_)
            body = written(answer)
            assert entity_reader(kind)(body, 0) == (answer, len(body))
            assert build_length_check(kind)(memoryview(body), 0) == len(body)


LEGACY, COMPACT = b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    ("name", "version", "body"),
    [
        ("api_versions", 0, b"\0\0" + LEGACY),
        ("api_versions", 2, b"\0\0" + LEGACY),
        ("api_versions", 3, b"\0\0" + COMPACT),
        ("api_versions", 4, b"\0\0\1\0\0\0\0\1\0\xff" + COMPACT + COMPACT),  # in a tagged field
        ("metadata", 1, LEGACY),
        ("metadata", 12, b"\0\0\0\0" + COMPACT),
        ("sasl_handshake", 1, b"\0\0" + LEGACY),
        ("list_groups", 4, b"\0\0\0\0\0\0" + COMPACT),
    ],
)
def test_an_array_that_cannot_be_there_is_refused(name: str, version: int, body: bytes) -> None:
    """kio alone would end this process: memory for 2³¹ elements, before it looks at one."""
    with pytest.raises(ValueError, match=r"are left|are missing"):
        decode_response(name, version, memoryview(body))


def test_cut_off_answers_are_never_read_as_whole_ones() -> None:
    random_ = random.Random(15)
    kind = load_message_class("metadata", 12, "response")
    body = written(made(kind, random_))
    for length in range(len(body)):
        with pytest.raises((ValueError, IndexError, struct.error)):
            build_length_check(kind)(memoryview(body)[:length], 0)


def test_an_array_is_null_only_where_its_schema_says_so() -> None:
    nothing = struct.pack(">i", 0) + b"\0"  # throttle time, and as many brokers as null has
    with pytest.raises(ValueError, match="null that never is"):
        build_length_check(load_message_class("metadata", 12, "response"))(memoryview(nothing + bytes(20)), 0)
    told = b"\0" * 4 + b"\0\0" + b"\0" + b"\0" + b"\0"  # no error, no message, null entries, no tags
    assert build_length_check(load_message_class("describe_client_quotas", 1, "response"))(memoryview(told), 0) == len(
        told
    )
