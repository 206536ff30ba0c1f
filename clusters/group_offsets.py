"""The groups of one cluster with what is committed for them, many groups a request (KIP-709), of every type.

librdkafka reads one group a request, does not hand back what share groups hold, and describes groups unsafely (see
`clusters.admin_requests`). Here every round asks the brokers anew over raw connections: coordinators move, sessions
expire, secrets rotate, and a round is rare.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

from kio.schema.alter_share_group_offsets.v0 import request as alter_share
from kio.schema.describe_share_group_offsets.v1 import request as share
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.offset_commit.v8 import request as offset_commit
from kio.schema.offset_fetch.v9 import request as offset_fetch
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from watershed.clusters.errors import RequestRefused, Unauthorised
from watershed.clusters.pending_commits import (
    TELLS_UNSTABLE,
    count_offsets_partitions,
    find_pending_groups,
    is_coordinator_loading,
    read_settled_positions,
)
from watershed.clusters.settings import ConnectionSettings, build_wrong_cluster_error
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import admin_reads, error_codes
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.metadata_requests import build_metadata_values
from watershed.clusters.wire.versions import SUPPORT, Api

_GROUPS_A_REQUEST: Final = 200
COORDINATOR_WAIT_S = 10.0  # for a cluster to make its offsets topic, or to move it
_UNSTABLE = 88  # UNSTABLE_OFFSET_COMMIT: part of a transaction that is still open (KIP-447)
_GROUP_UNKNOWN = 69  # GROUP_ID_NOT_FOUND
_NOT_SAID = -1  # UNKNOWN_SERVER_ERROR: the answer leaves the group out
# of a share group's partition: it has a start offset or none, its topic is gone, or is not shown to this user
_NOT_SHOWN = frozenset(
    {error_codes.NONE, error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.TOPIC_AUTHORIZATION_FAILED}
)
# UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP: a group that came alive; the first two are how commits from
# outside into a live group are refused
_ALIVE = frozenset({25, 27, 68})


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """state in Kafka's spelling; type `classic`, `consumer` (KIP-848), `share` (KIP-932) or `streams` (KIP-1071).
    protocol: of a classic group what its members speak: `consumer`, `connect`, ...; empty for one that only commits."""

    id: str
    state: str
    type: str = "classic"
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """An offset as it is committed, with the text that brokers keep beside it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """What is committed for a group. unstable: partitions whose commit is part of an open transaction, or cannot be
    told now. error: why nothing is known; is_unauthorised: this account may not know it. lag: of share groups, how
    many offsets from the start offset to the log's end are not done with (KIP-1226; brokers before 4.2 do not tell)."""

    positions: Mapping[TopicPartition, CommittedPosition] = field(default_factory=dict)
    unstable: frozenset[TopicPartition] = frozenset()
    error: str = ""
    is_unauthorised: bool = False
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """topic_id: as text; start, stable (where committed records end), end: offsets."""

    topic_id: str
    start: int
    stable: int
    end: int


class GroupOffsets:
    """A round of questions to one cluster, the one that `settings` pins. Raises ClusterError; not thread-safe."""

    def __init__(self, settings: ConnectionSettings, timeout_s: float = 15.0) -> None:
        self.settings = settings
        self._pool = BrokerPool(partial(open_connection, settings, timeout_s=timeout_s))
        self._brokers: dict[int, tuple[str, int]] = {}
        self._coordinators: dict[str, int] = {}
        self._moved: set[str] = set()  # groups whose coordinator said that it is not, or not yet
        self.cluster_id = ""

    def __enter__(self) -> Self:
        try:
            answer = self._first().ask(Api.METADATA, lowest=2, **build_metadata_values(()))
        except BaseException:
            self._pool.close()
            raise
        self.cluster_id = str(answer.cluster_id)
        if self.settings.cluster_id not in (None, self.cluster_id):
            self._pool.close()
            raise build_wrong_cluster_error(self.settings, self.cluster_id)
        self._brokers = {int(each.node_id): (str(each.host), int(each.port)) for each in answer.brokers}
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def listed(self) -> dict[str, ListedGroup]:
        """Every group that is shown to this user, by id."""
        found: dict[str, ListedGroup] = {}
        for node in sorted(self._brokers):
            found |= self._listed_at(node, None)
        return found

    def find_listed(self, groups: Iterable[str]) -> dict[str, ListedGroup]:
        """These groups by id, as the brokers list them that are known as their coordinators. One that moves to another
        coordinator now is left out, as is one that does not exist."""
        found: dict[str, ListedGroup] = {}
        for node, ids in self._by_coordinator(groups, {}):
            found |= self._listed_at(node, frozenset(ids))
        return found

    def _listed_at(self, node: int, only: Collection[str] | None) -> dict[str, ListedGroup]:
        found: dict[str, ListedGroup] = {}
        inquiry = self._to(node)
        answer = inquiry.ask(Api.LIST_GROUPS, states_filter=(), types_filter=())
        inquiry.check(int(answer.error_code), "listing groups")
        groups = [each for each in answer.groups if only is None or str(each.group_id) in only]
        states = _read_states(inquiry, groups)
        for each in groups:
            kind = str(getattr(each, "group_type", "") or "classic").lower()
            state = states.get(str(each.group_id), "")
            if state != "Dead":
                found[str(each.group_id)] = ListedGroup(str(each.group_id), state, kind, str(each.protocol_type))
        return found

    def held(self, groups: Iterable[str], *, stable: bool = True) -> dict[str, CommittedOffsets]:
        """What is committed for consumer groups, whatever their topics. A group that does not exist holds nothing.
        stable: positions of which a transaction is open are told as such; otherwise as they were before it."""
        until = time.monotonic() + COORDINATOR_WAIT_S
        found = self._held_now(groups, stable)
        while self._moved and time.monotonic() < until:
            found |= self._held_now(self._forgotten(), stable)
        self._moved.clear()
        return found

    def _held_now(self, groups: Iterable[str], stable: bool) -> dict[str, CommittedOffsets]:
        found: dict[str, CommittedOffsets] = {}
        for node, ids in self._by_coordinator(groups, found):
            inquiry = self._to(node)
            if inquiry.knows(Api.OFFSET_FETCH, 8):
                for some in _batches(ids, _GROUPS_A_REQUEST):
                    wanted = tuple(
                        offset_fetch.OffsetFetchRequestGroup(group_id=GroupId(each), topics=None) for each in some
                    )
                    answer = inquiry.ask(Api.OFFSET_FETCH, lowest=8, groups=wanted, require_stable=stable)
                    for group in answer.groups:
                        found[str(group.group_id)] = self._held(str(group.group_id), group)
            else:
                found |= self._held_one_by_one(inquiry, ids, stable)
        return found

    def _held_one_by_one(self, inquiry: Connection, ids: list[str], stable: bool) -> dict[str, CommittedOffsets]:
        """By the OffsetFetch of Kafka before 3.0. One before 2.5 does not say what is part of an open transaction: then
        all positions of a group that may have one cannot be told now."""

        def read(groups: list[str]) -> dict[str, CommittedOffsets]:
            every = partial(inquiry.ask, Api.OFFSET_FETCH, highest=7, topics=None, require_stable=stable)
            return {each: self._held(each, every(group_id=GroupId(each))) for each in groups}

        if not stable or inquiry.knows(Api.OFFSET_FETCH, TELLS_UNSTABLE):
            return read(ids)
        try:
            pending = self._find_pending(ids)
        except Unauthorised as error:
            return dict.fromkeys(ids, CommittedOffsets(error=str(error), is_unauthorised=True))
        found, unsettled = read_settled_positions(ids, read, partial(is_coordinator_loading, inquiry))
        for each in pending | unsettled:
            if not found[each].error:  # of one that cannot be read nothing is known
                found[each] = CommittedOffsets(unstable=frozenset(found[each].positions))
        return found

    def _find_pending(self, groups: list[str]) -> frozenset[str]:
        """Raises Unauthorised where `__consumer_offsets` is not shown to this user."""
        partitions = count_offsets_partitions(self._first())
        if partitions is None:
            return frozenset(groups)

        def read_ends(places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
            return {place: (log.stable, log.end) for place, log in self.logs(places).items()}

        return find_pending_groups(groups, partitions, read_ends)

    def read_share_offsets(self, groups: Iterable[str]) -> dict[str, CommittedOffsets]:
        """The start offsets of share groups: everything below is done with. Partitions without one are left out."""
        found: dict[str, CommittedOffsets] = {}
        for node, ids in self._by_coordinator(groups, found):
            for some in _batches(ids, _GROUPS_A_REQUEST):
                wanted = tuple(
                    share.DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(each), topics=None) for each in some
                )
                for group in self._to(node).ask(Api.DESCRIBE_SHARE_GROUP_OFFSETS, groups=wanted).groups:
                    found[str(group.group_id)] = self._share_held(group)
        return found

    def commit(self, group: str, positions: Mapping[TopicPartition, CommittedPosition]) -> dict[TopicPartition, str]:
        """Commit for a group from outside; why not, by partition. No leader epoch goes along: one of another cluster
        makes the Java consumer read nothing. A live group is refused by its coordinator."""
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for place, position in sorted(positions.items()):
            by_topic[place.topic].append(
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=i32(place.partition),
                    committed_offset=i64(position.offset),
                    committed_metadata=position.metadata,
                )
            )
        topics = tuple(
            offset_commit.OffsetCommitRequestTopic(name=TopicName(name), partitions=tuple(parts))
            for name, parts in by_topic.items()
        )
        until = time.monotonic() + COORDINATOR_WAIT_S
        while True:
            errors = self._commit_now(group, topics, positions)
            if not self._moved or time.monotonic() > until:
                self._moved.clear()
                return errors
            self._forgotten()

    def _commit_now(
        self, group: str, topics: tuple[Any, ...], positions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, str]:
        inquiry, error = self._coordinator(group)
        if inquiry is None:
            return dict.fromkeys(positions, error)
        answer = inquiry.ask(
            Api.OFFSET_COMMIT, group_id=GroupId(group), member_id="", topics=topics,
            generation_id=i32(-1), generation_id_or_member_epoch=i32(-1),
        )  # fmt: skip
        errors = {
            TopicPartition(str(topic.name), int(part.partition_index)): int(part.error_code)
            for topic in answer.topics
            for part in topic.partitions
            if int(part.error_code) != error_codes.NONE
        }
        if any(code in error_codes.COORDINATOR_MOVING_CODES for code in errors.values()):
            self._moved.add(group)
        return {place: self._refusal(code, "a commit") for place, code in errors.items()}

    def alter_share(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Set the start offsets of a share group without members; why not, by partition."""
        by_topic: dict[str, list[Any]] = defaultdict(list)
        for place, offset in sorted(offsets.items()):
            by_topic[place.topic].append(
                alter_share.AlterShareGroupOffsetsRequestPartition(
                    partition_index=i32(place.partition), start_offset=i64(offset)
                )
            )
        topics = tuple(
            alter_share.AlterShareGroupOffsetsRequestTopic(topic_name=TopicName(name), partitions=tuple(parts))
            for name, parts in by_topic.items()
        )
        inquiry, error = self._coordinator(group)
        if inquiry is None:
            return dict.fromkeys(offsets, error)
        answer = inquiry.ask(Api.ALTER_SHARE_GROUP_OFFSETS, group_id=GroupId(group), topics=topics)
        if int(answer.error_code) != error_codes.NONE:
            return dict.fromkeys(offsets, self._refusal(int(answer.error_code), "setting the start offsets"))
        return {
            TopicPartition(str(topic.topic_name), int(part.partition_index)): self._refusal(
                int(part.error_code), "setting the start offset"
            )
            for topic in answer.responses
            for part in topic.partitions
            if int(part.error_code) != error_codes.NONE
        }

    def logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        """Of those that exist and whose leader answers now."""
        wanted = sorted(set(partitions))
        leaders: dict[int, list[TopicPartition]] = defaultdict(list)
        ids: dict[str, str] = {}
        for some in _batches(sorted({place.topic for place in wanted}), 1000):
            answer = self._first().ask(Api.METADATA, lowest=4, **build_metadata_values(tuple(some)))
            for topic in answer.topics:
                ids[str(topic.name)] = str(getattr(topic, "topic_id", "") or "")
                led = {int(part.partition_index): int(part.leader_id) for part in topic.partitions}
                for place in (each for each in wanted if each.topic == topic.name and each.partition in led):
                    leaders[led[place.partition]].append(place)
        found: dict[TopicPartition, LogOffsets] = {}
        for node, places in leaders.items():
            if node not in self._brokers:
                continue
            ends = self._offsets(node, places, -1, 0)  # first: what lands later is beyond them all
            stable = self._offsets(node, places, -1, 1)
            starts = self._offsets(node, places, -2, 0)
            for place in places:
                if place in starts and place in stable and place in ends:
                    end = ends[place]
                    found[place] = LogOffsets(ids[place.topic], starts[place], min(stable[place], end), end)
        return found

    def has_transactions(self) -> bool:
        """Whether brokers take positions of groups in transactions (KIP-98)."""
        lowest, highest, *_ = SUPPORT[Api.TXN_OFFSET_COMMIT]
        return any(self._first().knows(Api.TXN_OFFSET_COMMIT, version) for version in range(lowest, highest + 1))

    def list_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Partitions of those topics that exist and are shown to this user, sorted."""
        found = self._first().metadata(tuple(topics)).topics
        return sorted(TopicPartition(topic.name, each.partition) for topic in found for each in topic.partitions)

    def topic_names(self) -> list[str]:
        """Returns the names of all topics that this user may see, sorted; creates none."""
        return self._first().topics()

    def _offsets(self, node: int, places: list[TopicPartition], when: int, isolation: int) -> dict[TopicPartition, int]:
        by_topic: dict[str, list[int]] = defaultdict(list)
        for place in places:
            by_topic[place.topic].append(place.partition)
        topics = tuple(
            list_offsets.ListOffsetsTopic(
                name=TopicName(name),
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(partition_index=i32(number), timestamp=i64(when))
                    for number in numbers
                ),
            )
            for name, numbers in by_topic.items()
        )
        answer = self._to(node).ask(
            Api.LIST_OFFSETS, replica_id=BrokerId(-1), isolation_level=i8(isolation), topics=topics
        )
        return {
            TopicPartition(str(topic.name), int(part.partition_index)): int(part.offset)
            for topic in answer.topics
            for part in topic.partitions
            if int(part.error_code) == error_codes.NONE
        }

    def _held(self, group: str, answer: Any) -> CommittedOffsets:
        if int(answer.error_code) != error_codes.NONE:
            if int(answer.error_code) == _GROUP_UNKNOWN:
                return CommittedOffsets()
            if int(answer.error_code) in error_codes.COORDINATOR_MOVING_CODES:
                self._moved.add(group)
            return CommittedOffsets(error=self._refusal(int(answer.error_code), "reading offsets"))
        positions: dict[TopicPartition, CommittedPosition] = {}
        unstable: set[TopicPartition] = set()
        for topic in answer.topics:
            for part in topic.partitions:
                place = TopicPartition(str(topic.name), int(part.partition_index))
                if int(part.error_code) == _UNSTABLE:
                    unstable.add(place)
                elif int(part.error_code) == error_codes.NONE and int(part.committed_offset) >= 0:
                    positions[place] = CommittedPosition(int(part.committed_offset), part.metadata or "")
        return CommittedOffsets(positions, frozenset(unstable))

    def _share_held(self, answer: Any) -> CommittedOffsets:
        code = int(answer.error_code)
        if code not in (error_codes.NONE, _GROUP_UNKNOWN):
            return CommittedOffsets(error=self._refusal(code, "reading offsets"))
        every = {
            TopicPartition(str(topic.topic_name), int(part.partition_index)): part
            for topic in answer.topics
            for part in topic.partitions
        }
        parts = {
            place: part
            for place, part in every.items()
            if int(part.error_code) == error_codes.NONE and int(part.start_offset) >= 0
        }
        return CommittedOffsets(
            {place: CommittedPosition(int(part.start_offset)) for place, part in parts.items()},
            frozenset(place for place, part in every.items() if int(part.error_code) not in _NOT_SHOWN),
            lag={place: int(part.lag) for place, part in parts.items() if getattr(part, "lag", -1) >= 0},
        )

    def _refusal(self, code: int, doing: str) -> str:
        if code in _ALIVE:
            alive = f"the group has come alive at {self.settings.alias} ({error_codes.describe_error_code(code)})"
            return f"{alive}: a live group is never reset"
        return f"cluster {self.settings.alias} refused {doing} ({error_codes.describe_error_code(code)})"

    def _by_coordinator(
        self, groups: Iterable[str], refused: dict[str, CommittedOffsets]
    ) -> Iterator[tuple[int, list[str]]]:
        """Groups by the broker to ask for them; those that nobody may be asked for go into `refused`."""
        wanted = sorted(set(groups))
        errors = self._find(wanted)
        refused.update({group: CommittedOffsets(error=why) for group, why in errors.items()})
        by_node: dict[int, list[str]] = defaultdict(list)
        for group in wanted:
            if group not in errors:
                by_node[self._coordinators[group]].append(group)
        yield from sorted(by_node.items())

    def coordinator(self, group: str) -> Connection:
        """A connection to the broker that answers for the group. Raises RequestRefused when there is none."""
        inquiry, error = self._coordinator(group)
        if inquiry is None:
            raise RequestRefused(error, alias=self.settings.alias)
        return inquiry

    def forget(self, group: str) -> None:
        """The group's coordinator has moved, or is moving."""
        self._moved.add(group)
        self._forgotten()

    def _forgotten(self) -> list[str]:
        """Look for the coordinators of these groups again, after a moment."""
        moved = sorted(self._moved)
        self._moved.clear()
        for group in moved:
            self._coordinators.pop(group, None)
        time.sleep(0.2)
        return moved

    def _coordinator(self, group: str) -> tuple[Connection | None, str]:
        errors = self._find([group])
        return (None, errors[group]) if errors else (self._to(self._coordinators[group]), "")

    def _find(self, groups: list[str]) -> dict[str, str]:
        """Learn the coordinators; those that are not to be had, with the reason."""
        until = time.monotonic() + COORDINATOR_WAIT_S
        while True:
            errors: dict[str, int] = {}
            for some in _batches([each for each in groups if each not in self._coordinators], _GROUPS_A_REQUEST):
                errors.update(self._asked_for(some))
            if (
                not any(code in error_codes.COORDINATOR_MOVING_CODES for code in errors.values())
                or time.monotonic() > until
            ):
                return {group: self._refusal(code, "naming its coordinator") for group, code in errors.items()}
            time.sleep(0.2)

    def _asked_for(self, groups: list[str]) -> dict[str, int]:
        inquiry = self._first()
        errors: dict[str, int] = {}
        answers: list[tuple[str, Any]] = []
        if inquiry.knows(Api.FIND_COORDINATOR, 4):
            answer = inquiry.ask(Api.FIND_COORDINATOR, lowest=4, key_type=i8(0), coordinator_keys=tuple(groups))
            answers = [(str(each.key), each) for each in answer.coordinators]
        else:
            answers = [
                (each, inquiry.ask(Api.FIND_COORDINATOR, highest=3, key_type=i8(0), key=each)) for each in groups
            ]
        for group, each in answers:
            if int(each.error_code) == error_codes.NONE:
                self._coordinators[group] = int(each.node_id)
                self._brokers[int(each.node_id)] = (str(each.host), int(each.port))
            else:
                errors[group] = int(each.error_code)
        left_out = {group: _NOT_SAID for group in groups if group not in self._coordinators}
        return left_out | errors

    def _first(self) -> Connection:
        """Whichever broker answers."""
        return self._pool.get_any()

    def _to(self, node: int) -> Connection:
        return self._pool.get(self._brokers[node])


def _read_states(inquiry: Connection, listed: list[Any]) -> dict[str, str]:
    """Group → state. Listings tell it since Kafka 2.6 (KIP-518); older brokers are asked to describe these groups."""
    ids = [str(each.group_id) for each in listed]
    if all(hasattr(each, "group_state") for each in listed):
        return dict(zip(ids, (str(each.group_state) for each in listed), strict=True))
    return {group: state for group, (state, _members) in admin_reads.read_group_states(inquiry, ids).items()}


def _batches(ids: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
