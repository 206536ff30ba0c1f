"""What `topology apply` refuses: changes that would undo what was copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from watershed.clusters.capabilities import BrokerAnswers, combine_answers
from watershed.clusters.errors import UnreadableControlRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.replicator.errors import ReplicatorError
from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE, Guarantee, explain_refusal
from watershed.topology.inventory import Inventory, InventoryCluster
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.repeat_obstacles import decide_flow_guarantee, explain_repeat_obstacle
from watershed.topology.reserved_topics import explain_reserved_topic, find_reserved_targets

_ANEW = "give the flow a `suffix` and target names of its own (`naming`), which starts a second copy"


class CannotApply(ReplicatorError):
    """The plan asks for something that this version does not do, or that would change what is copied already."""


def refuse_reserved_targets(flow: PlanFlow) -> None:
    """A plan need not come from our compiler. Raises CannotApply."""
    for name, there in find_reserved_targets(flow):
        what = "every topic" if name == "*" else f"topic {name}"
        raise CannotApply(
            f"flow {flow.id} would call {what} {there} at {flow.target}, a name that no flow may write "
            f"({explain_reserved_topic(there.replace('*', 'x'))}); give the flow another `naming`"
        )


def refuse_newer_record(flow: PlanFlow, unreadable: ValueError | None) -> None:
    """A newer version has written the flow's record: what it says of topics that have moved would be lost with it.

    unreadable: why the newest record of the flow cannot be read. One that nobody's version wrote is written over.
    Raises CannotApply.
    """
    if isinstance(unreadable, UnreadableControlRecord) and unreadable.is_newer:
        why = str(unreadable).rstrip(".")
        raise CannotApply(
            f"flow {flow.id} is not applied: a newer version of Watershed has written its record at {flow.target}, and "
            f"this version would write over what it cannot read. {why}. To go back to this version, first apply with "
            "the newer one a file without what is new in it (docs/upgrade.md)"
        )


def combine_with_probes(
    answers: Mapping[str, BrokerAnswers], probed: Iterable[ClusterCapabilities]
) -> dict[str, ClusterCapabilities]:
    """What each cluster can do, by alias: what its brokers answered just now, and what a probe saw.

    Raises UnreadableInventory for a probe of a cluster that is not there, or is another one by now.
    """
    seen = Inventory(
        {
            alias: InventoryCluster(alias, each.cluster_id, each.taken_ms, capabilities=combine_answers(each))
            for alias, each in answers.items()
        }
    )
    for each in probed:
        seen = seen.with_probe(each)
    found = {alias: cluster.capabilities for alias, cluster in seen.clusters.items()}
    return {alias: each for alias, each in found.items() if each is not None}


def require_guarantee(
    flow: PlanFlow, source: ClusterCapabilities, target: ClusterCapabilities, others: Iterable[PlanFlow] = ()
) -> Guarantee:
    """The guarantee that the flow gets: both clusters can do what it needs. others: the flows of the same file.

    Raises CannotApply, which names what is missing where.
    """
    decision = decide_flow_guarantee(flow, source, target, others)
    if refused := explain_refusal(flow.id, "", decision):
        raise CannotApply(refused)
    assert decision.guarantee is not None, "what is not refused has one"
    return decision.guarantee


def keep_guarantee(
    flow: PlanFlow,
    guarantee: Guarantee,
    before: FlowRecord | None,
    copied: Callable[[], bool],
    others: Iterable[PlanFlow] = (),
) -> Guarantee:
    """The guarantee with which the flow goes on from what was applied before. copied: whether it has copied anything.

    What was copied without a producer id cannot be gone on with by sequence numbers: such a flow keeps
    `at_least_once, proven`, also when its target can give more by now. What was copied exactly once stays so.
    Raises CannotApply.
    """
    if before is None or (before.guarantee == AT_LEAST_ONCE) == (guarantee == AT_LEAST_ONCE) or not copied():
        return guarantee
    if guarantee == AT_LEAST_ONCE:
        raise CannotApply(
            f"flow {flow.id} has copied with `{before.guarantee}`, and its target can give `{AT_LEAST_ONCE}` only now. "
            f"Bring the target back to what it was, or {_ANEW}"
        )
    obstacle = (
        "" if flow.allows_repeats else "the file does not allow it any more (`delivery.semantics: at_least_once`)"
    )
    if obstacle := obstacle or explain_repeat_obstacle(flow, others):
        raise CannotApply(f"flow {flow.id} has copied with `{AT_LEAST_ONCE}`, but {obstacle}. Undo that, or {_ANEW}")
    return AT_LEAST_ONCE


def refuse_change(plan: Plan, flow: PlanFlow, before: FlowRecord, source_id: str) -> None:
    """`before` is the flow as it was applied last; source_id: the cluster that it would copy from now. Raises
    CannotApply."""
    if before.topology != plan.topology:
        raise CannotApply(
            f"flow {flow.id} into {flow.target} belongs to topology {before.topology}; "
            f"give the flow of {plan.topology} a suffix, or remove it from one of the two files"
        )
    if before.flow.naming != flow.naming:
        raise CannotApply(
            f"flow {flow.id} already copies with other target names; a changed naming would copy everything again. "
            "Give the flow a suffix to start a second one, or restore the naming"
        )
    if before.source_cluster_id not in (None, source_id):
        raise CannotApply(
            f"flow {flow.id} copied from cluster {before.source_cluster_id} so far, and {flow.source} is {source_id}; "
            "give the flow a suffix to copy from the other cluster"
        )


def refuse_changed_schema_ids(flow: PlanFlow, before: PlanFlow, copied: Callable[[], bool]) -> None:
    """A log in which old records have the ids of one registry and new ones those of another is right for nobody, and no
    proof could tell where the one ends. Raises CannotApply."""
    was, now = before.sync.schemas.translated, flow.sync.schemas.translated
    if was != now and copied():
        changed = "with the schema ids of the target" if was else "with the schema ids of the source"
        raise CannotApply(
            f"flow {flow.id} has copied records {changed} (sync.schemas.ids), and they stay as they are. "
            f"Restore `ids: {'translate' if was else 'preserve'}`, or {_ANEW}"
        )


def refuse_changed_header(flow: PlanFlow, before: PlanFlow, copied: Callable[[], bool]) -> None:
    """No proof could tell which records should have a header that came, or changed its name, in mid-copy. Raises
    CannotApply."""
    if flow.header != before.header and copied():
        was = "without `provenance.header`" if before.header is None else f"with the header `{before.header}`"
        restore = "Take it out again" if before.header is None else f"Restore `header: {before.header}`"
        raise CannotApply(
            f"flow {flow.id} has copied records {was} (provenance.header), and they stay as they are. {restore}, "
            f"or {_ANEW}"
        )


def keep_delivery(flow: PlanFlow, before: PlanFlow, copied: Callable[[], bool]) -> PlanFlow:
    """The flow, with the delivery that it has to keep. copied: whether it has copied anything.

    Transactions are right beside other writers and without them, so a flow that began with them goes on. What was
    copied by sequence numbers does not become right beside other writers, and a producer id that told nothing of the
    way tells nothing of it later; while the flow is paused nobody needs either. Raises CannotApply.
    """
    if (flow.delivery, flow.paths) == (before.delivery, before.paths) or not copied():
        return flow
    if flow.delivery == "sequence" or (before.delivery == "transactions" and not flow.paths):
        reason = flow.delivery_reason or "it has copied in transactions so far"
        return replace(flow, delivery="transactions", delivery_reason=reason, paths=before.paths)
    if flow.state == "paused":
        return replace(flow, delivery=before.delivery, delivery_reason=before.delivery_reason, paths=before.paths)
    if before.delivery == "sequence":
        raise CannotApply(
            f"flow {flow.id} has copied by sequence numbers, for which it must be the only writer of its target "
            f"partitions, and now it is to copy in transactions: {flow.delivery_reason}. "
            f"Undo what makes it so, or {_ANEW}"
        )
    raise CannotApply(
        f"flow {flow.id} now lies on a ring of clusters, and what it has copied does not tell which way it came: "
        f"on the ring it would come back to where it was. Undo what closes the ring, use `forward: local`, or {_ANEW}"
    )
