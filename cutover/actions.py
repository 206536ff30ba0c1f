"""What a run asks of its action handler: frozen data, one class a question or deed. Whoever drives it answers each with
the observation named in its docstring (`cutover.observations`), or with `ActionFailed`.

`side` is always the role of a cluster in the flow. Offsets are keyed by that side's own topic names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from watershed.clusters.topic_partition import TopicPartition

ClusterSide = Literal["source", "target"]
ApplicationRole = Literal["consumer", "producer"]
JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """Base. Looking changes nothing; `Deed`s do, and are journaled before and after."""


@dataclass(frozen=True, slots=True)
class Deed(Action):
    """Changes something outside. Every deed may be repeated: the second time it finds its work done."""


# -- the migration's own book-keeping ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginStep(Action):
    """A step (or its undo) begins → RecordedStep: with the outcome when the journal already holds one."""

    step: str
    undo: bool = False


@dataclass(frozen=True, slots=True)
class FinishStep(Action):
    """The step's outcome, JSON → ActionDone. `refused` holds the reason when a gate said no."""

    step: str
    outcome: JsonObject
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class RecallDeeds(Action):
    """The deeds of that kind that this run ever began, done or not, out of the journal → RecalledDeeds."""

    deed: str


@dataclass(frozen=True, slots=True)
class RecallSwitches(Action):
    """Where the newest migrations of these waves have switched producers, out of the journal → RecalledSwitches."""

    waves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportMessage(Action):
    """Something a person should read now → ActionDone."""

    text: str
    seen: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class PauseRun(Action):
    """Let time pass → ActionDone."""

    ms: int


# -- looking ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadCluster(Action):
    """→ ObservedCluster"""

    side: ClusterSide


@dataclass(frozen=True, slots=True)
class ReadTopics(Action):
    """→ ObservedTopics: every topic of that side."""

    side: ClusterSide


@dataclass(frozen=True, slots=True)
class ReadClock(Action):
    """→ ObservedTime: what the wall clock says, for windows only; everything else counts monotonic milliseconds."""


@dataclass(frozen=True, slots=True)
class ReadFlow(Action):
    """→ ObservedFlow: desired state and halted partitions of a flow; None: the one along which applications move."""

    flow: str | None = None


@dataclass(frozen=True, slots=True)
class ReadGroup(Action):
    """→ ObservedGroup"""

    side: ClusterSide
    group: str


@dataclass(frozen=True, slots=True)
class ReadGroupConfigs(Action):
    """→ ObservedGroupConfigs"""

    side: ClusterSide
    group: str


@dataclass(frozen=True, slots=True)
class FindReaders(Action):
    """→ ObservedReaders: every live group with positions in these topics of that side."""

    side: ClusterSide
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadLogs(Action):
    """→ ObservedLogs"""

    side: ClusterSide
    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReadCopies(Action):
    """→ ObservedCopies: the ledger's map and the target's log end for each of the *source* partitions of a flow; None:
    the one along which applications move."""

    places: tuple[TopicPartition, ...]
    flow: str | None = None


@dataclass(frozen=True, slots=True)
class ReadRecords(Action):
    """→ ObservedRecords: the first committed record at or after each offset."""

    side: ClusterSide
    at: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ReadApplication(Action):
    """→ ObservedApplication. told: the order whose progress is asked for; None: only the state."""

    name: str
    role: ApplicationRole
    told: StopApplication | StartApplication | None = None


@dataclass(frozen=True, slots=True)
class ReadFence(Action):
    """→ ObservedFence: what of a fence's kind is in force now, as the snapshot from which it is raised and lowered.

    topics are those of `side`; names: the applications that it keeps out (their principals and client ids are in the
    plan). rate: what a `quota` leaves them, bytes a second and broker."""

    kind: str
    side: ClusterSide
    topics: tuple[str, ...]
    names: tuple[str, ...]
    rate: int = 1


@dataclass(frozen=True, slots=True)
class FindWriters(Action):
    """→ ObservedWriters: who wrote to these partitions, as far as brokers tell. since: whoever wrote at or behind these
    offsets, read from the log itself; without it, the producers that leaders remember (DescribeProducers, KIP-664)."""

    side: ClusterSide
    places: tuple[TopicPartition, ...]
    since: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class ProbeCluster(Action):
    """→ ClusterProbe: whether any broker of that side answers, known within seconds also where they only hang."""

    side: ClusterSide


@dataclass(frozen=True, slots=True)
class ReadLastSeenSource(Action):
    """→ LastSeenSource: what workers last reported of these *source* partitions. Asks the target alone."""

    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CheckCutOff(Action):
    """→ CutOffResult: whether workers could be kept out (`CutOff`) by this process; nothing is changed."""


@dataclass(frozen=True, slots=True)
class ReadRights(Action):
    """→ ObservedRights: the rights to write that the flow holds back at its target (`include_write: on_failover`), as
    far as they are about one of these topics and groups of the target; no topic: all of them. remembered: as workers
    last read them from the source, which is not asked."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    remembered: bool = False


@dataclass(frozen=True, slots=True)
class FindDivergence(Action):
    """→ ObservedDivergence: what applications wrote to that side at or behind these offsets; records that flows of
    Watershed brought there are not among it."""

    side: ClusterSide
    since: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CheckHooks(Action):
    """→ HookProblems: whether these hooks could be called; none of them is."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestProof(Action):
    """→ ProofOutcome. final: everything up to the source's end must be proven; since: an earlier proof's summary."""

    flow: str
    topics: tuple[str, ...]
    level: str
    final: bool
    since: str | None


@dataclass(frozen=True, slots=True)
class AskApproval(Action):
    """→ ApprovalAnswer. `evidence` is what the person decides on."""

    gate: str
    by: str
    question: str
    evidence: JsonObject


# -- deeds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopApplication(Deed):
    """→ ObservedApplication: `stopping` while its clients are not closed yet. side: where it is expected to run.
    together: other applications of the same role that persons move, and that the step tells the same next."""

    name: str
    role: ApplicationRole
    side: ClusterSide = "source"
    together: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartApplication(Deed):
    """→ ObservedApplication: `starting` while it is not there yet. former: what is to stand there again (replicas of
    workloads), as ObservedApplication had it when the run began. together: as of StopApplication."""

    name: str
    role: ApplicationRole
    side: ClusterSide
    former: JsonObject = field(default_factory=dict)
    together: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitOffsets(Deed):
    """→ ObservedGroup, read back. Only for an empty group; a live one is answered with ActionFailed.

    texts: what stands beside the offsets. kind: of the group (`ObservedGroup.kind`); of a share group the offsets are
    its start offsets."""

    side: ClusterSide
    group: str
    offsets: Mapping[TopicPartition, int]
    texts: Mapping[TopicPartition, str] = field(default_factory=dict)
    kind: str = "classic"


@dataclass(frozen=True, slots=True)
class ForgetGroup(Deed):
    """Remove the offsets that this run committed for an empty group: the inverse of CommitOffsets → ObservedGroup."""

    side: ClusterSide
    group: str


@dataclass(frozen=True, slots=True)
class RaiseFence(Deed):
    """Keep the applications from writing → ObservedFence, read back. `snapshot`: of ReadFence, journaled with the deed
    before it is done, so that a dead driver's successor knows what stood there."""

    kind: str
    side: ClusterSide
    topics: tuple[str, ...]
    names: tuple[str, ...]
    snapshot: JsonObject


@dataclass(frozen=True, slots=True)
class LowerFence(Deed):
    """The exact inverse of RaiseFence with the same snapshot → ObservedFence, read back."""

    kind: str
    side: ClusterSide
    topics: tuple[str, ...]
    names: tuple[str, ...]
    snapshot: JsonObject


@dataclass(frozen=True, slots=True)
class CallHook(Deed):
    """One of `migration.hooks` → HookAnswer. `point`: when it is called (`before`, `fenced`, `switched`, `rolled_back`,
    `check`, `raise`, `lower`); `key` is the same however often it is called for one purpose (idempotency)."""

    name: str
    point: str
    key: str
    body: JsonObject


@dataclass(frozen=True, slots=True)
class StartFlow(Deed):
    """Let a declared flow copy: its desired state becomes `running` → ObservedFlow, read back.

    begin: source topic → partition → the offset at which a partition begins that the flow has not copied yet, instead
    of where the plan says (`cutover.offsets.encode_offsets`). answers_breach: whoever approved the run lets a flow go
    on that a budget stopped; False where the run only puts back what it found."""

    flow: str
    begin: JsonObject = field(default_factory=dict)
    answers_breach: bool = True


@dataclass(frozen=True, slots=True)
class StopFlow(Deed):
    """A flow is not to copy any more: its desired state becomes `stopped` → ObservedFlow, read back. None: the one
    along which applications move."""

    flow: str | None = None


@dataclass(frozen=True, slots=True)
class RetireTopics(Deed):
    """A flow is not to copy these source topics any more, though it selects them: their target partitions are written
    to by applications now, which its workers would take for a foreign writer at their next restart → ObservedFlow, read
    back. flow None: the one along which applications move."""

    topics: tuple[str, ...]
    flow: str | None = None


@dataclass(frozen=True, slots=True)
class ServeTopics(Deed):
    """The inverse of RetireTopics: the flow copies them again → ObservedFlow, read back."""

    topics: tuple[str, ...]
    flow: str | None = None


@dataclass(frozen=True, slots=True)
class Rejoin(Deed):
    """Let a flow that copies by sequence numbers go on behind what applications wrote at its target, and the flow
    `back` has carried to its source → RejoinResult. order: the name of the orders to its workers, one a partition.

    returns: source topic → partition → [cut, copied, base, position] (`replicator.recovery.rejoin.RejoinPoint`)."""

    flow: str
    back: str
    order: str
    returns: JsonObject


@dataclass(frozen=True, slots=True)
class CutOff(Deed):
    """No worker of the flow can append to these *target* partitions any more, also one that stood still and wakes up
    with batches in hand: its producers are fenced in the log → CutOffResult. offsets: log ends from before, behind
    which the fence is looked for."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GiveRights(Deed):
    """Give these rights (`ObservedRights.missing`) at the target → ObservedRights, when every broker there shows
    them."""

    rights: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class TakeRights(Deed):
    """The exact inverse of GiveRights with the same rights → ObservedRights, when no broker of that side shows them."""

    side: ClusterSide
    rights: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class LiftProtection(Deed):
    """Let applications write to what these source topics are called at the target of a flow with `protect: true` →
    ObservedRights, when no broker there shows the denials. flow None: the one along which applications move."""

    topics: tuple[str, ...]
    flow: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreProtection(Deed):
    """The inverse of LiftProtection: those of these topics that the flow copies refuse applications again →
    ObservedRights, when every broker there shows the denials."""

    topics: tuple[str, ...]
    flow: str | None = None


@dataclass(frozen=True, slots=True)
class EndRun(Deed):
    """Write down the end of another run of this topology, which this one has taken back, if it has none →
    ActionDone."""

    run: str
    state: Literal["rolled_back", "abandoned"]
    reason: str


@dataclass(frozen=True, slots=True)
class Seal(Deed):
    """Write the evidence pack → SealedEvidence."""
