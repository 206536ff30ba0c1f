"""The plan of a topology that has no errors: each flow with its delivery mode, its offsets and its fences."""

from __future__ import annotations

from dataclasses import replace

from watershed.topology.alignment_obstacles import explain_not_aligned, find_flows_filled_first
from watershed.topology.delivery_mode import DeliveryMode, choose_delivery_modes
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.model import Flow, Topology
from watershed.topology.plan import Plan, PlanFlow, seal_plan
from watershed.topology.topic_symbols import carry_symbol, list_source_symbols
from watershed.topology.unsynced_fences import mark_migration_fences, mark_protected_sources


def build_plan(topology: Topology, proofs: dict[str, object]) -> Plan:
    """The sealed plan of a topology without errors. proofs: what the linter proved, see `TopicGraph.proofs`."""
    shared = choose_delivery_modes(topology)
    filled = find_flows_filled_first(topology)
    flows = tuple(
        _with_offsets(flow, shared[flow.id], filled.get(flow.id, ""), find_flows_beside(flow, topology))
        for flow in topology.flows
    )
    return seal_plan(
        Plan(
            topology=topology.name,
            clusters=tuple(topology.clusters[alias] for alias in sorted(topology.clusters)),
            flows=mark_protected_sources(mark_migration_fences(flows, topology.migration)),
            migration=topology.migration,
            proofs=proofs,
            external_flows=tuple(each.external for each in topology.external_flows if each.external is not None),
        )
    )


def find_flows_beside(flow: Flow, topology: Topology) -> tuple[ExternalFlow, ...]:
    """What other tools copy that the flow has to know: what brings records to topics that it selects, and whose own
    topics stand at its source."""
    found = (each for each in topology.external_flows if flow.source in (each.source, each.target))
    return tuple(
        each.external
        for each in found
        if each.external is not None and (each.external.list_own_topics(flow.source) or _feeds(each, flow))
    )


def _feeds(tool: Flow, flow: Flow) -> bool:
    if tool.target != flow.source:
        return False
    arriving = (symbol for birth in list_source_symbols(tool.plan) for symbol in carry_symbol(tool.plan, birth))
    return any(True for symbol in arriving for _ in carry_symbol(flow.plan, symbol))


def _with_offsets(flow: Flow, how: DeliveryMode, filled: str, beside: tuple[ExternalFlow, ...]) -> PlanFlow:
    plan = replace(flow.plan, delivery=how.delivery, delivery_reason=how.reason, paths=how.paths, beside=beside)
    reason = explain_not_aligned(flow, how) or filled
    if not reason and plan.offsets == "aligned" and any(tool.marks_with for tool in beside):
        reason = "records that other tools brought to its source may be left out"
    return replace(plan, offsets="mapped", offsets_reason=reason) if reason else plan
