"""One connection to one broker: every request of ours, the data plane's and the administrator's, goes through it.

The broker is asked for its versions first (ApiVersions, before any login); each request then takes the newest version
that the broker and the table in `clusters.wire.versions` share. `Connection.ask` sends any request of the table;
`admin_reads`, `admin_writes` and `open_transactions` are functions over it.
"""

from __future__ import annotations

import math
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from watershed.clusters.errors import ProtocolError, RequestRefused, Unauthorised, Unreachable
from watershed.clusters.settings import ConnectionSettings, build_wrong_cluster_error
from watershed.clusters.wire import error_codes, fetch, metadata_requests, produce
from watershed.clusters.wire.alignment_requests import AlignmentRequests
from watershed.clusters.wire.bootstrap import connect_to_any, remember_lost
from watershed.clusters.wire.fetch import FETCH_BY_ID, FetchResponse
from watershed.clusters.wire.fetch_session import SESSION_LOST_CODES, FetchSession, SessionQuestion, build_lone_question
from watershed.clusters.wire.messages import (
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
from watershed.clusters.wire.request_codec import DEFAULT_CLIENT_ID, RequestExchange
from watershed.clusters.wire.secured_transport import open_transport
from watershed.clusters.wire.topic_names import find_topic_name, is_stand_in_id
from watershed.clusters.wire.transport import ReceiveBuffer
from watershed.clusters.wire.versions import ANY_VERSION, Api

_PATIENCE_S: Final = 40.0  # above the 30 s that a Produce may wait for its replicas
_ADMIN_S: Final = 15.0
_QUESTION_S: Final = 10.0  # for what a broker answers at once: one that hangs must not hold up partitions that moved
_FETCH_MARGIN: Final = 1 << 20  # of a Fetch answer: what stands around the records, and the one batch that goes over
# Tansu 0.6.0 looks at no log at all when it may not wait. Apache's brokers answer at once where there are records.
_LEAST_WAIT_MS: Final = 5
_SESSION_TRIES: Final = 2  # a broker that has lost a session is asked for everything at once
_PAUSE_S: Final = 1.0  # without a request by name: longer than a long poll, shorter than a topic takes to be made anew
_UNREADABLE = (struct.error, IndexError, KeyError, OverflowError, ValueError)
_REFUSALS: Final = frozenset(
    {
        error_codes.TOPIC_AUTHORIZATION_FAILED,
        error_codes.GROUP_AUTHORIZATION_FAILED,
        error_codes.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def open_connection(
    settings: ConnectionSettings,
    address: tuple[str, int] | None = None,
    client_id: str = DEFAULT_CLIENT_ID,
    *,
    timeout_s: float | None = None,
) -> Connection:
    """Connect to `address`, or to the first bootstrap address that answers. client_id: what brokers' quotas go by.

    Raises Unreachable when none does, Unauthorised when either side is not who it should be, SecretMissing; without
    `address` also WrongCluster, where settings pin another cluster.
    """

    def connect(bootstrap: tuple[str, int]) -> Connection:
        found = Connection(settings, bootstrap, client_id, timeout_s=timeout_s)
        try:
            actual = found.cluster_id() if settings.cluster_id is not None else None
            if actual != settings.cluster_id:
                raise build_wrong_cluster_error(settings, str(actual))
        except BaseException:
            found.close()
            raise
        return found

    if address is not None:
        return Connection(settings, address, client_id, timeout_s=timeout_s)
    return connect_to_any(settings, connect)


class _NamedTopics:
    """The topics of one request by name, both ways. `find_id` raises KeyError for a name that was not asked for.

    absent: (topic id, partition) of what was left out of the request, as its topic is not there any more.
    """

    def __init__(self, names: Mapping[uuid.UUID, str], absent: tuple[tuple[uuid.UUID, int], ...] = ()) -> None:
        self.find_name = names.__getitem__
        self.find_id = {name: topic_id for topic_id, name in names.items()}.__getitem__
        self.absent = absent


_BY_ID: Final = _NamedTopics({})
_Part = TypeVar("_Part", FetchPartition, ProducePartition)
_Answer = TypeVar("_Answer", FetchedPartition, ProducedPartition)


def _leave_out(partitions: tuple[_Part, ...], asked: _NamedTopics) -> tuple[_Part, ...]:
    if not asked.absent:
        return partitions
    absent = set(asked.absent)
    return tuple(part for part in partitions if (part.topic_id, part.partition) not in absent)


def _translate_missing(answer: _Answer) -> _Answer:
    """A broker that was asked by name calls a topic that it does not have UNKNOWN_TOPIC_OR_PARTITION."""
    if answer.error == error_codes.UNKNOWN_TOPIC_OR_PARTITION:
        return replace(answer, error=error_codes.UNKNOWN_TOPIC_ID)
    return answer


def _answer_unknown(topic_id: uuid.UUID, partition: int) -> FetchedPartition:
    """What a broker that takes ids says of a topic that is not there any more."""
    return FetchedPartition(topic_id, partition, error_codes.UNKNOWN_TOPIC_ID, -1, -1, -1, memoryview(b""))


class Connection(AlignmentRequests):
    """See `Wire` for what each of its methods does. Produce and Fetch may be pipelined; everything else is question and
    answer. `versions` are what the broker answered about itself. timeout_s: the longest wait for any answer (otherwise
    15 s for `ask`, 40 s for what waits for replicas).

    Raises Unreachable when the connection fails, Unauthorised when either side is not who it should be, RequestRefused
    for what this broker is too old for (before anything is sent: an old broker would close the connection, which looks
    like an outage), ProtocolError for an answer that cannot be understood. Not thread-safe.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        address: tuple[str, int],
        client_id: str = DEFAULT_CLIENT_ID,
        *,
        timeout_s: float | None = None,
    ) -> None:
        self.alias, self.address = settings.alias, address
        self._longest_s, self._admin_s = timeout_s or _PATIENCE_S, timeout_s or _ADMIN_S
        try:
            self._transport, self.versions = open_transport(settings, address, timeout_s=self._longest_s)
        except (Unreachable, ProtocolError):
            remember_lost(address)
            raise
        self._exchange = RequestExchange(self._transport, self.alias, client_id)
        self._picked: dict[Api, int] = {}  # of Produce and Fetch
        self._asked: deque[tuple[int, _NamedTopics]] = deque()  # version and topics of each Fetch and Produce under way
        self._fetched = 0  # bytes that a Fetch answer may have, as asked on this connection
        self._named_at = -math.inf  # when a request by name was sent last, on the monotonic clock
        self._cluster_id = ""  # asked for with the first request by name
        self.patience_s = self._longest_s  # for the answer to a Produce
        self.throttle_ms = 0  # how long the last Fetch or Produce answer asks us to be silent (KIP-219)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self,
        api_key: int,
        *,
        lowest: int = 0,
        highest: int = ANY_VERSION,
        patience_s: float | None = None,
        **values: Any,
    ) -> Any:
        """Returns the answer, in the newest version between `lowest` and `highest`; values that a version has no field
        for are left out. lowest, highest: between them the question means what the caller needs."""
        api = Api(api_key)
        version = self.versions.pick(api, lowest, highest)
        return self._wait(patience_s, lambda: self._exchange.ask(api.name.lower(), version, values))

    def ask_encoded(self, api: Api, encode: Callable[[int], bytes], patience_s: float | None = None) -> Any:
        """As `ask`, with the body that `encode` makes for the version."""
        version = self.versions.pick(api)
        return self._wait(patience_s, lambda: self._exchange.ask_encoded(api.name.lower(), version, encode(version)))

    def knows(self, api_key: int, version: int) -> bool:
        """Whether the broker can be asked in this version."""
        return self.versions.has_version(Api(api_key), version)

    def check(self, error_code: int, doing: str) -> None:
        """Raise for an error in an answer: Unauthorised or RequestRefused."""
        if error_code in _REFUSALS:
            raise Unauthorised(
                f"cluster {self.alias} refused {doing} ({error_codes.describe_error_code(error_code)})",
                alias=self.alias,
            )
        if error_code:
            answered = error_codes.describe_error_code(error_code)
            raise self._refused(f"cluster {self.alias} answered {answered} while {doing}", error_code)

    def topics(self) -> list[str]:
        """The names of all topics that are shown to us, sorted; none is created by asking."""
        return sorted(str(topic.name) for topic in self._metadata(None, metadata_requests.NO_AUTO_CREATION).topics)

    def cluster_id(self) -> str:
        """Returns the id that this broker reports. Raises RequestRefused below Kafka 0.11."""
        return str(self._metadata((), metadata_requests.NO_AUTO_CREATION).cluster_id)

    def brokers(self) -> dict[int, tuple[str, int]]:
        """Broker id → address, of those that live."""
        answer = self._metadata((), metadata_requests.NO_AUTO_CREATION)
        return {int(each.node_id): (str(each.host), int(each.port)) for each in answer.brokers}

    def metadata(self, topics: tuple[str, ...] | None = None) -> ClusterMetadata:
        """Waits 10 s at most; never creates a topic. Raises RequestRefused below Kafka 0.11."""
        answer = self._metadata(topics, metadata_requests.NO_AUTO_CREATION, _QUESTION_S)
        return metadata_requests.build_cluster_metadata(answer)

    def _metadata(self, topics: tuple[str, ...] | None, lowest: int, patience_s: float | None = None) -> Any:
        values = metadata_requests.build_metadata_values(topics)
        return self.ask(Api.METADATA, lowest=lowest, patience_s=patience_s, **values)

    def fetch(
        self,
        asked: tuple[FetchPartition, ...] | FetchSession,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 32 << 20,
        isolation: int = READ_COMMITTED,
        rack: str = "",
    ) -> list[FetchedPartition]:
        """Send one Fetch and wait for its answer. asked: partitions, or a session with what is wanted in it; a broker
        before topic ids (Kafka 3.1) is asked for all of that each time. rack: as for `send_fetch`.

        Raises ProtocolError while another request is unanswered.
        """
        if self._exchange.is_waiting:
            raise ProtocolError("a question was asked while another was unanswered", alias=self.alias)
        if not isinstance(asked, FetchSession) or self._pick(Api.FETCH) < FETCH_BY_ID:
            partitions = asked.list_wanted() if isinstance(asked, FetchSession) else asked
            self.send_fetch(
                partitions,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation=isolation,
                rack=rack,
            )
            return self.receive_fetch()
        for tries_left in reversed(range(_SESSION_TRIES)):
            self.send_session_fetch(
                asked,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation=isolation,
                rack=rack,
            )
            answers = self.receive_session_fetch(asked, may_be_lost=tries_left > 0)
            if answers is not None:
                break
        assert answers is not None
        return answers

    def send_session_fetch(
        self,
        session: FetchSession,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 32 << 20,
        isolation: int = READ_COMMITTED,
        rack: str = "",
    ) -> None:
        """Ask for what is wanted in a session without waiting. Only for brokers that know topics by ids. rack: as for
        `send_fetch`."""
        terms = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "isolation": isolation}
        self._send_fetch(session.build_question(), _BY_ID, terms, rack)

    def receive_session_fetch(
        self, session: FetchSession, *, may_be_lost: bool = True
    ) -> list[FetchedPartition] | None:
        """Block for the answer to it. None: the broker knows the session no more; the next question begins it anew.
        may_be_lost: otherwise that is an error."""
        answer = self._receive_fetch(None)[0]
        if answer.error in SESSION_LOST_CODES:
            session.begin_anew(forgotten=answer.error == error_codes.FETCH_SESSION_ID_NOT_FOUND)
            if may_be_lost:
                return None
        self._check_fetch(answer)
        session.take_answer(answer.session_id)
        return answer.partitions

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
        asked = _BY_ID
        if self._pick(Api.FETCH) < FETCH_BY_ID:
            asked = self._name_topics(partitions)
            partitions = _leave_out(partitions, asked)
        terms = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "isolation": isolation}
        self._send_fetch(build_lone_question(partitions), asked, terms, rack)

    def _send_fetch(
        self, question: SessionQuestion, asked: _NamedTopics, terms: Mapping[str, int], rack: str = ""
    ) -> None:
        version = self._pick(Api.FETCH)
        self._fetched = max(self._fetched, terms["max_bytes"] + _FETCH_MARGIN)
        terms = {**terms, "max_wait_ms": max(terms["max_wait_ms"], _LEAST_WAIT_MS)}
        body = fetch.encode_fetch_request(version, question, asked.find_name, rack=rack, **terms)
        self._exchange.send("fetch", version, [body])
        self._asked.append((version, asked))

    def receive_fetch(self, room: ReceiveBuffer | None = None) -> list[FetchedPartition]:
        """Block for the answer to the oldest question of this connection, a Fetch. Its records are views into `room`,
        or else into a buffer of their own.

        A partition whose topic has another id by now is answered with UNKNOWN_TOPIC_ID, also by a broker that was asked
        by name. Raises ProtocolError for such an answer while another question is open, as it could not be checked.
        """
        answer, asked = self._receive_fetch(room)
        self._check_fetch(answer)
        return answer.partitions if asked is _BY_ID else self._confirm_topics(asked, answer.partitions)

    def _receive_fetch(self, room: ReceiveBuffer | None) -> tuple[FetchResponse, _NamedTopics]:
        body = self._wait(_QUESTION_S, lambda: self._exchange.receive(room, self._fetched))
        version, asked = self._asked.popleft()
        try:
            answer = fetch.decode_fetch_response(version, body, asked.find_id)
        except _UNREADABLE as problem:
            raise self._exchange.refuse_answer("fetch", problem) from problem
        self.throttle_ms = answer.throttle_ms
        return answer, asked

    def _check_fetch(self, answer: FetchResponse) -> None:
        if answer.error:
            said = error_codes.describe_error_code(answer.error)
            raise self._refused(f"{self._transport.address} answered a Fetch with {said}", answer.error)

    def send_produce(
        self,
        partitions: tuple[ProducePartition, ...],
        *,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
    ) -> None:
        """Send one Produce (acks=all) without waiting."""
        version = self._pick(Api.PRODUCE)
        asked = _BY_ID
        if version < produce.PRODUCE_BY_ID:
            asked = self._name_topics(partitions)
            partitions = _leave_out(partitions, asked)
        body = produce.encode_produce_request(version, partitions, asked.find_name, timeout_ms, transactional_id)
        self._exchange.send("produce", version, body)
        self._asked.append((version, asked))

    def receive_produce(self) -> list[ProducedPartition]:
        """Block for the answer to the oldest question, a Produce, for `patience_s` at most."""
        body = self._wait(self.patience_s, self._exchange.receive)
        version, asked = self._asked.popleft()
        try:
            self.throttle_ms, answers = produce.decode_produce_response(version, body, asked.find_id)
        except _UNREADABLE as problem:
            raise self._exchange.refuse_answer("produce", problem) from problem
        if asked is _BY_ID:
            return answers
        unknown = (ProducedPartition(*each, error_codes.UNKNOWN_TOPIC_ID, -1, -1) for each in asked.absent)
        return [*map(_translate_missing, answers), *unknown]

    def list_offsets(
        self,
        partitions: tuple[tuple[str, int], ...],
        timestamp: int,
        *,
        isolation: int = READ_UNCOMMITTED,
        unreplicated: bool = False,
    ) -> list[OffsetAnswer]:
        """Waits 10 s at most; the partitions' leader must be asked. unreplicated: LATEST is the end of the leader's own
        log then, with what its followers do not have yet. Raises ProtocolError for an answer without a partition."""
        values = metadata_requests.build_list_offsets_values(partitions, timestamp, isolation, unreplicated)
        answer = self.ask(Api.LIST_OFFSETS, patience_s=_QUESTION_S, **values)
        return metadata_requests.build_offset_answers(answer, partitions)

    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[ProducerState]]:
        """Waits 10 s at most. Raises ProtocolError for an answer without the partition."""
        return self.describe_producers_of(((topic, partition),))[topic, partition]

    def describe_producers_of(
        self, partitions: tuple[tuple[str, int], ...]
    ) -> dict[tuple[str, int], tuple[int, list[ProducerState]]]:
        """As `describe_producers`, of many partitions in one request, by (topic, partition)."""
        values = metadata_requests.build_producers_values(partitions)
        answer = self.ask(Api.DESCRIBE_PRODUCERS, patience_s=_QUESTION_S, **values)
        return metadata_requests.build_producer_states(answer, partitions)

    def issue_producer_id(self) -> int:
        """A fresh producer id. Waits while the coordinator loads: its answer then carries -1, which would write
        without any protection (seen on 4.3.1 straight after a start)."""
        for _ in range(60):
            values = metadata_requests.build_producer_id_values(None, metadata_requests.LONGEST_TRANSACTION_MS)
            answer = self.ask(Api.INIT_PRODUCER_ID, patience_s=self._longest_s, **values)
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
        return not self._exchange.is_waiting and self._transport.ended()

    def fileno(self) -> int:
        """For poll: readable when an answer has begun to arrive."""
        return self._transport.fileno()

    @property
    def buffered(self) -> bool:
        """Whether bytes of an answer are here already that poll does not see (TLS)."""
        return self._transport.buffered

    def _name_topics(self, partitions: Iterable[FetchPartition | ProducePartition]) -> _NamedTopics:
        """The names that a request without ids needs. A topic that is not there any more has none.

        The broker is asked whether names and ids still belong together: with the first request of a connection (its
        address may lead to another cluster by now) and after a pause, as far as no answer is awaited.
        """
        ids = {part.topic_id for part in partitions}
        now = time.monotonic()
        is_due = now - self._named_at > _PAUSE_S
        if is_due and not self._exchange.is_waiting:
            found = self.metadata(tuple(sorted(name for name in map(find_topic_name, ids) if name is not None)))
            self._cluster_id, is_due = found.cluster_id, False
        if not is_due:
            self._named_at = now
        names = {topic_id: find_topic_name(topic_id, self._cluster_id) for topic_id in ids}
        if None in names.values() and not self._exchange.is_waiting:
            self.metadata(None)
            names = {topic_id: find_topic_name(topic_id, self._cluster_id) for topic_id in ids}
        known = {topic_id: name for topic_id, name in names.items() if name is not None}
        return _NamedTopics(
            known, tuple((part.topic_id, part.partition) for part in partitions if part.topic_id not in known)
        )

    def _confirm_topics(self, asked: _NamedTopics, answers: list[FetchedPartition]) -> list[FetchedPartition]:
        """The same answers, with UNKNOWN_TOPIC_ID for a topic that was made anew under its name.

        The broker is asked after it has read: it shows a new topic, or none, before it opens the new log. That holds
        with ZooKeeper (UpdateMetadata says that a topic is being deleted before StopReplica) and with KRaft
        (BrokerMetadataPublisher).
        """
        told = {
            each.topic_id
            for each in answers
            if (each.records or each.diverging_epoch is not None) and not is_stand_in_id(each.topic_id)
        }
        if told:
            found = self.metadata(tuple(sorted(map(asked.find_name, told))))
            gone = told - {topic.topic_id for topic in found.topics}
            answers = [
                _answer_unknown(each.topic_id, each.partition) if each.topic_id in gone else each for each in answers
            ]
        return [*map(_translate_missing, answers), *(_answer_unknown(*each) for each in asked.absent)]

    def _pick(self, api: Api) -> int:
        """The version of a request that is sent all the time, looked for once."""
        version = self._picked.get(api)
        if version is None:
            version = self._picked[api] = self.versions.pick(api)
        return version

    def _wait(self, patience_s: float | None, receive: Callable[[], Any]) -> Any:
        """What `receive` returns, which waits for an answer so long at most."""
        self._transport.patient_for(min(patience_s or self._admin_s, self._longest_s))
        try:
            answer = receive()
        except (Unreachable, ProtocolError):
            remember_lost(self.address)
            raise
        self._transport.patient_for(self._longest_s)
        return answer

    def _refused(self, message: str, code: int) -> RequestRefused:
        error = RequestRefused(message, alias=self.alias)
        error.code = code
        return error
