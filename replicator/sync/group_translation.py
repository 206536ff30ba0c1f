"""Where a position of the source stands at the target, also where records went both ways. Pure.

A topic that the flow copies is translated forward through the flow's own map. A topic that came from the target by a
flow the other way is translated backward through that flow's map, to the very records that it was copied from. Where
one topic holds both, the earlier of the two is taken: nothing is left out, and what is read again lies between them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watershed.clusters.group_offsets import LogOffsets
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.ledger import Ledger
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.ledger.offset_translation import CopiedPartition, OffsetNotCopied, translate_offset
from watershed.replicator.recovery.recovery_point import is_same_topic
from watershed.replicator.sync.group_decisions import TranslatedPosition


@dataclass(frozen=True, slots=True)
class ForwardCopy:
    """The flow's own copy of a partition. held: None while nothing was copied. here, there: the logs, None where no
    leader answers. recreated: why the map does not speak of these topics; empty when it does. aligned: it is to get
    the source's offsets."""

    place: TopicPartition
    held: CopiedPartition | None
    here: LogOffsets | None
    there: LogOffsets | None
    recreated: str = ""
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class ReverseCopy:
    """The copy that a flow the other way makes of partition `place` of the target. held: with the source's log end."""

    place: TopicPartition
    held: CopiedPartition | None
    recreated: str = ""


def translate_position(
    place: TopicPartition, at: int, forward: ForwardCopy | None, backward: ReverseCopy | None
) -> TranslatedPosition | None:
    """None when neither is about the partition."""
    try:
        back = _back(at, backward) if backward is not None else None
        if forward is None or (back is not None and backward is not None and backward.place != forward.place):
            if backward is None:
                return None
            return back or TranslatedPosition(
                backward.place, None, why="the flow that brought it has copied nothing of it yet"
            )
        ahead = _forward(place, at, forward)
        return ahead if back is None else _both(at, ahead, back, forward)
    except ReplicatorError as error:
        there = forward.place if forward is not None else backward.place if backward is not None else place
        return TranslatedPosition(there, None, why=str(error))


def _forward(place: TopicPartition, at: int, forward: ForwardCopy) -> TranslatedPosition:
    there = forward.place
    if forward.recreated:
        return TranslatedPosition(there, None, why=forward.recreated)
    if forward.here is None or forward.there is None:
        if forward.here is None:
            return TranslatedPosition(there, None, why="no leader tells of the source's log now")
        return TranslatedPosition(there, None, why=f"{there} is not at the target yet, or has no leader now")
    held = forward.held
    if forward.aligned and (held is None or not held.map.runs):  # offset 0 would be in front of the log, later on
        return TranslatedPosition(there, None, why="nothing of it is copied yet")
    found = translate_offset(place, at, held, forward.here.start, forward.here.end)
    if not isinstance(found, OffsetNotCopied):
        return TranslatedPosition(there, found)
    if held is None or not held.map.runs:
        return TranslatedPosition(there, None, found)
    reached = held.position
    return TranslatedPosition(there, held.map.to_target(reached, held.target_end), found, reached)


def _back(at: int, backward: ReverseCopy) -> TranslatedPosition | None:
    """None while nothing came that way: then it sets no bound."""
    held = backward.held
    if backward.recreated:
        return TranslatedPosition(backward.place, None, why=backward.recreated)
    if held is None or not held.map.runs:
        return None
    first = held.map.runs[0]
    if at < first.target:
        return TranslatedPosition(backward.place, first.source)
    return TranslatedPosition(backward.place, held.map.to_source(min(at, held.target_end)))


def _both(at: int, ahead: TranslatedPosition, back: TranslatedPosition, forward: ForwardCopy) -> TranslatedPosition:
    """Records of both clusters lie in one log. Behind everything that the flow has copied only the other bound counts:
    what it copies from now on lands behind the target's stable end."""
    if ahead.offset is None or back.offset is None:
        return ahead if ahead.offset is None else back
    held, there = forward.held, forward.there
    if held is not None and there is not None and (ahead.ahead is not None or at >= held.position):
        low = min(max(there.stable, ahead.offset), back.offset)
    else:
        low = min(ahead.offset, back.offset)
    again = max(ahead.offset, back.offset) - low
    return TranslatedPosition(ahead.place, low, ahead.ahead, ahead.reached, again)


_OffsetMaps = Mapping[tuple[str, TopicPartition], tuple[OffsetMap, tuple[uuid.UUID, uuid.UUID]]]


def collect_offset_maps(ledgers: Iterable[Ledger]) -> _OffsetMaps:
    """By flow and source partition: the map, and the ids of the topics that it speaks of (source, target)."""
    return {
        (key.flow, TopicPartition(key.topic, key.partition)): found
        for ledger in ledgers
        for key, found in ledger.copies().items()
    }


@dataclass(frozen=True, slots=True)
class CopyDirections:
    """Where a source partition goes (forward), and by which flow from where it came (returning)."""

    forward: TopicPartition | None
    returning: tuple[str, TopicPartition] | None

    @property
    def backward(self) -> TopicPartition | None:
        """The partition at the source that the way back copies into; None without a way back."""
        return None if self.returning is None else self.returning[1]


@dataclass(frozen=True, slots=True)
class CopiedLogs:
    """One inspection of the logs of both sides and at the maps of all flows between them. aligned:
    `ForwardCopy.aligned`."""

    ways: Mapping[TopicPartition, CopyDirections]
    here: Mapping[TopicPartition, LogOffsets]
    there: Mapping[TopicPartition, LogOffsets]
    maps: _OffsetMaps
    aligned: bool = False

    def landing(self, flow: str, place: TopicPartition, at: int) -> TranslatedPosition | None:
        """Where offset `at` of a source partition stands on the target; None if no map covers it."""
        way = self.ways[place]
        forward = backward = None
        here = self.here.get(place)
        if way.forward is not None:
            there = self.there.get(way.forward)
            held, recreated = self.find_copy(flow, place, here, there)
            forward = ForwardCopy(way.forward, held, here, there, recreated, self.aligned)
        if way.returning is not None:
            brought, origin = way.returning
            held, recreated = self.find_copy(brought, origin, self.there.get(origin), here)
            backward = ReverseCopy(origin, held, recreated)
        return translate_position(place, at, forward, backward)

    def list_copy_ids(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """The topic ids of the copies of these source partitions; without copies that are not there, or whose brokers
        tell no ids."""
        found = {}
        for place in places:
            way = self.ways.get(place)
            log = self.there.get(way.forward) if way is not None and way.forward is not None else None
            if log is not None and log.topic_id:
                found[place] = log.topic_id
        return found

    def find_copy(
        self, flow: str, source: TopicPartition, at_source: LogOffsets | None, at_target: LogOffsets | None
    ) -> tuple[CopiedPartition | None, str]:
        """A flow's copy of its source partition, and why it does not speak of the topics that are there now."""
        if (flow, source) not in self.maps:
            return None, ""
        offsets, (source_id, target_id) = self.maps[flow, source]
        for log, known, side in ((at_source, source_id, "source"), (at_target, target_id, "target")):
            if log is not None and log.topic_id and not is_same_topic(known, uuid.UUID(log.topic_id)):
                return None, f"the topic of flow {flow} was deleted and created again at its {side} since it was copied"
        return (None if at_target is None else CopiedPartition(offsets, at_target.end)), ""
