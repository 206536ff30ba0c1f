"""Who is in a group, and of what type it is, by the describing request of that type.

librdkafka's own describing aborts the whole process at times (see `clusters.admin_requests`), and does not know all
types.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.types import GroupId

from watershed.clusters.group_listing import GroupListing
from watershed.clusters.group_offsets import COORDINATOR_WAIT_S, GroupOffsets
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.versions import Api

DESCRIBE_GROUPS, DESCRIBE_CONSUMER = Api.DESCRIBE_GROUPS, Api.CONSUMER_GROUP_DESCRIBE
DESCRIBE_SHARE, DESCRIBE_STREAMS = Api.SHARE_GROUP_DESCRIBE, Api.STREAMS_GROUP_DESCRIBE
STREAMS_ASSIGNOR: Final = "stream"  # what an application of Kafka Streams in a classic group calls its assignor
_UNKNOWN, _UNSUPPORTED = 69, 35  # GROUP_ID_NOT_FOUND (or of another type); UNSUPPORTED_VERSION: type is switched off
_GROUPS_A_REQUEST = 200
_AWAY = -2  # LEAVE_GROUP_STATIC_MEMBER_EPOCH (KIP-848)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """instance: its `group.instance.id` (KIP-345), None for a dynamic member. away: a static member of a KIP-848 group
    that has left, and keeps its place until its session ends; brokers do not tell this of classic ones. topics: what
    it subscribes to, or was given. has_odd_subscription: it is written in a way that could not be read to its end, so
    there may be more topics."""

    client: str
    host: str
    instance: str | None = None
    away: bool = False
    topics: frozenset[str] = frozenset()
    has_odd_subscription: bool = False

    def __str__(self) -> str:
        instance = f" (group.instance.id {self.instance}{', has left' if self.away else ''})" if self.instance else ""
        return f"{self.client} at {self.host.removeprefix('/')}{instance}"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """type: `classic`, `consumer` (KIP-848), `share` (KIP-932), `streams` (KIP-1071), or `unknown` for a group that
    does not exist. assignor: of a classic group only while it is stable. internal: topics that an application of
    KIP-1071 keeps for itself, as its topology says; None where brokers are not told."""

    id: str
    type: str
    state: str
    assignor: str = ""
    members: tuple[GroupMember, ...] = ()
    internal: tuple[str, ...] | None = None

    @property
    def static(self) -> tuple[str, ...]:
        """The `group.instance.id`s of the static members, sorted."""
        return tuple(sorted(each.instance for each in self.members if each.instance is not None))


def describe_group(at: GroupOffsets, group: str) -> GroupDescription:
    """Raises ClusterError."""
    until = time.monotonic() + COORDINATOR_WAIT_S
    while True:
        inquiry = at.coordinator(group)
        code, found = _asked(inquiry, group)
        if code not in error_codes.COORDINATOR_MOVING_CODES or time.monotonic() > until:
            inquiry.check(code, f"describing group {group}")
            return found
        at.forget(group)


def _asked(inquiry: Connection, group: str) -> tuple[int, GroupDescription]:
    """The first type that knows the group; there is never more than one."""
    for key, read in _DESCRIBERS.values():
        if not any(inquiry.knows(key, version) for version in range(7)):
            continue  # brokers older than this type
        ids = (GroupId(group),)
        answer = inquiry.ask(key, groups=ids, group_ids=ids, include_authorized_operations=False)
        [found] = answer.groups
        code = int(found.error_code)
        if code not in (error_codes.NONE, _UNKNOWN, _UNSUPPORTED):
            return code, GroupDescription(group, "unknown", "Dead")
        if code == error_codes.NONE and str(found.group_state) != "Dead":
            return error_codes.NONE, read(group, found)
    return error_codes.NONE, GroupDescription(group, "unknown", "Dead")


def describe_listed_groups(inquiry: Connection, groups: Iterable[GroupListing]) -> list[GroupDescription]:
    """Those of the groups that this broker coordinates and describes to us, 200 in a request.

    A type that the broker lists, and has no request for that both know, is left out. Raises ClusterError.
    """
    by_type: dict[str, list[GroupId]] = defaultdict(list)
    for group in groups:
        by_type[group.type].append(GroupId(group.id))
    found: list[GroupDescription] = []
    for kind, ids in sorted(by_type.items()):
        key, read = _DESCRIBERS[kind]
        if not any(inquiry.knows(key, version) for version in range(7)):
            continue
        for start in range(0, len(ids), _GROUPS_A_REQUEST):
            some = tuple(ids[start : start + _GROUPS_A_REQUEST])
            answer = inquiry.ask(key, groups=some, group_ids=some, include_authorized_operations=False)
            found += [
                read(str(each.group_id), each)
                for each in answer.groups
                if int(each.error_code) == error_codes.NONE and str(each.group_state) != "Dead"
            ]
    return found


def _classic(group: str, found: Any) -> GroupDescription:
    members = tuple(_read_classic_member(each, found.protocol_type == "consumer") for each in found.members)
    return GroupDescription(group, "classic", str(found.group_state), str(found.protocol_data), members)


def _read_classic_member(member: Any, is_consumer: bool) -> GroupMember:
    topics, is_whole = _read_subscription(bytes(member.member_metadata)) if is_consumer else (frozenset[str](), True)
    return GroupMember(
        str(member.client_id),
        str(member.client_host),
        getattr(member, "group_instance_id", None),
        topics=topics,
        has_odd_subscription=not is_whole,
    )


def _consumer(group: str, found: Any) -> GroupDescription:
    members = tuple(
        GroupMember(
            str(each.client_id),
            str(each.client_host),
            each.instance_id,
            int(each.member_epoch) == _AWAY,
            frozenset(map(str, each.subscribed_topic_names)) | _given(each.assignment, each.target_assignment),
        )
        for each in found.members
    )
    return GroupDescription(group, "consumer", str(found.group_state), str(found.assignor_name), members)


def _share(group: str, found: Any) -> GroupDescription:
    members = tuple(
        GroupMember(
            str(each.client_id),
            str(each.client_host),
            topics=frozenset(map(str, each.subscribed_topic_names)) | _given(each.assignment),
        )
        for each in found.members
    )
    return GroupDescription(group, "share", str(found.group_state), str(found.assignor_name), members)


def _streams(group: str, found: Any) -> GroupDescription:
    parts = (found.topology.subtopologies or ()) if found.topology is not None else ()
    reads = frozenset(str(topic) for part in parts for topic in part.source_topics)
    members = tuple(
        GroupMember(
            str(each.client_id), str(each.client_host), each.instance_id, int(each.member_epoch) == _AWAY, reads
        )
        for each in found.members
    )
    return GroupDescription(group, "streams", str(found.group_state), "", members, tuple(sorted(set(_internal(parts)))))


def _internal(parts: Any) -> Iterator[str]:
    for part in parts:
        for topic in (*part.state_changelog_topics, *part.repartition_source_topics):
            yield str(topic.name)


def _given(*assignments: Any) -> frozenset[str]:
    return frozenset(str(each.topic_name) for given in assignments for each in given.topic_partitions)


def _read_subscription(metadata: bytes) -> tuple[frozenset[str], bool]:
    """The topics of a ConsumerProtocolSubscription (ConsumerProtocolSubscription.json: version, then names), and
    whether it could be read to the end of its names. A member that waits for its first round has none yet.

    These are bytes of the client, which no broker checks: a count or a length may be anything."""
    if not metadata:
        return frozenset(), True
    if len(metadata) < 6:
        return frozenset(), False
    (count,), at = struct.unpack_from(">i", metadata, 2), 6
    names: set[str] = set()
    for _ in range(count):
        if at + 2 > len(metadata):
            return frozenset(names), False
        (size,) = struct.unpack_from(">h", metadata, at)
        at += 2
        if size < 0 or at + size > len(metadata):
            return frozenset(names), False
        names.add(metadata[at : at + size].decode(errors="replace"))
        at += size
    return frozenset(names), count >= 0


# type → the request that describes it, and the reader of its answer; in the order in which an unknown type is tried
_DESCRIBERS: Final[Mapping[str, tuple[Api, Callable[[str, Any], GroupDescription]]]] = {
    "classic": (DESCRIBE_GROUPS, _classic),
    "consumer": (DESCRIBE_CONSUMER, _consumer),
    "share": (DESCRIBE_SHARE, _share),
    "streams": (DESCRIBE_STREAMS, _streams),
}
