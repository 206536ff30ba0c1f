"""What a migration asks of the world: frozen data, one class a question or deed. Whoever drives it answers each with
the observation named in its docstring (`cutover.observations`), or with `Failed`.

`side` is always the role of a cluster in the flow. Offsets are keyed by that side's own topic names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from clusters.names import TopicPartition

Side = Literal["source", "target"]
Role = Literal["consumer", "producer"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """Base. Looking changes nothing; `Deed`s do, and are journaled before and after."""


@dataclass(frozen=True, slots=True)
class Deed(Action):
    """Changes something outside. Every deed may be repeated: the second time it finds its work done."""


# -- the migration's own book-keeping ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin(Action):
    """A step (or its undo) begins → Recorded: with the outcome when the journal already holds one."""

    step: str
    undo: bool = False


@dataclass(frozen=True, slots=True)
class Finish(Action):
    """The step's outcome, JSON → Noted. `refused` holds the reason when a gate said no."""

    step: str
    outcome: Json
    undo: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Recall(Action):
    """The deeds of that kind that this run ever began, done or not, out of the journal → Recalled."""

    deed: str


@dataclass(frozen=True, slots=True)
class Say(Action):
    """Something a person should read now → Noted."""

    text: str
    seen: Json | None = None


@dataclass(frozen=True, slots=True)
class Pause(Action):
    """Let time pass → Noted."""

    ms: int


# -- looking ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookAtCluster(Action):
    """→ ClusterSeen"""

    side: Side


@dataclass(frozen=True, slots=True)
class LookAtTopics(Action):
    """→ TopicsSeen: every topic of that side."""

    side: Side


@dataclass(frozen=True, slots=True)
class LookAtFlow(Action):
    """→ FlowSeen: desired state and loud partitions of the migration's flow."""


@dataclass(frozen=True, slots=True)
class LookAtGroup(Action):
    """→ GroupSeen"""

    side: Side
    group: str


@dataclass(frozen=True, slots=True)
class LookAtLogs(Action):
    """→ LogsSeen"""

    side: Side
    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LookAtCopies(Action):
    """→ CopiesSeen: the ledger's map and the target's log end for each of the *source* partitions."""

    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LookAtRecords(Action):
    """→ RecordsSeen: the first committed record at or after each offset."""

    side: Side
    at: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LookAtApplication(Action):
    """→ ApplicationSeen"""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Prove(Action):
    """→ ProofSeen. final: everything up to the source's end must be proven; since: an earlier proof's summary."""

    flow: str
    topics: tuple[str, ...]
    level: str
    final: bool
    since: str | None


@dataclass(frozen=True, slots=True)
class AskApproval(Action):
    """→ ApprovalSeen. `evidence` is what the person decides on."""

    gate: str
    by: str
    question: str
    evidence: Json


# -- deeds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopApplication(Deed):
    """→ ApplicationSeen; returns when its clients are closed."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class StartApplication(Deed):
    """→ ApplicationSeen"""

    name: str
    role: Role
    side: Side


@dataclass(frozen=True, slots=True)
class CommitOffsets(Deed):
    """→ GroupSeen, read back. Only for an empty group; a live one is answered with Failed."""

    side: Side
    group: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ForgetGroup(Deed):
    """Remove the offsets that this run committed for an empty group: the inverse of CommitOffsets → GroupSeen."""

    side: Side
    group: str


@dataclass(frozen=True, slots=True)
class StopFlow(Deed):
    """The migration's flow is not to copy any more: its desired state becomes `stopped` → FlowSeen, read back."""


@dataclass(frozen=True, slots=True)
class Seal(Deed):
    """Write the evidence pack → Sealed."""
