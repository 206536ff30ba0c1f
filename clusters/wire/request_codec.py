"""One request as pieces of a frame, one frame as an answer, in any version that kio knows; and both in order."""

from __future__ import annotations

import io
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from kio.index import load_entity_module
from kio.serial import entity_writer
from kio.static.constants import EntityType

from watershed.clusters.errors import ProtocolError
from watershed.clusters.wire.bounded_decoding import decode_bounded
from watershed.clusters.wire.describe_transactions import DescribeTransactionsAnswer
from watershed.clusters.wire.first_versions import build_first_version, has_first_version
from watershed.clusters.wire.transport import FramePiece, FrameTransport, ReceiveBuffer

DEFAULT_CLIENT_ID: Final = "watershed"
_CORRECTED = {("describe_transactions", 0, "response"): DescribeTransactionsAnswer}  # in place of kio's
_HEADER = struct.Struct(">hhih")  # api key, api version, correlation id, length of the client id
_UNSUPPORTED = b"\x00\x23"  # 35, the answer to an ApiVersions newer than the broker


@lru_cache(maxsize=1024)
def load_message_class(name: str, version: int, side: Literal["request", "response"]) -> Any:
    """The class of a request or answer: ListGroupsRequest for `list_groups`."""
    if (name, version, side) in _CORRECTED:
        return _CORRECTED[name, version, side]
    if has_first_version(name, version):
        return build_first_version(name, side)
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


def encode_entity(entity: Any) -> bytes:
    """The bytes of a request, or of a part of one."""
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    return body.getvalue()


def decode_response(name: str, version: int, body: memoryview) -> Any:
    """The answer in a body. Raises whatever the bytes are not: struct.error, ValueError, IndexError, SerialError."""
    if name == "api_versions" and body[:2] == _UNSUPPORTED:
        version = 0  # whatever was asked (KIP-511); read as a newer version it looks like no versions at all
    return decode_bounded(load_message_class(name, version, "response"), body)


class _Sent(NamedTuple):
    correlation: int
    name: str
    version: int


class RequestExchange:
    """Requests to one broker, each numbered, and their answers, which come in the same order. An answer with another
    number is refused.

    Raises ProtocolError for an answer that cannot be understood, and closes the connection then. Not thread-safe.
    """

    def __init__(self, transport: FrameTransport, alias: str, client_id: str = DEFAULT_CLIENT_ID) -> None:
        self._transport, self._alias, self._client_id = transport, alias, client_id.encode()
        self._correlation = 0
        self._unanswered: deque[_Sent] = deque()

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._unanswered)

    def ask(self, name: str, version: int, values: Mapping[str, Any]) -> Any:
        """Send the request `name` (`list_groups`) in this version and return its decoded answer."""
        body = encode_entity(build_request(load_message_class(name, version, "request"), values))
        return self.ask_encoded(name, version, body)

    def ask_encoded(self, name: str, version: int, body: bytes) -> Any:
        """As `ask`, with a body that is bytes already."""
        if self._unanswered:
            raise ProtocolError("a question was asked while another was unanswered", alias=self._alias)
        self.send(name, version, [body])
        answer = self.receive()
        try:
            return decode_response(name, version, answer)
        except Exception as problem:
            raise self.refuse_answer(name, problem) from problem

    def send(self, name: str, version: int, body: Sequence[FramePiece]) -> None:
        """Send a request without waiting. Header v2 has an (empty) list of tagged fields, header v1 has none."""
        kind = load_message_class(name, version, "request")
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        head = _HEADER.pack(int(kind.__api_key__), version, self._correlation, len(self._client_id)) + self._client_id
        self._transport.send([head + b"\0" if kind.__flexible__ else head, *body])
        self._unanswered.append(_Sent(self._correlation, name, version))

    def receive(self, room: ReceiveBuffer | None = None, expected: int = 0) -> memoryview:
        """The body of the answer to the oldest request, in `room` or in a buffer of its own. expected: its bytes."""
        sent = self._unanswered.popleft()
        frame = self._transport.receive(room, expected)
        if struct.unpack_from(">i", frame)[0] != sent.correlation:
            raise self.refuse_answer(sent.name, "it belongs to another question")
        # Answers to ApiVersions never have the list of tagged fields (KIP-511).
        tagged = sent.name != "api_versions" and load_message_class(sent.name, sent.version, "response").__flexible__
        return frame[5 if tagged else 4 :]

    def refuse_answer(self, name: str, why: object) -> ProtocolError:
        """Close the connection, whose next answers nobody can tell apart. Returns the error to raise."""
        self._transport.close()
        text = f"the answer of {self._transport.address} to {name} was not understood: {why}"
        return ProtocolError(text, alias=self._alias)
