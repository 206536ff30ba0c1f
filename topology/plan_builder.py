"""The plan of a topology that has no errors: each flow with its delivery mode, its offsets and its fences."""

from __future__ import annotations

from dataclasses import replace

from topology.alignment_obstacles import explain_not_aligned, find_flows_filled_first
from topology.delivery_mode import DeliveryMode, choose_delivery_modes
from topology.model import Flow, Topology
from topology.plan import Plan, PlanFlow, seal_plan
from topology.unsynced_fences import mark_migration_fences


def build_plan(topology: Topology, proofs: dict[str, object]) -> Plan:
    """The sealed plan of a topology without errors. proofs: what the linter proved, see `TopicGraph.proofs`."""
    shared = choose_delivery_modes(topology)
    filled = find_flows_filled_first(topology)
    flows = tuple(_with_offsets(flow, shared[flow.id], filled.get(flow.id, "")) for flow in topology.flows)
    return seal_plan(
        Plan(
            topology=topology.name,
            clusters=tuple(topology.clusters[alias] for alias in sorted(topology.clusters)),
            flows=mark_migration_fences(flows, topology.migration),
            migration=topology.migration,
            proofs=proofs,
        )
    )


def _with_offsets(flow: Flow, how: DeliveryMode, filled: str) -> PlanFlow:
    plan = replace(flow.plan, delivery=how.delivery, delivery_reason=how.reason, paths=how.paths)
    reason = explain_not_aligned(flow, how) or filled
    return replace(plan, offsets="mapped", offsets_reason=reason) if reason else plan
