"""Orders: what a person decided about a halted partition, and whether it still fits what is there.

An order names what it answers: the halt state, the ledger's newest generation, and either the very source offsets that
may be given up or the empty topic that is to be filled. A partition that has moved on since refuses it, so an order is
obeyed once or not at all (decision 0021). Obeying one is a new *content generation* (docs/research/sequence-numbers.md,
§6 point 5): the producer epoch grows by one and sequence numbers begin again at the target's log end, so a worker
that froze before the order finds its batches fenced.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, ControlWriter, encode_control_value
from watershed.clusters.control_values import ControlValue
from watershed.clusters.flow_records import DECISION_PREFIX, JOURNALED_PREFIX, StartPosition
from watershed.replicator.ledger.foreign_part import ForeignPart
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.partition_key import MAX_BATCHES_IN_FLIGHT, PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, OffsetSpan, Reinspect
from watershed.replicator.recovery.producer_epochs import drop_unlanded_epochs, find_unused_epoch
from watershed.replicator.recovery.recovery_point import LogInspection, RecoveryPoint

DecisionKind = Literal["accept-gap", "reseed", "adopt", "rejoin", "copy-foreign"]
COPY_FOREIGN: Final = "copy-foreign"  # the kind that no inspection obeys: the loop guard lets its offsets pass
CONTINUING_KINDS = (
    "adopt",
    "rejoin",
)  # kinds that go on behind records of others, which the ledger's foreign part tells


@dataclass(frozen=True, slots=True)
class OperatorDecision(ControlRecordBody):
    """One decision about one partition. `topic` is the source's name.

    generation: the ledger's newest when it was given (0: nothing there). lost: for accept-gap, the source offsets that
    are given up. through: for accept-gap, the source offset up to which (not with it) more may be given up, if it is
    lost when the order is obeyed; -1: only `lost`. target_id: for reseed, the id of the empty topic. actor: who gave
    it. at_ms: when, milliseconds since 1970. For adopt: source_id and target_id are the topics that were compared, tool
    says who copied, base is the target's log end as it was proven, position the source offset where copying goes on.
    For copy-foreign, lost has the source offsets at which the guard believes no producer id, source_id their topic.
    For rejoin the same as for adopt, and `tool` is the flow back that carried to the source what applications wrote at
    the target.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat(
        "an operator decision",
        FLOWS_TOPIC,
        added_later=("through", "source_id", "base", "position", "tool"),
    )
    kind: DecisionKind
    flow: str
    topic: str
    partition: int
    state: str
    generation: int
    actor: str
    lost: OffsetSpan | None = None
    target_id: uuid.UUID | None = None
    id: str = ""
    at_ms: int = 0
    through: int = -1
    source_id: uuid.UUID | None = None
    base: int = -1
    position: int = -1
    tool: str = ""

    @property
    def key(self) -> str:
        """Key of the record in watershed.flows."""
        return build_decision_key(self.flow, self.topic, self.partition)

    @property
    def note(self) -> str:
        """For the status, as long as this order is the partition's newest."""
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.at_ms / 1000))
        if self.kind == "accept-gap":
            return f"source offsets {self.lost} were given up on {when} by {self.actor}"
        if self.kind == COPY_FOREIGN:
            return f"source offsets {self.lost} are copied as an application's since {when}, by order of {self.actor}"
        if self.kind == "adopt":
            return f"target offsets below {self.base} were copied by {self.tool}; adopted on {when} by {self.actor}"
        if self.kind == "rejoin":
            return f"goes on at target offset {self.base}, behind what flow {self.tool} carried back, since {when}"
        return f"copied again from the start since {when} by order of {self.actor}"


@dataclass(frozen=True, slots=True)
class DecisionWithMap:
    """A decision to continue the copy of another tool.

    foreign: the offset map of that copy. details: what the journal entry says beside the decision.
    """

    decision: OperatorDecision
    key: PartitionKey
    foreign: ForeignPart
    details: ControlValue


def build_decision_key(flow: str, topic: str, partition: int) -> str:
    """Key of a decision in watershed.flows: one for each partition, so the newest one counts."""
    return f"{DECISION_PREFIX}{flow}|{topic}|{partition}"


def build_policy_decision(key: PartitionKey, halt: Halt, generation: int, now_ms: int, actor: str) -> OperatorDecision:
    """The order that nobody has to give. actor: what decides in a person's place.
    Two workers that find the same give the same."""
    name = f"policy-{generation}-{halt.source}".replace(" ", "-")
    return OperatorDecision(
        "accept-gap", key.flow, key.topic, key.partition, halt.state, generation, actor, halt.source, None, name,
        now_ms,
    )  # fmt: skip


def find_foreign_offsets_to_copy(decision: OperatorDecision | None, source_id: uuid.UUID) -> OffsetSpan | None:
    """The source offsets that an order has copied, whoever they claim to be from; None without such an order."""
    passes = decision is not None and decision.kind == COPY_FOREIGN and decision.source_id == source_id
    return decision.lost if decision is not None and passes else None


def apply_decision(
    decision: OperatorDecision,
    outcome: RecoveryPoint | Halt | Reinspect,
    remembered: LedgerState | None,
    generation: int,
    seen: LogInspection,
    start: StartPosition,
) -> RecoveryPoint | Halt | Reinspect:
    """What becomes of a partition for which `resume` decided as it did, now that there is an order.

    Returns `outcome` itself when the order was obeyed before or nothing is left to obey; a refused order is said in
    the error of the halt state that remains.
    """
    if remembered is None or decision.id == remembered.order:
        return outcome
    why_not = _explain_unfit(decision, outcome, generation, seen)
    if why_not:
        if not isinstance(outcome, Halt):
            return outcome  # it healed, or is about to: nothing to order
        reason = f"{decision.kind} {decision.id} of {decision.actor} is refused: {why_not}"
        return replace(outcome, error=f"{outcome.error}; {reason}")
    decision = bind_lost_offsets(decision, outcome)
    if not seen.settled:
        return Reinspect(f"{decision.kind} is ordered; waiting until nothing can be under way to the target")
    epoch = find_unused_epoch(remembered)
    if isinstance(epoch, Halt):
        return epoch
    identity = remembered.identity
    afresh = decision.kind == "reseed"
    disowned = remembered.last_epoch > identity.epoch  # begun behind a hole, and an older one's batch came first
    return RecoveryPoint(
        identity=ProducerIdentity(identity.producer_id, epoch, seen.target_end),
        position=_beginning(remembered, seen, start) if afresh or decision.lost is None else decision.lost.end,
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT,
        since=epoch if afresh else remembered.since,
        order=decision.id,
        note=decision.note,
        claims=True,
        after=drop_unlanded_epochs(remembered, seen).identity.epoch if disowned and not afresh else -1,
        adopted="" if afresh else remembered.adopted,
    )


def apply_adoption(
    decision: OperatorDecision,
    outcome: RecoveryPoint | Halt | Reinspect,
    remembered: LedgerState | None,
    generation: int,
    seen: LogInspection,
    producer_id: int,
) -> RecoveryPoint | Halt | Reinspect:
    """As `obeyed`, for an order to go on behind what others left on the target, where that is what was proven, to the
    offset. `adopt`: only where this flow has written nothing; `rejoin`: only where it has, and nothing since.

    Our first batch is of producer epoch 1, or of one that nobody began: a worker that has looked before there was an
    order, and thought the partition empty or its own, would go on with an older one and is fenced."""
    if remembered is not None and decision.id in (remembered.order, remembered.adopted):
        return outcome
    why_not = _explain_other_generation(decision, remembered, generation) or _explain_moved_offsets(decision, seen)
    if why_not:
        if not isinstance(outcome, Halt):
            return outcome
        return replace(
            outcome, error=f"{outcome.error}; {decision.kind} {decision.id} of {decision.actor} is refused: {why_not}"
        )
    if not seen.settled:
        return Reinspect(f"{decision.kind} is ordered; waiting until nothing can be under way to the target")
    epoch: int | Halt = 1
    if remembered is not None:
        begun = (
            seen.producer[0] if seen.producer is not None else -1
        )  # a fence has one of its own (replicator.copy.flow_epoch_fence)
        epoch = find_unused_epoch(replace(remembered, last_epoch=max(remembered.last_epoch, begun)))
    if isinstance(epoch, Halt):
        return epoch
    return RecoveryPoint(
        identity=ProducerIdentity(producer_id, epoch, seen.target_end),
        position=decision.position,
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=MAX_BATCHES_IN_FLIGHT,
        since=epoch,
        order=decision.id,
        note=decision.note,
        claims=True,
        adopted=decision.id,
    )


def _explain_other_generation(decision: OperatorDecision, remembered: LedgerState | None, generation: int) -> str:
    """Why the ledger is not what the order was given for; empty when it is."""
    if decision.kind == "adopt":
        return "this flow has copied into the partition itself" if remembered is not None else ""
    if remembered is None:
        return "this flow has copied nothing into the partition"
    if decision.generation != generation:
        return f"it answers generation {decision.generation} of the ledger, the newest is {generation}"
    return ""


def _explain_moved_offsets(decision: OperatorDecision, seen: LogInspection) -> str:
    """Why the logs are not those that were proven; empty when they are."""
    there = (seen.source_id, seen.target_id)
    if there != (decision.source_id, decision.target_id):
        compared = f"topics {decision.source_id} and {decision.target_id}"
        return f"it compared {compared}, now there are {there[0]} and {there[1]}; give it again"
    if seen.target_end != decision.base:
        return (
            f"it proved the target up to offset {decision.base}, now the log ends at {seen.target_end}: somebody still "
            "writes; stop that writer and give the order again"
        )
    if seen.source_start > decision.position:
        gone = OffsetSpan(decision.position, seen.source_start)
        return f"source offsets {gone}, where copying was to go on, have expired since; give it again"
    return ""


def _explain_unfit(
    decision: OperatorDecision, outcome: RecoveryPoint | Halt | Reinspect, generation: int, seen: LogInspection
) -> str:
    """Why the order does not answer what is there; empty when it does."""
    if decision.generation != generation:
        return f"it answers generation {decision.generation} of the ledger, the newest is {generation}; give it again"
    if decision.kind == "accept-gap":
        if not isinstance(outcome, Halt) or outcome.state != decision.state:
            return f"it answers {decision.state}"
        return explain_outgrown_gap(decision, outcome.source)
    if seen.target_id != decision.target_id:
        return f"it is for the target topic with id {decision.target_id}, now there is {seen.target_id}; give it again"
    if seen.target_start != seen.target_end:
        return f"the target still holds offsets {OffsetSpan(seen.target_start, seen.target_end)}; empty it first"
    return ""


def explain_outgrown_gap(decision: OperatorDecision, gone: OffsetSpan | None) -> str:
    """Why an accepted gap is not what is there; empty when it is, or has grown no further than was allowed."""
    if gone == decision.lost:
        return ""
    if decision.lost is not None and gone is not None and gone.first == decision.lost.first:
        if decision.lost.end < gone.end <= decision.through:
            return ""
        allowed = f" and no more than {OffsetSpan(gone.first, decision.through)}" if decision.through >= 0 else ""
        return (
            f"it gives up source offsets {decision.lost}{allowed}, but {gone} are gone; give it again, with --through "
            "and the last source offset that may be lost if more expires meanwhile"
        )
    return f"it gives up source offsets {decision.lost}, but {gone} are gone; give it again"


def bind_lost_offsets(decision: OperatorDecision, outcome: object) -> OperatorDecision:
    """The order as it is obeyed now: an accepted gap with the very offsets that are lost."""
    if decision.kind == "accept-gap" and isinstance(outcome, Halt) and outcome.source is not None:
        return replace(decision, lost=outcome.source)
    return decision


def _beginning(remembered: LedgerState, seen: LogInspection, start: StartPosition) -> int:
    """Where a new copy begins: with the source's log, or where the first copy was told to begin."""
    runs = remembered.map.runs
    if start == "earliest" or seen.source_id != remembered.source_id or not runs:
        return seen.source_start
    return min(max(runs[0].source, seen.source_start), seen.source_end)


def journal_decision(writer: ControlWriter, decision: OperatorDecision, topology: str) -> None:
    """Write the decision down for good, before anybody acts on it. The line is no part of a migration's hash chain (it
    has no run), but it carries the hash of its own content. Raises ClusterError."""
    writer.put(JOURNAL_TOPIC, _name(decision), _line("order", decision, topology), 0)


def journal_policy_decision(writer: ControlWriter, decision: OperatorDecision, topology: str) -> None:
    """The same for a decision of the flow's own policy. Workers have no right to write to the journal: it goes beside
    the flows, under a key that nothing overwrites. Raises ClusterError."""
    writer.put(FLOWS_TOPIC, JOURNALED_PREFIX + _name(decision), _line("order", decision, topology), 0)


def journal_decision_outcome(
    writer: ControlWriter, decision: OperatorDecision, topology: str, generation: int, worker: str
) -> None:
    """Write down what exactly an order is about to give up, as `generation` of the ledger by `worker`. Two workers may
    find something else; the ledger's claim of that generation says who began. Raises ClusterError."""
    line = _line("order-obeyed", decision, topology, {"obeyed_as": generation, "worker": worker})
    writer.put(FLOWS_TOPIC, f"{JOURNALED_PREFIX}{_name(decision)}/{generation}.{worker}", line, 0)


def build_journaled_prefix(flow: str) -> str:
    """How the keys of all lines in `watershed.flows` begin that journal decisions about partitions of a flow. Behind it
    stands `TOPIC/PARTITION/`, and what the decision is called."""
    return f"{JOURNALED_PREFIX}order/{flow}/"


def _name(decision: OperatorDecision) -> str:
    return f"order/{decision.flow}/{decision.topic}/{decision.partition}/{decision.id}"


def _line(
    record: str, decision: OperatorDecision, topology: str, details: dict[str, Any] | None = None
) -> dict[str, Any]:
    line = {"record": record, "of": topology} | decision.to_json() | (details or {})
    return line | {"hash": "sha256:" + hashlib.sha256(encode_control_value(line)).hexdigest()}


def submit_decision(writer: ControlWriter, decision: OperatorDecision, topology: str) -> None:
    """Journal the decision, then order it. Raises ClusterError."""
    journal_decision(writer, decision, topology)
    writer.put(FLOWS_TOPIC, decision.key, decision.to_json())
