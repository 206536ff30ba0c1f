"""What a rehearsal asks besides what a migration does."""

from __future__ import annotations

from dataclasses import dataclass, field

from watershed.cutover.actions import Action, Deed, JsonObject
from watershed.cutover.observations import Observation


@dataclass(frozen=True, slots=True)
class ReadOriginals(Action):
    """→ ObservedOriginals: what would be copied, and whether it may be. Nothing is changed."""


@dataclass(frozen=True, slots=True)
class MakeCopies(Deed):
    """The copies with the newest records of their topics, flows over them, and producers and consumers at the source →
    CopiesMade. what: as `ObservedOriginals` has it."""

    what: JsonObject


@dataclass(frozen=True, slots=True)
class CountRecords(Action):
    """Producers stop, consumers read to the end, and everything is counted → RecordsCounted."""


@dataclass(frozen=True, slots=True)
class RemoveCopies(Deed):
    """The inverse of MakeCopies with the same `what` → CopiesRemoved. Repeating it does no harm."""

    what: JsonObject


@dataclass(frozen=True, slots=True)
class ObservedOriginals(Observation):
    """problems: why there can be no rehearsal. lacking: rights that the migration itself will need, and this process
    has not. what: what will be made, `{"copies": [{topic, copy, target_copy, partitions}], "source", "target",
    "flows": {id: alias of its target}, "groups": [], "keep"}`."""

    problems: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    what: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopiesMade(Observation):
    """records: copied, by topic."""

    records: dict[str, int]


@dataclass(frozen=True, slots=True)
class RecordsCounted(Observation):
    """counts: `cutover.drill.record_tally.RecordTally.counts`."""

    counts: JsonObject


@dataclass(frozen=True, slots=True)
class CopiesRemoved(Observation):
    """left: what is still there, and why."""

    left: tuple[str, ...] = ()
