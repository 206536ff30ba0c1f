"""One request as pieces of a frame, one frame as an answer, in any version that kio knows."""

from __future__ import annotations

import io
import struct
from typing import Any, Literal

from kio.index import load_entity_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from clusters.wire.transport import Piece

_CLIENT_ID = b"watershed"
_UNSUPPORTED = b"\x00\x23"  # 35, the answer to an ApiVersions newer than the broker


def schema(name: str, version: int, side: Literal["request", "response"]) -> Any:
    """The class of a request or answer: `list_groups` → ListGroupsRequest."""
    kind: Any = EntityType.request if side == "request" else EntityType.response
    return getattr(load_entity_module(name, version, kind), name.title().replace("_", "") + side.title())


def asked(request: Any, correlation: int) -> list[Piece]:
    """The frame of a request; header v2 has an (empty) list of tagged fields, header v1 has none."""
    head = struct.pack(">hhih", int(request.__api_key__), int(request.__version__), correlation, len(_CLIENT_ID))
    body = io.BytesIO()
    entity_writer(type(request))(body, request)
    return [head + _CLIENT_ID + (b"\x00" if request.__flexible__ else b""), body.getvalue()]


def answered(name: str, version: int, frame: memoryview) -> Any:
    """The answer in a frame. Raises whatever the bytes are not: struct.error, ValueError, IndexError, SerialError."""
    if name == "api_versions" and frame[4:6] == _UNSUPPORTED:
        version = 0  # whatever was asked (KIP-511); read as a newer version it looks like no versions at all
    kind = schema(name, version, "response")
    tagged = kind.__flexible__ and name != "api_versions"  # whose answers never have the list (KIP-511)
    answer, _size = entity_reader(kind)(frame[5 if tagged else 4 :].toreadonly(), 0)
    return answer


def correlation_of(frame: memoryview) -> int:
    return int(struct.unpack_from(">i", frame, 0)[0])
