"""Every operation that Airflow offers beside runs, by the command line's own word, and what it needs to be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from watershed.clusters.settings import SettingsLookup
from watershed.cutover.operations.proposal import OperationRefused, Proposal
from watershed.topology.plan import Plan


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """What a person chose. file: what messages call the topology file. accepted: findings of an adoption that are
    accepted, or `above-share` of a pruning. worker, reason: of an order about single partitions."""

    operation: str
    flow: str = ""
    topic: str = ""
    partition: int | None = None
    through: int | None = None
    group: str = ""
    copied_by: str = "records"
    accepted: tuple[str, ...] = ()
    file: str = "FILE"
    worker: str = ""
    reason: str = ""

    @classmethod
    def from_params(cls, params: Mapping[str, Any], file: str) -> OperationRequest:
        """From a DAG's params, where an empty one is null."""
        return cls(
            operation=str(params["operation"]),
            flow=str(params.get("flow") or ""),
            topic=str(params.get("topic") or ""),
            partition=params.get("partition"),
            through=params.get("through"),
            group=str(params.get("group") or ""),
            copied_by=str(params.get("copied_by") or "records"),
            accepted=tuple(params.get("accept") or ()),
            file=file,
            worker=str(params.get("worker") or ""),
            reason=str(params.get("reason") or ""),
        )

    def require(self, **needed: str) -> None:
        """Raises OperationRefused for fields that are empty. needed: field → what it is."""
        missing = [f"{name} ({what})" for name, what in needed.items() if getattr(self, name) in ("", None)]
        if missing:
            raise OperationRefused(f"{self.operation} needs {', '.join(missing)}: say it and trigger again")


Propose = Callable[[Plan, SettingsLookup, OperationRequest], Proposal]


def propose_operation(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    """What the operation would do now. Raises OperationRefused, ClusterError, ReplicatorError, NotInPlan."""
    propose = {**OPERATE, **DECIDE}.get(wanted.operation)
    if propose is None:
        raise OperationRefused(
            f"there is no operation {wanted.operation}; there are {', '.join({**OPERATE, **DECIDE})}"
        )
    wanted.require(flow="the flow that it is about")
    return propose(plan, connect, wanted)


def _order_flow(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.flow_state import propose_flow_order

    return propose_flow_order(plan, connect, wanted.flow, wanted.operation)  # type: ignore[arg-type]  # a key of OPERATE


def _pause_or_resume(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    """Of the whole flow, or of what is named."""
    if wanted.topic:
        return _order_partitions(plan, connect, wanted)
    if wanted.partition is not None:
        wanted.require(topic="at the source")
    return _order_flow(plan, connect, wanted)


def _order_partitions(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.partition_control import propose_partition_order
    from watershed.replicator.partition_control import PartitionOrder

    wanted.require(topic="at the source")
    if wanted.operation == "move":
        wanted.require(worker="its name, as in the table of partitions")
    order = PartitionOrder(
        wanted.operation,  # type: ignore[arg-type]  # a key of OPERATE
        wanted.topic,
        wanted.partition,
        wanted.worker if wanted.operation == "move" else "",
        wanted.reason,
    )
    return propose_partition_order(plan, connect, wanted.flow, order, file=wanted.file)


def _sync_positions(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.group_positions import propose_position_sync

    return propose_position_sync(plan, connect, wanted.flow, (wanted.group,) if wanted.group else ())


def _accept_gap(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.partition_decisions import propose_gap_acceptance, read_flow_scene

    wanted.require(topic="at the source", partition="its number")
    assert wanted.partition is not None
    scene = read_flow_scene(plan, connect, wanted.flow, wanted.file)
    return propose_gap_acceptance(scene, wanted.topic, wanted.partition, wanted.through)


def _reseed(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.partition_decisions import propose_reseed, read_flow_scene

    wanted.require(topic="at the source")
    return propose_reseed(read_flow_scene(plan, connect, wanted.flow, wanted.file), wanted.topic, wanted.partition)


def _copy_foreign(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.partition_decisions import propose_foreign_copy, read_flow_scene

    wanted.require(topic="at the source", partition="its number")
    assert wanted.partition is not None
    scene = read_flow_scene(plan, connect, wanted.flow, wanted.file)
    return propose_foreign_copy(scene, wanted.topic, wanted.partition, wanted.through)


def _reset_group(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.group_positions import propose_group_reset

    wanted.require(group="as the source calls it")
    return propose_group_reset(plan, connect, wanted.flow, wanted.group, wanted.topic or None, wanted.partition)


def _adopt(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from dataclasses import replace

    from watershed.cutover.operations import adoption

    topics = (wanted.topic,) if wanted.topic else ()
    accepted = adoption.parse_accepted_findings(wanted.accepted)
    asked = adoption.AdoptionRequest(wanted.copied_by, topics, accepted=accepted, file=wanted.file)
    stage = adoption.open_adoption(plan, connect, wanted.flow, asked, applied=True)
    keys, said = adoption.list_adoptable_partitions(stage)
    proofs = adoption.prove_adoption(stage, keys, said.append)
    proposal = adoption.propose_adoption(stage, proofs)
    return replace(proposal, lines=(*adoption.render_adoption(stage, proofs), *proposal.lines), notes=tuple(said))


def _prune(plan: Plan, connect: SettingsLookup, wanted: OperationRequest) -> Proposal:
    from watershed.cutover.operations.access_pruning import ABOVE_SHARE, propose_pruning

    return propose_pruning(plan, connect, wanted.flow, above_share=ABOVE_SHARE in wanted.accepted)


# What another operation takes back, and what stays as it is decided.
OPERATE: Final[Mapping[str, Propose]] = {
    "pause": _pause_or_resume,
    "resume": _pause_or_resume,
    "stop": _order_flow,
    "restart": _order_flow,
    "move": _order_partitions,
    "release": _order_partitions,
    "sync": _sync_positions,
}
DECIDE: Final[Mapping[str, Propose]] = {
    "accept-gap": _accept_gap,
    "reseed": _reseed,
    "copy-foreign": _copy_foreign,
    "adopt": _adopt,
    "reset-group": _reset_group,
    "prune": _prune,
}
