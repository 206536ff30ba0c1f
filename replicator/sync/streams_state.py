"""Positions of Kafka Streams applications (`sync.groups.streams`), committed only where their state is.

A Streams application restores each store to the end of its changelog, and then goes on at its committed positions. So a
changelog or repartition topic whose copy ends too early loses state that the positions take for done; one whose copy
goes further has some records applied twice. No client can cut a copy off, so we choose the second, and say how much it
is: positions are read between two readings of log ends, and committed only when every internal topic is copied through
the later ones (decision 0122).

Sources: KIP-129 and KIP-447 (one transaction holds changelog records and positions), KIP-98 (a transaction is decided
before its markers stand in all logs); StoreChangelogReader.java (restores to the end of the changelog).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.errors import TopicMissing, Unauthorised
from watershed.clusters.group_offsets import CommittedOffsets, GroupOffsets, ListedGroup, LogOffsets
from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.sync.group_decisions import (
    GroupObservation,
    PositionDecision,
    PositionMark,
    TranslatedPosition,
)
from watershed.replicator.sync.group_translation import CopiedLogs
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.kafka_streams import find_streams_topics, is_changelog_topic, is_repartition_topic
from watershed.topology.plan import PlanFlow

_SETTLED_TRIES: Final = 20  # a transaction is open over its positions for milliseconds, ten times a second
_SETTLED_PAUSE_S: Final = 0.02
_CONFIGS_S: Final = 60.0
_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class StreamsReading:
    """An application as one moment at the source shows it. held: its positions. before, after: the logs of its internal
    topics around them. copied_to: the ids of their copies when it was first looked at, which stay for as long as it
    waits. problem: why its positions cannot travel at all; empty where they can. at_ms: since 1970."""

    application: str
    topics: tuple[str, ...]
    held: CommittedOffsets
    before: Mapping[TopicPartition, LogOffsets] = field(default_factory=dict)
    after: Mapping[TopicPartition, LogOffsets] = field(default_factory=dict)
    problem: str = ""
    at_ms: int = 0
    copied_to: Mapping[TopicPartition, str] = field(default_factory=dict)

    def list_missing(
        self, copies: CopiedLogs, flow: str, now: Mapping[TopicPartition, LogOffsets]
    ) -> dict[TopicPartition, str]:
        """Internal partitions whose copies lack records that may belong to the positions, with what is missing. now:
        their logs at the source, read behind the maps of `copies`: a copy that skipped deleted records has a map that
        covers them, so only a later start shows that they are lacking."""
        missing = self.list_outdated(now, copies.list_copy_ids(self.after))
        for place, log in sorted(self.after.items()):
            if place in missing or log.start == log.end:
                continue
            found = copies.landing(flow, place, log.end)
            if found is None or found.ahead is not None or found.offset is None:
                missing[place] = _describe_missing(place, log.end, found)
        return missing

    def list_outdated(
        self, now: Mapping[TopicPartition, LogOffsets], copied_to: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, str]:
        """Internal partitions whose logs no longer hold what this reading saw, or whose copies are others than it waits
        for, with what happened there: the positions have to be read again. now: these logs at the source, read later;
        copied_to: the ids of their copies, as `CopiedLogs.list_copy_ids` has them."""
        found = {
            place: self._explain_outdated(place, log, now.get(place)) or self._explain_other_copy(place, copied_to)
            for place, log in sorted(self.after.items())
        }
        return {place: why for place, why in found.items() if why}

    def _explain_other_copy(self, place: TopicPartition, copied_to: Mapping[TopicPartition, str]) -> str:
        """A copy that was made again begins where the flow begins then: behind records that these positions need, where
        the flow does not begin at the source's first offset."""
        before, now = self.copied_to.get(place), copied_to.get(place)
        if not before or not now or before == now:
            return ""
        return (
            f"the copy of {place} was deleted and created again at the target since the positions were read; they are "
            "read again in the next round"
        )

    def _explain_outdated(self, place: TopicPartition, log: LogOffsets, now: LogOffsets | None) -> str:
        if now is None:
            return f"no leader tells of {place} at the source now"
        again = "since the positions were read; they are read again in the next round"
        if log.topic_id and now.topic_id and log.topic_id != now.topic_id:
            return f"{place} was deleted and created again at the source {again}"
        if now.end < log.end:
            return f"{place} ends at {now.end} at the source, and ended at {log.end}: it was cut off {again}"
        held = self.held.positions.get(place)
        needed = log.start if held is None else held.offset
        if is_repartition_topic(place.topic) and needed < now.start:
            return (
                f"{place} begins at {now.start} at the source, behind the application's position {needed}: records "
                f"were deleted {again}"
            )
        return ""

    def build_range(self, flow: str, group: str, landings: Mapping[TopicPartition, TranslatedPosition]) -> StateRange:
        """The record of it. group: its id at the target; landings: where its positions stand there."""
        texts = {
            landings[place].place: position.metadata
            for place, position in self.held.positions.items()
            if place in landings and position.metadata and PositionMark.of(position.metadata) is None
        }
        return StateRange(
            flow,
            group,
            {place: log.stable for place, log in self.before.items()},
            {place: log.end for place, log in self.after.items() if log.start < log.end},
            texts,
            self.at_ms,
        )


@dataclass(slots=True)
class StreamsPositions:
    """Follows the applications of one flow from round to round; not thread-safe. A reading whose state is not copied
    yet is kept for the next round: a copy that is always late would never reach what was read just now."""

    sides: SyncClusters
    _waiting: dict[str, StreamsReading] = field(default_factory=dict)
    _recorded: dict[str, StateRange] = field(default_factory=dict)
    _configs: dict[str, tuple[float, str]] = field(default_factory=dict)

    def read(
        self,
        flow: PlanFlow,
        source: GroupOffsets,
        groups: Mapping[str, ListedGroup],
        held: Mapping[str, CommittedOffsets],
    ) -> dict[str, StreamsReading]:
        """By group: of those that `sync.groups.streams` names. Raises ClusterError."""
        named = [name for name in flow.sync.groups.streams if name in groups and not held[name].error]
        if not named:
            self._waiting.clear()
            return {}
        topics, others = source.topic_names(), set(flow.sync.groups.streams)
        self._waiting = {name: each for name, each in self._waiting.items() if name in named}
        return {
            name: self._waiting.get(name)
            or self._read_application(
                flow, source, name, find_streams_topics(name, topics, others - {name}), held[name]
            )
            for name in named
        }

    def keep_waiting(
        self,
        readings: Mapping[str, StreamsReading],
        missing: Mapping[str, Collection[Any]],
        now: Mapping[TopicPartition, LogOffsets],
        copied_to: Mapping[TopicPartition, str],
    ) -> None:
        """Those with something missing are looked at again in the next round; the others are read anew there, as are
        those which no copy can reach any more. now, copied_to: as for `StreamsReading.list_outdated`."""
        self._waiting = {
            name: replace(each, copied_to={**copied_to, **each.copied_to})
            for name, each in readings.items()
            if missing.get(name) and not each.held.unstable and not each.list_outdated(now, copied_to)
        }

    def record(self, sights: Iterable[GroupObservation], done: Mapping[str, Sequence[PositionDecision]]) -> None:
        """Behind the commits: what belongs to them. Groups of which a position was not committed keep their record.
        Raises ClusterError."""
        fresh = [
            sight.state
            for sight in sights
            if sight.state is not None and not sight.missing and _is_settled(done[sight.group])
        ]
        news = [found for found in fresh if self._is_news(found)]
        if not news:
            return
        with ControlWriter(self.sides.target, "watershed-groups") as writer:
            for found in news:
                writer.put_nowait(FLOWS_TOPIC, found.key, found.to_json(), 0)
        self._recorded |= {found.key: found for found in news}

    def _is_news(self, found: StateRange) -> bool:
        known = self._recorded.get(found.key)
        return known is None or (known.least, known.most, known.texts) != (found.least, found.most, found.texts)

    def _read_application(
        self, flow: PlanFlow, source: GroupOffsets, name: str, topics: tuple[str, ...], held: CommittedOffsets
    ) -> StreamsReading:
        problem = explain_streams_refusal(flow, name, topics, {each.topic for each in held.positions})
        problem = problem or self._compare_policies(name, topics)
        if problem:
            return StreamsReading(name, topics, held, problem=problem)
        places = source.list_partitions(topics)
        before = source.logs(places)
        for _ in range(_SETTLED_TRIES):
            held = source.held([name])[name]
            if not held.unstable:
                break
            time.sleep(_SETTLED_PAUSE_S)
        at_ms = time.time_ns() // 1_000_000
        after = source.logs(places)
        problem = held.error
        if lost := sorted(set(places) - set(before) & set(after)):
            problem = f"no leader tells of {', '.join(map(str, lost[:3]))} at {self.sides.source.alias} now"
        return StreamsReading(name, topics, held, before, after, problem, at_ms)

    def _compare_policies(self, name: str, topics: tuple[str, ...]) -> str:
        """Why a changelog would not keep the state at the target; empty where it does, or where the topics are not
        there yet, or may not be looked at."""
        read_at, problem = self._configs.get(name, (0.0, ""))
        if read_at and time.monotonic() - read_at < _CONFIGS_S:
            return problem
        changelogs = [topic for topic in topics if is_changelog_topic(topic)]
        try:
            with Admin(self.sides.source) as here, Admin(self.sides.target) as there:
                source, target = here.effective_configs(changelogs), there.effective_configs(changelogs)
        except (TopicMissing, Unauthorised):
            return ""
        wrong = [topic for topic in changelogs if source[topic].get(_POLICY) != target[topic].get(_POLICY)]
        problem = "; ".join(
            f"{topic} has {_POLICY}={target[topic].get(_POLICY)} at {self.sides.target.alias} and "
            f"{source[topic].get(_POLICY)} at {self.sides.source.alias}, so the copy would not keep the state: set it "
            "as at the source"
            for topic in wrong
        )
        self._configs[name] = time.monotonic(), problem
        return problem


def explain_streams_refusal(flow: PlanFlow, application: str, topics: Collection[str], reads: Collection[str]) -> str:
    """Why positions of a Streams application cannot travel with its state by this flow; empty where they can. topics:
    its internal topics at the source; reads: topics in which it holds positions."""
    called = flow.sync.groups.target_group(application)
    if called != application:
        return (
            f"an application of Kafka Streams finds its topics by its id, so it cannot be called {called} at the "
            "target: take it out of sync.groups.rename"
        )
    if not topics:
        return (
            f"it has no changelog or repartition topic of its own ({application}-…): an application without state "
            "needs no entry in sync.groups.streams"
        )
    left = sorted(topic for topic in {*topics, *reads} if not flow.selects(topic))
    if left:
        return (
            f"it uses {', '.join(left)}, which flow {flow.id} does not copy: put them into topics.include (with "
            "allow_internal: true for its own topics), because with a part of its topics it goes on with wrong results"
        )
    renamed = sorted(topic for topic in topics if flow.target_topic(topic) != topic)
    if renamed:
        names = ", ".join(f"{topic} ({flow.target_topic(topic)} there)" for topic in renamed)
        return f"flow {flow.id} renames {names}, where the application does not look for them: keep their names"
    return ""


def _is_settled(moves: Sequence[PositionDecision]) -> bool:
    return bool(moves) and all(move.state in ("equal", "carried") for move in moves)


def _describe_missing(place: TopicPartition, end: int, found: TranslatedPosition | None) -> str:
    if found is None:
        return f"{place} is not copied"
    if found.ahead is not None:
        return f"{place} is copied through {found.ahead.copied} of {end}"
    return f"{place} is not copied: {found.why}"
