"""Groups of every kind on real clusters: who is in them, where they stand, and setting where they go on.

Actions name groups as the source does; at the target they are what `sync.groups.rename` of the flow calls them.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from confluent_kafka.admin import AdminClient

from watershed.clusters.errors import Unauthorised
from watershed.clusters.group_members import STREAMS_ASSIGNOR, GroupDescription, describe_group
from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.admin_reads import read_group_configs
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import ClusterSide, CommitOffsets, FindReaders, ForgetGroup, ReadGroup, ReadGroupConfigs
from watershed.cutover.observations import (
    ActionFailed,
    Observation,
    ObservedGroup,
    ObservedGroupConfigs,
    ObservedReaders,
)
from watershed.replicator.sync.group_control_records import FlowsFollower
from watershed.replicator.sync.group_decisions import WRITABLE_GROUP_STATES, PositionMark
from watershed.topology.kafka_streams import find_streams_topics
from watershed.topology.plan import PlanFlow

_Positions = dict[TopicPartition, int]
_ROUND_S = 3.0  # coordinators move, and secrets change
_TOPICS_S = 60.0  # topics of Streams applications do not come and go


class LiveGroups:
    """`now` gives milliseconds that only grow. there: on the way back, the flow by which the applications had come; its
    names of groups count, and the way back has none of its own. Raises ClusterError. Not thread-safe."""

    def __init__(
        self,
        flow: PlanFlow,
        settings: Mapping[ClusterSide, ConnectionSettings],
        now: Callable[[], int],
        there: PlanFlow | None = None,
    ) -> None:
        self._flow, self._settings, self._now, self._there = flow, settings, now, there
        self._topics: dict[ClusterSide, tuple[float, list[str]]] = {}
        self._rounds: dict[
            ClusterSide, tuple[float, GroupOffsets, Callable[[], object]]
        ] = {}  # with when it began, and its end

    def look(self, action: ReadGroup) -> ObservedGroup:
        """Offsets, members and lag of one group at one side."""
        return self._seen(action.side, action.group)

    def configs(self, action: ReadGroupConfigs) -> ObservedGroupConfigs:
        """The group's own settings at its broker (KIP-848), or why they cannot be read."""
        with open_connection(self._settings[action.side]) as inquiry:
            return ObservedGroupConfigs(
                self._now(), *read_group_configs(inquiry, self._called(action.side, action.group))
            )

    def readers(self, action: FindReaders) -> ObservedReaders:
        """Groups with members or offsets on these topics, and which of the topics they read."""
        topics = set(action.topics)
        with self._at(action.side) as groups:
            alive = [each for each in groups.listed().values() if each.state not in WRITABLE_GROUP_STATES]
            held = groups.held([each.id for each in alive if each.type != "share"])
            share = [each.id for each in alive if each.type == "share"]
            held |= groups.read_share_offsets(share) if share else {}
        read = {
            name: {place.topic for place in (*each.positions, *each.unstable)} & topics for name, each in held.items()
        }
        return ObservedReaders(self._now(), {name: tuple(sorted(each)) for name, each in sorted(read.items()) if each})

    def commit(self, action: CommitOffsets) -> Observation:
        """Read back. A group that has come alive is refused by its coordinator; then nothing is asked again."""
        side, called = action.side, self._called(action.side, action.group)
        with self._at(side) as groups:
            if action.kind == "share":
                errors = groups.alter_share(called, action.offsets)
            else:
                texts = action.texts
                errors = groups.commit(
                    called, {place: CommittedPosition(at, texts.get(place, "")) for place, at in action.offsets.items()}
                )
        seen = self._seen(side, action.group)
        if errors:
            why = "; ".join(f"{place}: {error}" for place, error in sorted(errors.items()))
            who = f" (members: {', '.join(seen.who)})" if seen.who else ""
            return ActionFailed(self._now(), f"group {called}: {why}{who}", transient=not seen.members)
        return seen

    def forget(self, action: ForgetGroup) -> Observation:
        """Removes an empty group with its offsets; the broker itself refuses a live one (NON_EMPTY_GROUP)."""
        seen = self._seen(action.side, action.group)
        if seen.members:
            return ActionFailed(self._now(), f"group {action.group} is alive; its offsets stay", transient=False)
        if seen.kind == "unknown":
            return seen
        called = self._called(action.side, action.group)
        client = AdminClient(self._settings[action.side].librdkafka())
        delete = partial(client.delete_consumer_groups, [called], request_timeout=15)
        failure = delete()[called].exception(20)
        if failure is not None:
            return ActionFailed(self._now(), f"removing group {called}: {failure}")
        return self._seen(action.side, action.group)

    @contextmanager
    def _at(self, side: ClusterSide) -> Iterator[GroupOffsets]:
        """Questions that follow each other closely share their connections: with TLS, opening one takes longer than
        all that is asked over it, and producers may be standing still meanwhile."""
        found = self._rounds.pop(side, None)
        if found is not None and time.monotonic() - found[0] > _ROUND_S:
            found[2]()
            found = None
        if found is None:
            groups = GroupOffsets(self._settings[side])
            groups.__enter__()
            found = time.monotonic(), groups, weakref.finalize(self, groups.__exit__)
        try:
            yield found[1]
        except BaseException:
            found[2]()
            raise
        self._rounds[side] = found

    def _called(self, side: ClusterSide, name: str) -> str:
        if self._there is not None:
            return self._there.sync.groups.target_group(name) if side == "source" else name
        return self._flow.sync.groups.target_group(name) if side == "target" else name

    def _seen(self, side: ClusterSide, name: str) -> ObservedGroup:
        called = self._called(side, name)
        with self._at(side) as groups:
            found = describe_group(groups, called)
            share = found.type == "share"
            held = (groups.read_share_offsets([called]) if share else groups.held([called]))[called]
            done, again = _behind(groups, called, held) if share and not held.error else ({}, {})
            internal = self._internal(side, groups, found)
        if held.is_unauthorised:
            raise Unauthorised(held.error, alias=self._settings[side].alias, group=called)
        if held.error:
            raise self._settings[side].unreachable(held.error)
        marks = {place: PositionMark.of(position.metadata) for place, position in held.positions.items()}
        texts = {place: position.metadata for place, position in held.positions.items() if not marks[place]}
        return ObservedGroup(
            self._now(),
            name,
            found.state,
            len(found.members),
            {place: position.offset for place, position in held.positions.items()},
            kept=self._kept(side, called, held, marks, share),
            kind="streams" if found.assignor == STREAMS_ASSIGNOR or internal else found.type,
            static=found.static,
            who=tuple(map(str, found.members)),
            reads=frozenset().union(*(each.topics for each in found.members)),
            texts={place: text for place, text in texts.items() if text},
            unstable=held.unstable,
            done=done,
            again=again,
            internal=internal,
        )

    def _kept(
        self,
        side: ClusterSide,
        called: str,
        held: CommittedOffsets,
        marks: Mapping[TopicPartition, PositionMark | None],
        share: bool,
    ) -> frozenset[TopicPartition]:
        """What `sync.groups` of this flow carried there; share groups keep no text, so a record tells."""
        if side == "source" or not held.positions:
            return frozenset()
        if not share:
            return frozenset(place for place, mark in marks.items() if mark is not None and mark.flow == self._flow.id)
        flows = FlowsFollower(self._settings[side])
        flows.read()
        carried = flows.carried(self._flow.id, called)
        return frozenset(place for place, position in held.positions.items() if carried.ours(place, position.offset))

    def _internal(self, side: ClusterSide, groups: GroupOffsets, found: GroupDescription) -> tuple[str, ...]:
        """Topics that the group keeps for itself as a Streams application. A classic group tells what it is while it
        is stable; otherwise the topics' names do."""
        if found.internal is not None:
            return found.internal
        if found.type != "classic" or found.assignor not in ("", STREAMS_ASSIGNOR):
            return ()
        read_at, names = self._topics.get(side, (0.0, []))
        if not read_at or time.monotonic() - read_at > _TOPICS_S:
            names = groups.topic_names()
            self._topics[side] = time.monotonic(), names
        return find_streams_topics(found.id, names)


def _behind(groups: GroupOffsets, called: str, held: CommittedOffsets) -> tuple[_Positions, _Positions]:
    """What a share group is done with behind its start offsets, which brokers store late: up to where it is done with
    everything, and elsewhere how many offsets it is done with at most.

    Lag does not count records that the group is done with (KIP-1226). Lag 0 means: the group is done with every record
    that was in the log before we asked. Records written between our two readings can only make the upper bound larger.
    Where brokers report no lag, nothing is known.
    """
    before = groups.logs(held.positions)
    lag = groups.read_share_offsets([called])[called].lag
    after = groups.logs(held.positions)
    done: _Positions = {}
    again: _Positions = {}
    for place, position in held.positions.items():
        if place not in before or place not in after:
            continue
        if lag.get(place) == 0:
            done[place] = before[place].end
        else:
            behind = after[place].end - max(position.offset, after[place].start)
            again[place] = max(0, behind - lag.get(place, 0))
    return done, {place: count for place, count in again.items() if count}
