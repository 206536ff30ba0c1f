"""One line of a broker's request log: which client asked for what.

Brokers write a line for each request when `kafka.request.logger` is at DEBUG or TRACE. Since Kafka 2.8 the line has the
request and its answer as JSON (KIP-673); before, both are texts of their own kind. The layouts read here were seen on
brokers of 2.4.1, 2.8.2 and 4.3.1.

Text lines do not escape: a client id can hold anything. What cannot be told apart for sure is `UnreadableLine`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Final

COMPLETED_MARK: Final = "Completed request:"
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})(Z|[+-]\d\d:?\d\d)?")
_HEADER = re.compile(
    r"RequestHeader\(apiKey=(\w+), apiVersion=\d+, clientId=(.*?), correlationId=-?\d+\) -- ", re.DOTALL
)
_TAIL = re.compile(r",principal:(.*),listener:[^,]*(?:,clientInformation:ClientInformation\((.*)\))?")
_SOFTWARE = re.compile(r"softwareName=(.*), softwareVersion=(.*)")
_TOPIC = re.compile(r"[{\[](?:topic|name)=([a-zA-Z0-9._-]+),")
_SIZED_TOPIC = re.compile(r"(?<=[\[ ,])([a-zA-Z0-9._-]+)-\d+=\d+(?=[,\]])")
_FIELDS = {
    name: re.compile(rf"[{{,]{name}=([^,{{}}]*)[,}}]")
    for name in ("group_id", "transactional_id", "producer_id", "replica_id", "generation_id")
}
_TOPIC_REFUSED: Final = 29  # TOPIC_AUTHORIZATION_FAILED

# Between brokers and controllers; and what a client sends before the broker knows who it is.
_LEFT_OUT: Final = frozenset(
    {
        *("API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE"),
        *("LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN", "WRITE_TXN_MARKERS", "ENVELOPE"),
        *("VOTE", "BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH", "FETCH_SNAPSHOT", "ALTER_PARTITION", "ALTER_ISR"),
        *("BROKER_REGISTRATION", "BROKER_HEARTBEAT", "UNREGISTER_BROKER", "ALLOCATE_PRODUCER_IDS"),
        *("CONTROLLER_REGISTRATION", "ASSIGN_REPLICAS_TO_DIRS", "UPDATE_RAFT_VOTER", "OFFSET_FOR_LEADER_EPOCH"),
        *("INITIALIZE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE", "WRITE_SHARE_GROUP_STATE"),
        *("DELETE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE_SUMMARY"),
    }
)
_READING: Final = frozenset({"FETCH", "SHARE_FETCH", "SHARE_ACKNOWLEDGE"})
_SUBSCRIBING: Final = frozenset({"CONSUMER_GROUP_HEARTBEAT", "SHARE_GROUP_HEARTBEAT"})
# By a member of the group; tools ask for groups' offsets, too.
_OF_MEMBERS: Final = frozenset(
    {
        *("JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT", "SHARE_GROUP_HEARTBEAT"),
        *("STREAMS_GROUP_HEARTBEAT", "SHARE_FETCH", "SHARE_ACKNOWLEDGE"),
    }
)
_COMMITTING: Final = frozenset({"OFFSET_COMMIT", "TXN_OFFSET_COMMIT"})
_WRITING: Final = frozenset({"PRODUCE", "ADD_PARTITIONS_TO_TXN"})


class UnreadableLine(ValueError):
    """A line about a request that is cut off, of another layout, or not to be told apart."""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """principal as Kafka prints it (`User:app`). address: the broker's own, host: the client's. group: of which it is a
    member. transactional_id and producer_id: None where the request has none. reads, writes: topics by name, or as
    `id:…` where the request has an id only. refused: topics that the broker did not let it use."""

    ms: int
    api: str
    principal: str
    client_id: str
    address: str
    host: str
    software: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def parse_request_line(line: str, zone: tzinfo) -> LoggedRequest | None:
    """None for a line that is not about a client's request: another logger's, or what brokers ask each other.

    zone: of times without one. Raises UnreadableLine.
    """
    head, mark, body = line.partition(COMPLETED_MARK)
    if not mark:
        return None
    ms = _parse_time(head, zone)
    try:
        return _parse_json(ms, body) if body.startswith("{") else _parse_text(ms, body)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise UnreadableLine(str(problem)) from None


def _parse_time(head: str, zone: tzinfo) -> int:
    found = _TIME.search(head)
    if found is None:
        raise UnreadableLine("no time stands before the request")
    day, clock, millis, offset = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{(offset or '').replace('Z', '+00:00')}")
        seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())
    except (ValueError, OverflowError) as problem:
        raise UnreadableLine(str(problem)) from None
    return seconds * 1000 + int(millis)


def _parse_json(ms: int, body: str) -> LoggedRequest | None:
    """Behind the document stands what the layout adds, such as the logger's name."""
    document, _ = json.JSONDecoder().raw_decode(body)
    header, request, response = document["requestHeader"], document["request"] or {}, document.get("response") or {}
    api = str(header["requestApiKeyName"])
    if api in _LEFT_OUT or _is_of_broker(request):
        return None
    allowed, refused = _split_refused(_list_topics(request), response)
    of_member = api in _OF_MEMBERS or (api in _COMMITTING and _has_generation(request))
    reads, writes = _split_uses(api, allowed, request.get("subscribedTopicNames") or (), of_member)
    address, host = _split_connection(str(document["connection"]))
    information = document.get("clientInformation") or {}
    return LoggedRequest(
        ms,
        api,
        str(document["principal"]),
        str(header.get("clientId") or ""),
        address,
        host,
        _name_software(information.get("softwareName"), information.get("softwareVersion")),
        (request.get("groupId") or None) if of_member else None,
        request.get("transactionalId") or request.get("v3AndBelowTransactionalId") or None,
        _find_producer_id(api, request, response),
        reads,
        writes,
        refused,
    )


def _is_of_broker(request: Mapping[str, Any]) -> bool:
    """A follower's Fetch, or one of a controller; and AddPartitionsToTxn by a broker (from version 4 on, KIP-890)."""
    state = request.get("replicaState") or {}
    replica = max(int(request.get("replicaId", -1)), int(state.get("replicaId", -1)))
    return replica >= 0 or bool(request.get("transactions"))


def _has_generation(request: Mapping[str, Any]) -> bool:
    """A commit by a member of a group; tools commit without a generation."""
    return int(request.get("generationIdOrMemberEpoch", request.get("generationId", -1))) >= 0


def _list_topics(request: Mapping[str, Any]) -> list[str]:
    rows = request.get("topicData") or request.get("topics") or request.get("v3AndBelowTopics") or ()
    return [name for row in rows if (name := _name_topic(row))]


def _name_topic(row: Any) -> str:
    """Requests name topics by `name` or `topic`, newer ones by id. Some hold plain names."""
    if not isinstance(row, Mapping):
        return str(row)
    name = row.get("name") or row.get("topic")
    return str(name) if name else f"id:{row['topicId']}" if row.get("topicId") else ""


def _split_refused(topics: Iterable[str], response: Mapping[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    """A topic is refused when the answer has no partition of it without TOPIC_AUTHORIZATION_FAILED."""
    codes: dict[str, set[int]] = {}
    rows = response.get("responses") or response.get("topics") or response.get("resultsByTopicV3AndBelow") or ()
    for row in rows if isinstance(rows, list) else ():
        parts = row.get("partitionResponses") or row.get("partitions") or row.get("resultsByPartition") or ()
        codes.setdefault(_name_topic(row), set()).update(
            int(part.get("errorCode", part.get("partitionErrorCode", 0))) for part in parts
        )
    named = list(dict.fromkeys(topics))
    refused = tuple(topic for topic in named if codes.get(topic) == {_TOPIC_REFUSED})
    return [topic for topic in named if topic not in refused], refused


def _split_uses(
    api: str, topics: Iterable[str], subscribed: Iterable[str], of_member: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the request shows to be read, and written."""
    if api in _WRITING:
        return (), tuple(topics)
    if api in _READING or (api == "OFFSET_COMMIT" and of_member):
        return tuple(topics), ()
    return (tuple(map(str, subscribed)), ()) if api in _SUBSCRIBING else ((), ())


def _find_producer_id(api: str, request: Mapping[str, Any], response: Mapping[str, Any]) -> int | None:
    """The number that a cluster gives in its answer to InitProducerId, and that transactions are opened with."""
    if api == "INIT_PRODUCER_ID":
        given = int(response.get("producerId", -1))
    else:
        given = int(request.get("producerId", request.get("v3AndBelowProducerId", -1)))
    return given if given >= 0 else None


def _name_software(name: object, version: object) -> str | None:
    """None where the client did not say (before KIP-511, Kafka 2.4)."""
    said = [str(each) for each in (name, version) if each and each != "unknown"]
    return " ".join(said) or None


def _split_connection(text: str) -> tuple[str, str]:
    """`broker:9092-client:51000-0-3`: the broker's address, and the client's host. Hosts may hold hyphens."""
    found = re.fullmatch(r"(.+?:\d+)-(.+):\d+(?:-\d+)+", text)
    if found is None:
        raise UnreadableLine(f"this is no connection: {text[:80]}")
    return found[1], found[2]


def _parse_text(ms: int, body: str) -> LoggedRequest | None:
    """Kafka before 2.8. A client id that looks like the end of the header makes the line unreadable."""
    header = _HEADER.match(body)
    asked, connected, rest = body.rpartition(" from connection ")
    if header is None or not connected or asked.count(", correlationId=") != 1:
        raise UnreadableLine("the request's header cannot be told apart")
    connection, _, measured = rest.partition(";")
    tail = _TAIL.search(measured)
    if tail is None:
        raise UnreadableLine("no principal stands behind the request")
    api, client_id = header.groups()
    request, _, response = asked[header.end() :].partition(",response:")
    if api in _LEFT_OUT or int(_find_field("replica_id", request) or -1) >= 0:
        return None
    topics, refused = _split_text_topics(api, request, response)
    of_member = api in _OF_MEMBERS or (api in _COMMITTING and int(_find_field("generation_id", request) or -1) >= 0)
    reads, writes = _split_uses(api, topics, (), of_member)
    address, host = _split_connection(connection)
    software = _SOFTWARE.fullmatch(tail[2]) if tail[2] else None
    number = _find_field("producer_id", response if api == "INIT_PRODUCER_ID" else request)
    return LoggedRequest(
        ms,
        api,
        tail[1],
        client_id,
        address,
        host,
        _name_software(*software.groups()) if software else None,
        _find_field("group_id", request) if of_member else None,
        _find_field("transactional_id", request),
        int(number) if number is not None and int(number) >= 0 else None,
        reads,
        writes,
        refused,
    )


def _split_text_topics(api: str, request: str, response: str) -> tuple[list[str], tuple[str, ...]]:
    """At DEBUG the text of a Produce has no topics: those of its answer count. Texts say for a whole request only
    whether it was refused."""
    found = [*_TOPIC.findall(request), *(_SIZED_TOPIC.findall(request) if api == "PRODUCE" else ())]
    named = list(dict.fromkeys(found or (_TOPIC.findall(response) if api == "PRODUCE" else ())))
    if f"error_code={_TOPIC_REFUSED}" in response and "error_code=0" not in response:
        return [], tuple(named)
    return named, ()


def _find_field(name: str, text: str) -> str | None:
    found = _FIELDS[name].search(text)
    return found[1] if found is not None and found[1] not in ("", "null") else None
