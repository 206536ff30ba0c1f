"""One request as pieces of a frame, one frame as an answer, in any version that kio knows."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from kio.index import load_entity_module
from kio.serial import entity_writer
from kio.static.constants import EntityType

from clusters.errors import ProtocolError
from clusters.wire.bounded_decoding import decode_bounded
from clusters.wire.transport import FramePiece, FrameTransport

_CLIENT_ID = b"watershed"
_UNSUPPORTED = b"\x00\x23"  # 35, the answer to an ApiVersions newer than the broker


def load_message_class(name: str, version: int, side: Literal["request", "response"]) -> Any:
    """The class of a request or answer: ListGroupsRequest for `list_groups`."""
    kind: Any = EntityType.request if side == "request" else EntityType.response
    return getattr(load_entity_module(name, version, kind), name.title().replace("_", "") + side.title())


def build_request(kind: Any, values: Mapping[str, Any]) -> Any:
    """A request of this class, or a part of one. Parts may be given as mappings, in sequences; values that the class
    has no field for are left out."""
    parts = _parts(kind)
    return kind(
        **{
            key: tuple(build_request(parts[key], each) if isinstance(each, Mapping) else each for each in value)
            if key in parts and value is not None
            else value
            for key, value in values.items()
            if key in kind.__dataclass_fields__
        }
    )


@lru_cache(maxsize=1024)
def _parts(kind: Any) -> dict[str, Any]:
    """Fields that hold a tuple of other entities → their class."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        for each in (hint, *get_args(hint)):
            inner = get_args(each)[0] if get_origin(each) is tuple else None
            if is_dataclass(inner):
                found[name] = inner
    return found


def encode_request(request: Any, correlation: int) -> list[FramePiece]:
    """The frame of a request; header v2 has an (empty) list of tagged fields, header v1 has none."""
    head = struct.pack(">hhih", int(request.__api_key__), int(request.__version__), correlation, len(_CLIENT_ID))
    body = io.BytesIO()
    entity_writer(type(request))(body, request)
    return [head + _CLIENT_ID + (b"\x00" if request.__flexible__ else b""), body.getvalue()]


def decode_response(name: str, version: int, frame: memoryview) -> Any:
    """The answer in a frame. Raises whatever the bytes are not: struct.error, ValueError, IndexError, SerialError."""
    if name == "api_versions" and frame[4:6] == _UNSUPPORTED:
        version = 0  # whatever was asked (KIP-511); read as a newer version it looks like no versions at all
    kind = load_message_class(name, version, "response")
    tagged = kind.__flexible__ and name != "api_versions"  # whose answers never have the list (KIP-511)
    return decode_bounded(kind, frame[5 if tagged else 4 :])


def decode_correlation_id(frame: memoryview) -> int:
    """Returns the id of the request that this frame answers."""
    return int(struct.unpack_from(">i", frame, 0)[0])


class RequestExchange:
    """Questions to one broker, one at a time, each numbered; an answer with another number is refused.

    Raises ProtocolError for an answer that cannot be understood, and closes the connection then. Not thread-safe.
    """

    def __init__(self, transport: FrameTransport, alias: str) -> None:
        self._transport, self._alias = transport, alias
        self._correlation = 0

    def ask(self, name: str, version: int, values: Mapping[str, Any]) -> Any:
        """Send the request `name` (`list_groups`) in this version and return its decoded answer."""
        request = build_request(load_message_class(name, version, "request"), values)
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        self._transport.send(encode_request(request, self._correlation))
        frame = self._transport.receive()
        if decode_correlation_id(frame) != self._correlation:
            raise self._unintelligible(name, "it belongs to another question")
        try:
            return decode_response(name, version, frame)
        except Exception as problem:
            raise self._unintelligible(name, str(problem)) from problem

    def _unintelligible(self, name: str, why: str) -> ProtocolError:
        self._transport.close()
        text = f"the answer of {self._transport.address} to {name} was not understood: {why}"
        return ProtocolError(text, alias=self._alias)
