"""One connection to one broker that speaks the requests of `clusters.wire.messages.Wire`."""

from __future__ import annotations

import io
import struct
import time
from collections import deque
from typing import Any

from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.metadata.v12.response import MetadataResponse
from kio.serial import entity_writer

from clusters.errors import ProtocolError, RequestRefused, Unreachable
from clusters.settings import ConnectionSettings
from clusters.wire import error_codes, fetch, metadata_requests, produce
from clusters.wire.alignment_requests import AlignmentRequests, EncodedRequest
from clusters.wire.bootstrap import connect_to_any, remember_lost
from clusters.wire.bounded_decoding import decode_bounded
from clusters.wire.messages import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ClusterMetadata,
    FetchedPartition,
    FetchPartition,
    OffsetAnswer,
    ProducedPartition,
    ProducePartition,
    ProducerState,
)
from clusters.wire.secured_transport import open_transport
from clusters.wire.transport import FramePiece, ReceiveBuffer
from clusters.wire.versions import Api

_CLIENT_ID = "watershed"
_HEADER = struct.Struct(">hhi")  # api key, api version, correlation id
_CORRELATION = struct.Struct(">i")
_PATIENCE_S = 40.0  # above the 30 s that a Produce may wait for its replicas
_QUESTION_S = 10.0  # for what a broker answers at once: one that hangs must not hold up partitions that moved away
_FETCH_MARGIN = 1 << 20  # of a Fetch answer: what stands around the records, and the one batch that goes over


def open_connection(
    settings: ConnectionSettings, address: tuple[str, int] | None = None, client_id: str = _CLIENT_ID
) -> Connection:
    """Connect to `address`, or to the first bootstrap address that answers. client_id: what brokers' quotas go by.

    Raises Unreachable when none does, Unauthorised when either side is not who it should be, SecretMissing.
    """
    if address is not None:
        return Connection(settings, address, client_id)
    return connect_to_any(settings, lambda bootstrap: Connection(settings, bootstrap, client_id))


class Connection(AlignmentRequests):
    """See `Wire` for what each method does. Produce and Fetch may be pipelined; everything else is question and
    answer."""

    def __init__(self, settings: ConnectionSettings, address: tuple[str, int], client_id: str = _CLIENT_ID) -> None:
        self.alias, self.address = settings.alias, address
        try:
            self._transport, self.versions = open_transport(settings, address, timeout_s=_PATIENCE_S)
        except (Unreachable, ProtocolError):
            remember_lost(address)
            raise
        self._client_id = client_id.encode()
        self._correlation = 0
        self._unanswered: deque[int] = deque()
        self._picked: set[tuple[Api, int]] = set()
        self._fetched = 0  # bytes that a Fetch answer may have, as asked on this connection
        self.patience_s = _PATIENCE_S  # for the answer to a Produce, at most _PATIENCE_S
        self.throttle_ms = 0  # how long the last Fetch or Produce answer asks us to be silent (KIP-219)

    def metadata(self, topics: tuple[str, ...] | None = None) -> ClusterMetadata:
        """Waits 10 s at most; never creates a topic."""
        answer = self.ask(metadata_requests.build_metadata_request(topics), MetadataResponse, _QUESTION_S)
        return metadata_requests.build_cluster_metadata(answer)

    def fetch(
        self,
        partitions: tuple[FetchPartition, ...],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 32 << 20,
        isolation: int = READ_COMMITTED,
    ) -> list[FetchedPartition]:
        """Send one Fetch and wait for its answer. Raises ProtocolError while another request is unanswered."""
        self._require_answered()
        self.send_fetch(
            partitions, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation=isolation
        )
        return self.receive_fetch()

    def send_fetch(
        self,
        partitions: tuple[FetchPartition, ...],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 32 << 20,
        isolation: int = READ_COMMITTED,
        rack: str = "",
    ) -> None:
        """Ask without waiting: the broker gathers the answer meanwhile. rack: where we stand (KIP-392)."""
        self._fetched = max(self._fetched, max_bytes + _FETCH_MARGIN)
        body = fetch.encode_fetch_request(
            partitions,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=isolation,
            rack=rack,
        )
        self._unanswered.append(self._send(Api.FETCH, self._pick(Api.FETCH, fetch.FETCH_VERSION), [body]))

    def receive_fetch(self, room: ReceiveBuffer | None = None) -> list[FetchedPartition]:
        """Block for the answer to the oldest question of this connection, a Fetch. Its records are views into `room`,
        or else into a buffer of their own."""
        self._transport.patient_for(_QUESTION_S)
        answer = self._receive(self._unanswered.popleft(), room, self._fetched)
        self._transport.patient_for(_PATIENCE_S)
        try:
            self.throttle_ms, error, answers = fetch.decode_fetch_response(answer)
        except (struct.error, IndexError, OverflowError, ValueError) as problem:
            raise self._unintelligible("Fetch", problem) from problem
        if error:
            raise self._refused(
                f"{self._transport.address} answered a Fetch with {error_codes.describe_error_code(error)}", error
            )
        return answers

    def send_produce(
        self,
        partitions: tuple[ProducePartition, ...],
        *,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
    ) -> None:
        """Send one Produce (acks=all) without waiting. Raises RequestRefused below Kafka 4.1."""
        body = produce.encode_produce_request(partitions, timeout_ms, transactional_id)
        self._unanswered.append(self._send(Api.PRODUCE, self._pick(Api.PRODUCE, produce.PRODUCE_VERSION), body))

    def receive_produce(self) -> list[ProducedPartition]:
        """Block for the answer to the oldest question, a Produce, for `patience_s` at most."""
        self._transport.patient_for(min(self.patience_s, _PATIENCE_S))
        body = self._receive(self._unanswered.popleft())
        self._transport.patient_for(_PATIENCE_S)
        try:
            self.throttle_ms, answers = produce.decode_produce_response(body)
        except (struct.error, IndexError, OverflowError, ValueError) as problem:
            raise self._unintelligible("Produce", problem) from problem
        return answers

    def list_offsets(
        self, partitions: tuple[tuple[str, int], ...], timestamp: int, *, isolation: int = READ_UNCOMMITTED
    ) -> list[OffsetAnswer]:
        """Waits 10 s at most; the partitions' leader must be asked."""
        question = metadata_requests.build_list_offsets_request(partitions, timestamp, isolation)
        return metadata_requests.build_offset_answers(self.ask(question, ListOffsetsResponse, _QUESTION_S))

    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[ProducerState]]:
        """Waits 10 s at most. Raises ProtocolError for an answer without the partition."""
        answer = self.ask(
            metadata_requests.build_producers_request(topic, partition), DescribeProducersResponse, _QUESTION_S
        )
        return metadata_requests.build_producer_states(answer)

    def issue_producer_id(self) -> int:
        """A fresh producer id. Waits while the coordinator loads: its answer then carries -1, which would write
        without any protection (seen on 4.3.1 straight after a start)."""
        for _ in range(60):
            answer = self.ask(metadata_requests.build_producer_id_request(), InitProducerIdResponse)
            if int(answer.error_code) == error_codes.NONE and int(answer.producer_id) >= 0:
                return int(answer.producer_id)
            if int(answer.error_code) not in error_codes.COORDINATOR_MOVING_CODES:
                break
            time.sleep(0.5)
        raise self._refused(
            f"cluster {self.alias} issued no producer id: {error_codes.describe_error_code(int(answer.error_code))}; "
            "the worker needs IDEMPOTENT_WRITE on the cluster",
            int(answer.error_code),
        )

    def close(self) -> None:
        """Close the socket; answers under way are lost. Twice is once."""
        self._transport.close()

    def ended(self) -> bool:
        """Whether the broker has closed it; never waits. Always False while an answer is awaited."""
        return not self._unanswered and self._transport.ended()

    def fileno(self) -> int:
        """For poll: readable when an answer has begun to arrive."""
        return self._transport.fileno()

    @property
    def buffered(self) -> bool:
        """Whether bytes of an answer are here already that poll does not see (TLS)."""
        return self._transport.buffered

    def ask(self, question: Any, answer_type: Any, patience_s: float = _PATIENCE_S) -> Any:
        """The answer to a request built with kio's schemas (a flexible version of it), as `answer_type`."""
        self._require_answered()
        api = Api(int(question.__api_key__))
        version = self._pick(api, int(question.__version__))
        body = self._answer_to(self._send(api, version, [_encoded(question)]), patience_s)
        return self._decoded(body, answer_type)

    def _pick(self, api: Api, version: int) -> int:
        """This version, where the table and the broker have it. Raises RequestRefused, before anything is sent: an old
        broker would close the connection, which looks like an outage."""
        if (api, version) not in self._picked:
            self._picked.add((api, self.versions.pick(api, version, version)))
        return version

    def _send(self, api_key: int, version: int, body: list[FramePiece]) -> int:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        head = _HEADER.pack(api_key, version, self._correlation)
        head += len(self._client_id).to_bytes(2, "big") + self._client_id
        head += b"\x00"  # request header v2: no tagged fields; every version used here is flexible
        self._transport.send([head, *body])
        return self._correlation

    def _require_answered(self) -> None:
        if self._unanswered:
            raise ProtocolError("a question was asked while another was unanswered", alias=self.alias)

    def _answer_to(self, correlation: int, patience_s: float) -> memoryview:
        self._transport.patient_for(min(patience_s, _PATIENCE_S))
        answer = self._receive(correlation)
        self._transport.patient_for(_PATIENCE_S)
        return answer

    def _receive(self, correlation: int, room: ReceiveBuffer | None = None, expected: int = 0) -> memoryview:
        try:
            frame = self._transport.receive(room, expected)
        except (Unreachable, ProtocolError):
            remember_lost(self.address)
            raise
        (got,) = _CORRELATION.unpack_from(frame, 0)
        if got != correlation:
            self.close()
            raise ProtocolError(f"answer {got} came where {correlation} was expected", alias=self.alias)
        return frame[5:]  # response header v1: correlation id, no tagged fields

    def _decoded(self, body: memoryview, answer_type: Any) -> Any:
        try:
            return decode_bounded(answer_type, body)
        except Exception as problem:
            raise self._unintelligible(answer_type.__name__, problem) from problem

    def _unintelligible(self, what: str, problem: Exception) -> ProtocolError:
        self.close()
        return ProtocolError(f"{what} of {self._transport.address} was not understood: {problem}", alias=self.alias)

    def _refused(self, message: str, code: int) -> RequestRefused:
        error = RequestRefused(message, alias=self.alias)
        error.code = code
        return error


def _encoded(question: Any) -> bytes:
    if isinstance(question, EncodedRequest):
        return question.body
    buffer = io.BytesIO()
    entity_writer(type(question))(buffer, question)
    return buffer.getvalue()
