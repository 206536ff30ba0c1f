"""What keeps a flow from `at_least_once, proven`, where its clusters can give no more: combinations that cannot hold.

A copy without idempotent producers writes batches without a producer id. So nobody can tell its records from an
application's, and a batch that lands late lands behind newer ones. What needs the one or the other is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.delivery_guarantee import GuaranteeDecision, decide_guarantee
from watershed.topology.plan import PlanFlow


def explain_repeat_obstacle(flow: PlanFlow, others: Iterable[PlanFlow] = ()) -> str:
    """Why the flow cannot copy with repeats, as half a sentence; "" where it can. others: flows of the same file.

    Compacted topics are found by the workers: only the clusters know which they are.
    """
    if flow.delivery == "transactions":
        reason = f": {flow.delivery_reason}" if flow.delivery_reason else ""
        return f"the flow has other writers beside it and needs transactions{reason}"
    if flow.offsets == "aligned":
        return "`offsets: aligned` cannot hold, because a repeated record takes an offset"
    if flow.rejected == "quarantine":
        return "`delivery.rejected: quarantine` cannot hold, because what was left out cannot be told from a loss"
    if flow.sync.schemas.translated:
        return "`sync.schemas.ids: translate` cannot hold, because repeats are found by comparing records as they are"
    if flow.header is not None:
        return "`provenance.header` cannot hold, because repeats are found by comparing records as they are"
    onward = sorted(
        each.id
        for each in others
        if each.source == flow.target and (each.guard == "producer_id" or each.forward == "local")
    )
    if onward:
        return (
            f"flow {onward[0]} copies on from {flow.target}: its batches carry no producer id there, so the loop guard "
            "cannot tell them from an application's"
        )
    return ""


def decide_flow_guarantee(
    flow: PlanFlow,
    source: ClusterCapabilities | None,
    target: ClusterCapabilities | None,
    others: Iterable[PlanFlow] = (),
) -> GuaranteeDecision:
    """The guarantee of this flow, by what both clusters can do, what its file asks for, and what stands beside it.

    A cluster of which nothing is known is None, and nothing is held against it.
    """
    return decide_guarantee(
        flow.delivery,
        source,
        target,
        allows_repeats=flow.allows_repeats,
        obstacle=explain_repeat_obstacle(flow, others),
        codec=None if flow.compression is None else flow.compression.codec,
    )
