"""What an earlier run of a wave has journaled, for the run that takes it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.fences.journaled_fence import find_standing_fence
from watershed.cutover.journal.hash_chain import RUN_STEP, JournalChain, JournalEntry, find_step_outcome
from watershed.cutover.observations import ProducerSwitch
from watershed.cutover.offsets import decode_offsets
from watershed.cutover.step_outcomes import StepOutcomes, TranslatedGroup
from watershed.topology.plan import PlanFlow

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """flow: along which it moved applications. outcomes: of its steps. state: how it ended, "" while it is unfinished.
    switched_ms: when producers were switched (of a wave of late groups, when it was done), milliseconds since 1970.
    moved: groups whose offsets it committed at its target, or found there just so; halted: those that it has stopped at
    its source and not moved. fence: the deed that raised the fence which still stands there. rights: those given at its
    target that nobody needs there once this wave has left, JSON of `InventoryAcl`. ours: group → offsets at its source
    that runs of this wave committed or found there. taken_back: the run that has taken it back already. unseen: it
    could not look at its source (a failover), so offsets of its groups there are what they had read before."""

    run: str
    flow: PlanFlow
    outcomes: StepOutcomes
    state: str
    switched_ms: int
    moved: tuple[str, ...] = ()
    halted: tuple[str, ...] = ()
    fence: _Json | None = None
    rights: tuple[_Json, ...] = ()
    ours: Mapping[str, tuple[Mapping[TopicPartition, int], ...]] = field(default_factory=dict)
    taken_back: str | None = None
    unseen: bool = False

    def translated(self, group: str) -> TranslatedGroup | None:
        """What was translated for the group; None when that never came to pass."""
        return self.outcomes.find_translation(group)


def find_switched_migration(chain: JournalChain, wave: str) -> list[JournalEntry]:
    """The entries of the newest migration of that wave that has passed its point of no return; empty without one."""
    for run in reversed(list(dict.fromkeys(entry.run for entry in chain.entries))):
        entries = chain.run(run)
        kind = entries[0].observation.get("kind", "migrate")
        passed = find_step_outcome(entries, "point_of_no_return")
        if kind == "migrate" and entries[0].wave == wave and passed is not None and passed[1] is None:
            return entries
    return []


def find_producer_switches(chain: JournalChain, waves: Iterable[str]) -> tuple[ProducerSwitch, ...]:
    """Of each of these waves that a migration has moved behind its point of no return, and no run has taken back."""
    found = []
    for wave in waves:
        entries = find_switched_migration(chain, wave)
        if entries and find_rollback_of(chain, entries[0].run) is None:
            outcomes = _read_outcomes(entries)
            at_ms = _list_switch_times(entries)[0]
            found.append(ProducerSwitch(wave, entries[0].run, at_ms, outcomes.barrier, outcomes.cut))
    return tuple(found)


def find_late_move(chain: JournalChain, wave: str) -> list[JournalEntry]:
    """The entries of the newest migration that has moved this wave of late groups; empty where none did."""
    for run in reversed(list(dict.fromkeys(entry.run for entry in chain.entries))):
        entries = chain.run(run)
        last = entries[-1]
        done = last.step == RUN_STEP and last.kind == "outcome" and last.observation.get("state") == "done"
        if entries[0].wave == wave and entries[0].observation.get("kind", "migrate") == "migrate" and done:
            return entries
    return []


def _read_outcomes(entries: list[JournalEntry]) -> StepOutcomes:
    steps = dict.fromkeys(entry.step for entry in entries if entry.step != RUN_STEP)
    return StepOutcomes({step: found[0] for step in steps if (found := find_step_outcome(entries, step)) is not None})


def _list_switch_times(entries: list[JournalEntry]) -> list[int]:
    """When producers were told to start at the target; else when the point of no return was passed, else the end."""
    switched = [e.at_ms for e in entries if e.deed and e.kind == "intent" and e.step == "switch_producers"]
    crossed = [e.at_ms for e in entries if e.step == "point_of_no_return" and e.kind == "outcome" and not e.deed]
    return switched or crossed or [entries[-1].at_ms]


def build_earlier_run(chain: JournalChain, entries: list[JournalEntry], flow: PlanFlow) -> EarlierRun:
    """What is to be known of the run with these entries; `flow` is the one along which it moved."""
    first, last = entries[0], entries[-1]
    deeds = [entry for entry in entries if entry.deed and entry.kind == "intent"]
    moved = list_moved_groups(entries)
    stopped = _names(deeds, "StopApplication", "name", role="consumer")
    of_wave = [entry for entry in chain.entries if entry.wave == first.wave]
    return EarlierRun(
        run=first.run,
        flow=flow,
        outcomes=_read_outcomes(entries),
        state=str(last.observation.get("state", "")) if last.step == RUN_STEP and last.kind == "outcome" else "",
        switched_ms=_list_switch_times(entries)[0],
        moved=moved,
        halted=tuple(name for name in stopped if name not in moved),
        fence=find_standing_fence(entries),
        ours=_ours(of_wave),
        taken_back=find_rollback_of(chain, first.run),
    )


def list_moved_groups(entries: Iterable[JournalEntry]) -> tuple[str, ...]:
    """Groups whose offsets a migration has committed at its target, or found there just as it would have committed
    them: then `sync.groups` had carried them there, and the journal holds no deed."""
    found = list(entries)
    deeds = [entry for entry in found if entry.deed and entry.kind == "intent"]
    step = find_step_outcome(found, "commit_offsets")
    committed = step[0].get("committed", {}) if step is not None else {}
    return tuple(dict.fromkeys((*_names(deeds, "CommitOffsets", "group", side="target"), *committed)))


def _names(deeds: Iterable[JournalEntry], deed: str, what: str, **fields: str) -> tuple[str, ...]:
    found = (e.observation for e in deeds if e.deed == deed)
    wanted = (seen[what] for seen in found if all(seen.get(key) == value for key, value in fields.items()))
    return tuple(dict.fromkeys(wanted))


def _ours(entries: Iterable[JournalEntry]) -> dict[str, tuple[Mapping[TopicPartition, int], ...]]:
    """Of a migration its source is where a rollback commits: `source` to the one, `target` to the other."""
    found: dict[str, list[Mapping[TopicPartition, int]]] = {}
    kinds: dict[str, str] = {}
    for entry in entries:
        seen = entry.observation
        kinds.setdefault(entry.run, str(seen.get("kind", "migrate")))
        side = "target" if kinds[entry.run] in ("rollback", "failback") else "source"
        if entry.deed == "CommitOffsets" and entry.kind == "intent" and seen["side"] == side:
            found.setdefault(seen["group"], []).append(decode_offsets(seen["offsets"]))
        if entry.step == "translate_offsets" and entry.kind == "outcome" and not entry.deed and side == "source":
            for group, moved in seen["outcome"].get("groups", {}).items():
                found.setdefault(group, []).append(decode_offsets(moved["source"]))
    return {group: tuple(each) for group, each in found.items()}


def find_rollback_of(chain: JournalChain, run: str) -> str | None:
    """The run that is done and has taken that one back."""
    for name in dict.fromkeys(entry.run for entry in chain.entries):
        entries = chain.run(name)
        ended = (
            entries[-1].step == RUN_STEP
            and entries[-1].kind == "outcome"
            and entries[-1].observation["state"] == "done"
        )
        if ended and entries[0].observation.get("takes_back") == run:
            return name
    return None
