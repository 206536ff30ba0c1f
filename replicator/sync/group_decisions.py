"""What becomes of the positions of one group: a pure function of what both clusters say.

A position that we commit carries a *mark*: a text that brokers keep beside the offset, in the same record, and that
any commit of an application replaces. A position at the target with our mark is still where we left it; one without
is somebody else's, and is left alone. That is a compare-and-set which needs no memory of its own (decision 0024).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.sync_reports import SyncState
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_translation import OffsetNotCopied

_MARK: Final = "watershed"
WRITABLE_GROUP_STATES: Final = frozenset({"Empty", "Dead"})
_WORST: Final[tuple[SyncState, ...]] = ("refused", "failed", "waiting", "different", "carried", "equal")


@dataclass(frozen=True, slots=True)
class PositionMark:
    """Written into the commit metadata: the flow, the source offset, and the path of cluster ids, starting where the
    application commits."""

    flow: str
    source: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{_MARK} 1 {self.flow} {self.source} {','.join(self.path)}"

    @staticmethod
    def of(metadata: str) -> PositionMark | None:
        """None for what an application wrote."""
        parts = metadata.split(" ")
        if len(parts) != 5 or parts[:2] != [_MARK, "1"] or not parts[3].isdecimal():
            return None
        return PositionMark(parts[2], int(parts[3]), tuple(parts[4].split(",")))


@dataclass(frozen=True, slots=True)
class TranslatedPosition:
    """Where a position of the source stands at the target: at `offset`, or (ahead) beyond what is copied, then
    `offset` is behind the last copied record (None: nothing is copied) and `reached` the source offset of it.

    again: records that resuming there reads again at most, because two flows' records lie mixed; why: why there is
    no place for it at all.
    """

    place: TopicPartition
    offset: int | None
    ahead: OffsetNotCopied | None = None
    reached: int = -1
    again: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """A group as both sides show it. there: None where the target has no such group.

    landings: of each partition at the source that the flow is about. lag: records at the source that are not read yet,
    by source partition. returned: the target's positions from which the flow the other way made what stands at the
    source now or stood there last, by target partition. ordered: target offsets (None: no position) that a journaled
    order answers, by target partition. here_id, there_id: cluster ids. refusal: why the group as a whole is left
    alone. two_ways: a flow comes back from the target. state: of a Streams application, where the state stands that
    belongs to these positions. missing: the partitions of its internal topics whose copies lack some of it, with what
    they lack.
    """

    flow: str
    group: str
    target_group: str
    here: ListedGroup
    there: ListedGroup | None
    source: CommittedOffsets
    target: CommittedOffsets
    landings: Mapping[TopicPartition, TranslatedPosition]
    here_id: str
    there_id: str
    target_alias: str
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    returned: Mapping[TopicPartition, int] = field(default_factory=dict)
    decided_positions: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    refusal: str = ""
    two_ways: bool = False
    state: StateRange | None = None
    missing: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PositionDecision:
    """What becomes of one partition. place: at the source; there: at the target; write: what is to be committed.
    rereads, skips: what the group would read again, or leave out, if it went on at the target where it stands there
    after this (target offsets, so at most that many records); None: not known."""

    place: TopicPartition
    state: SyncState
    why: str = ""
    there: TopicPartition | None = None
    committed: int | None = None
    lag: int | None = None
    translated: int | None = None
    at_target: int | None = None
    write: CommittedPosition | None = None
    rereads: int | None = None
    skips: int | None = None
    obeys: bool = False

    def to_json(self) -> dict[str, Any]:
        """The decision as `offsets groups --json` shows it."""
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "target_topic": None if self.there is None else self.there.topic,
            "state": self.state,
            "why": self.why,
            "committed": self.committed,
            "lag": self.lag,
            "translated": self.translated,
            "at_target": self.at_target,
            "rereads": self.rereads,
            "skips": self.skips,
        }


def decide_positions(sight: GroupObservation) -> list[PositionDecision]:
    """One for each partition that the flow is about, sorted; none where the group as a whole is refused."""
    return [] if sight.refusal else [_move(sight, place) for place in sorted(sight.landings)]


def _move(sight: GroupObservation, place: TopicPartition) -> PositionDecision:
    landing = sight.landings[place]
    there = landing.place
    here = sight.source.positions.get(place)
    held = sight.target.positions.get(there)
    move = PositionDecision(
        place,
        "waiting",
        there=there,
        committed=None if here is None else here.offset,
        lag=sight.lag.get(place),
        translated=None if landing.ahead else landing.offset,
        at_target=None if held is None else held.offset,
    )
    if here is None:
        return replace(move, why=landing.why)
    came = PositionMark.of(here.metadata)
    if came is not None and sight.there_id in came.path:
        return replace(move, state="equal", why=f"it came from {sight.target_alias}, where the application reads")
    if landing.why:
        return replace(move, why=landing.why)
    if sight.missing:
        return replace(move, why=f"its state is behind: {next(iter(sight.missing.values()))}")
    if there in sight.target.unstable:
        return replace(move, why="the target's commit is part of a transaction that is still open")
    return _compared(sight, move, landing, held, came)


def _compared(
    sight: GroupObservation,
    move: PositionDecision,
    landing: TranslatedPosition,
    held: CommittedPosition | None,
    came: PositionMark | None,
) -> PositionDecision:
    """Both positions are known: write, leave, or say why not."""
    wanted, ahead = landing.offset, landing.ahead
    if wanted is None:
        return replace(move, why=str(ahead))
    at = held.offset if held is not None else None
    source = landing.reached if ahead else move.committed or 0
    mark = PositionMark(sight.flow, source, (*(came.path if came else ()), sight.here_id))
    left = PositionMark.of(held.metadata) if held is not None else None
    mine = left is not None and left.flow == sight.flow
    obeys = landing.place in sight.decided_positions and sight.decided_positions[landing.place] == at
    after = _resuming(move, wanted, at, landing.again)
    if at == wanted and (mine or not obeys):
        if ahead:
            return replace(after, why=str(ahead))
        return replace(after, state="equal", why="" if mine else _whose(left, sight))
    adopted = left is None and at is not None and sight.returned.get(landing.place) == at
    if held is not None and not mine and not adopted and not obeys:
        return replace(after, state="different", why=_whose(left, sight))
    if at is not None and wanted < at and not obeys:
        back = f"the group went back at the source: {at} would become {wanted}"
        return replace(after, state="different", why=f"{back}; `topology offsets reset-group` orders that")
    blocked = _blocked(sight)
    if blocked:
        return replace(after, state="different" if sight.there and sight.there.type == sight.here.type else "refused",
                       why=blocked)  # fmt: skip
    done = _resuming(move, wanted, wanted, landing.again)
    state: SyncState = "waiting" if ahead else "carried"
    return replace(done, state=state, why=str(ahead or ""), write=CommittedPosition(wanted, str(mark)), obeys=obeys)


def _blocked(sight: GroupObservation) -> str:
    """Why nothing may be written for the group at the target; empty when it may."""
    there = sight.there
    if there is None or there.state in WRITABLE_GROUP_STATES:
        if there is not None and (there.type == "share") != (sight.here.type == "share"):
            return f"it is a {sight.here.type} group at the source and a {there.type} group at {sight.target_alias}"
        return ""
    return f"the group is alive at {sight.target_alias} ({there.state}): a live group is never reset"


def _whose(left: PositionMark | None, sight: GroupObservation) -> str:
    if left is not None:
        return f"flow {left.flow} keeps this position at {sight.target_alias}"
    return f"somebody else set this position at {sight.target_alias}: it is left alone"


def _resuming(move: PositionDecision, wanted: int, at: int | None, again: int) -> PositionDecision:
    if at is None:
        return replace(move, rereads=None, skips=None)
    return replace(move, rereads=max(0, wanted - at) + again, skips=max(0, at - wanted))


def is_set_by_another(sight: GroupObservation, move: PositionDecision) -> bool:
    """Whether another set what stands at the target, even where it is the right place: it will not be followed on."""
    here = sight.source.positions.get(move.place)
    there = sight.target.positions.get(move.there) if move.there is not None else None
    if here is None or there is None:
        return False
    came, left = PositionMark.of(here.metadata), PositionMark.of(there.metadata)
    home = came is not None and sight.there_id in came.path
    return not home and (left is None or left.flow != sight.flow)


def defer_commit(move: PositionDecision) -> PositionDecision:
    """The same decision before its commit: state `waiting`."""
    if move.write is None:
        return move
    why = move.why or "it follows with the next round"
    return _resuming(replace(move, state="waiting", why=why), move.write.offset, move.at_target, 0)


def pick_worst_sync_state(found: list[PositionDecision]) -> SyncState:
    """Of all partitions, what asks for most attention."""
    states = {move.state for move in found}
    return next((state for state in _WORST if state in states), "equal")
