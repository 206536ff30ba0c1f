"""Where a position of the source stands at the target, also where records went both ways. Pure.

A topic that the flow copies is translated forward through the flow's own map. A topic that came from the target by a
flow the other way is translated backward through that flow's map, to the very records that it was copied from. Where
one topic holds both, the earlier of the two is taken: nothing is left out, and what is read again lies between them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clusters.group_offsets import Log
from clusters.names import TopicPartition
from replicator.errors import ReplicatorError
from replicator.ledger import Ledger
from replicator.offsetmap import OffsetMap
from replicator.sync.group_moves import Landing
from replicator.translation import Ahead, CopiedPartition, translated


@dataclass(frozen=True, slots=True)
class Forward:
    """The flow's own copy of a partition. held: None while nothing was copied. here, there: the logs, None where no
    leader answers. recreated: why the map does not speak of these topics; empty when it does. aligned: it is to get
    the source's offsets."""

    place: TopicPartition
    held: CopiedPartition | None
    here: Log | None
    there: Log | None
    recreated: str = ""
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class Backward:
    """The copy that a flow the other way makes of partition `place` of the target. held: with the source's log end."""

    place: TopicPartition
    held: CopiedPartition | None
    recreated: str = ""


def landing(place: TopicPartition, at: int, forward: Forward | None, backward: Backward | None) -> Landing | None:
    """None when neither is about the partition."""
    try:
        back = _back(at, backward) if backward is not None else None
        if forward is None or (back is not None and backward is not None and backward.place != forward.place):
            if backward is None:
                return None
            return back or Landing(backward.place, None, why="the flow that brought it has copied nothing of it yet")
        ahead = _forward(place, at, forward)
        return ahead if back is None else _both(at, ahead, back, forward)
    except ReplicatorError as error:
        there = forward.place if forward is not None else backward.place if backward is not None else place
        return Landing(there, None, why=str(error))


def _forward(place: TopicPartition, at: int, forward: Forward) -> Landing:
    there = forward.place
    if forward.recreated:
        return Landing(there, None, why=forward.recreated)
    if forward.here is None or forward.there is None:
        if forward.here is None:
            return Landing(there, None, why="no leader tells of the source's log now")
        return Landing(there, None, why=f"{there} is not at the target yet, or has no leader now")
    held = forward.held
    if forward.aligned and (held is None or not held.map.runs):  # offset 0 would be in front of the log, later on
        return Landing(there, None, why="nothing of it is copied yet")
    found = translated(place, at, held, forward.here.start, forward.here.end)
    if not isinstance(found, Ahead):
        return Landing(there, found)
    if held is None or not held.map.runs:
        return Landing(there, None, found)
    reached = held.position
    return Landing(there, held.map.to_target(reached, held.target_end), found, reached)


def _back(at: int, backward: Backward) -> Landing | None:
    """None while nothing came that way: then it sets no bound."""
    held = backward.held
    if backward.recreated:
        return Landing(backward.place, None, why=backward.recreated)
    if held is None or not held.map.runs:
        return None
    first = held.map.runs[0]
    if at < first.target:
        return Landing(backward.place, first.source)
    return Landing(backward.place, held.map.to_source(min(at, held.target_end)))


def _both(at: int, ahead: Landing, back: Landing, forward: Forward) -> Landing:
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
    return Landing(ahead.place, low, ahead.ahead, ahead.reached, again)


_Maps = Mapping[tuple[str, TopicPartition], tuple[OffsetMap, tuple[uuid.UUID, uuid.UUID]]]


def maps_of(ledgers: Iterable[Ledger]) -> _Maps:
    """By flow and source partition: the map, and the ids of the topics that it speaks of (source, target)."""
    return {
        (key.flow, TopicPartition(key.topic, key.partition)): found
        for ledger in ledgers
        for key, found in ledger.copies().items()
    }


@dataclass(frozen=True, slots=True)
class Ways:
    """Where a source partition goes (forward), and by which flow from where it came (returning)."""

    forward: TopicPartition | None
    returning: tuple[str, TopicPartition] | None

    @property
    def backward(self) -> TopicPartition | None:
        return None if self.returning is None else self.returning[1]


@dataclass(frozen=True, slots=True)
class Copies:
    """One look at the logs of both sides and at the maps of all flows between them. aligned: `Forward.aligned`."""

    ways: Mapping[TopicPartition, Ways]
    here: Mapping[TopicPartition, Log]
    there: Mapping[TopicPartition, Log]
    maps: _Maps
    aligned: bool = False

    def landing(self, flow: str, place: TopicPartition, at: int) -> Landing | None:
        way = self.ways[place]
        forward = backward = None
        here = self.here.get(place)
        if way.forward is not None:
            there = self.there.get(way.forward)
            held, recreated = self._held(flow, place, here, there)
            forward = Forward(way.forward, held, here, there, recreated, self.aligned)
        if way.returning is not None:
            brought, origin = way.returning
            held, recreated = self._held(brought, origin, self.there.get(origin), here)
            backward = Backward(origin, held, recreated)
        return landing(place, at, forward, backward)

    def _held(
        self, flow: str, source: TopicPartition, at_source: Log | None, at_target: Log | None
    ) -> tuple[CopiedPartition | None, str]:
        """A flow's copy of its source partition, and why it does not speak of the topics that are there now."""
        if (flow, source) not in self.maps:
            return None, ""
        offsets, (source_id, target_id) = self.maps[flow, source]
        for log, known, side in ((at_source, source_id, "source"), (at_target, target_id, "target")):
            if log is not None and log.topic_id and log.topic_id != str(known):
                return None, f"the topic of flow {flow} was deleted and created again at its {side} since it was copied"
        return (None if at_target is None else CopiedPartition(offsets, at_target.end)), ""
