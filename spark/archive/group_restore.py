"""Positions of consumer groups, committed at the target of a restore. A group with members is never touched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, GroupOffsets, ListedGroup
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition

RestoredState = Literal["committed", "there", "left"]
_WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})
_COMMITTING_TYPES: Final = frozenset({"classic", "consumer"})


@dataclass(frozen=True, slots=True, order=True)
class WantedPosition:
    """A position as it should be at the target."""

    group: str
    place: TopicPartition
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class PositionOutcome:
    """What became of a position: `committed` now, `there` already, or `left` alone, and why."""

    wanted: WantedPosition
    state: RestoredState
    why: str = ""


def judge_positions(
    wanted: Iterable[WantedPosition], listed: Mapping[str, ListedGroup], held: Mapping[str, CommittedOffsets]
) -> list[PositionOutcome]:
    """What is to be done; `committed` stands for what has to be. Does no I/O.

    listed: the groups that exist at the target. held: what is committed there. A group that has committed another
    position since, in this topic, keeps it: an application may have gone on.
    """
    return [_judge(each, listed.get(each.group), held.get(each.group, CommittedOffsets())) for each in wanted]


def restore_positions(settings: ConnectionSettings, wanted: Iterable[WantedPosition]) -> list[PositionOutcome]:
    """Commits what is not there yet, and reads it back. Raises ClusterError."""
    asked = sorted(wanted)
    if not asked:
        return []
    with GroupOffsets(settings) as groups:
        ids = {each.group for each in asked}
        judged = judge_positions(asked, groups.listed(), groups.held(ids))
        refused = _commit(groups, [each.wanted for each in judged if each.state == "committed"])
        now = groups.held(ids)
    found: list[PositionOutcome] = []
    for each in judged:
        why = refused.get((each.wanted.group, each.wanted.place), "")
        position = now[each.wanted.group].positions.get(each.wanted.place)
        if each.state == "committed" and not why and (position is None or position.offset != each.wanted.offset):
            why = f"it was committed, and the group has {'none' if position is None else position.offset} now"
        found.append(PositionOutcome(each.wanted, "left", why) if why else each)
    return found


def _judge(wanted: WantedPosition, group: ListedGroup | None, held: CommittedOffsets) -> PositionOutcome:
    position = held.positions.get(wanted.place)
    if held.error:
        return PositionOutcome(wanted, "left", held.error)
    if position is not None and position.offset == wanted.offset:
        return PositionOutcome(wanted, "there")
    if position is not None:
        why = f"the group has committed offset {position.offset} there; delete that, or reset it yourself"
        return PositionOutcome(wanted, "left", why)
    if wanted.place in held.unstable:
        return PositionOutcome(wanted, "left", "a transaction with its position is open")
    if group is not None and group.state not in _WITHOUT_MEMBERS:
        return PositionOutcome(wanted, "left", f"the group has members ({group.state}); stop them and run it again")
    if group is not None and group.type not in _COMMITTING_TYPES:
        return PositionOutcome(wanted, "left", f"at the target it is a group of type {group.type}")
    return PositionOutcome(wanted, "committed")


def _commit(groups: GroupOffsets, wanted: Iterable[WantedPosition]) -> dict[tuple[str, TopicPartition], str]:
    """Why not, by group and place."""
    by_group: dict[str, dict[TopicPartition, CommittedPosition]] = defaultdict(dict)
    for each in wanted:
        by_group[each.group][each.place] = CommittedPosition(each.offset, each.metadata)
    return {
        (group, place): why
        for group, positions in by_group.items()
        for place, why in groups.commit(group, positions).items()
    }
