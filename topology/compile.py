"""A topology file as a plan, or every reason why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from topology.aligned_offsets import explain_not_aligned, find_flows_filled_first
from topology.delivery_mode import DeliveryMode, choose_delivery_modes
from topology.errors import InvalidTopology
from topology.loader import load_topology
from topology.migration_fences import mark_migration_fences
from topology.model import Flow, Topology
from topology.plan import Plan, PlanFlow, seal_plan

_MEANINGLESS = ("SYN", "CLU101", "CLU107", "GRF214", "TPC421")


def compile_topology(path: Path) -> Plan:
    """Raises InvalidTopology (any finding of severity error) and UnreadableTopology."""
    from topology.lint import lint_topology

    loaded = load_topology(Path(path))
    result = lint_topology(loaded)
    # what has no meaning stays an error here, whatever a comment says
    silenced = [finding for finding in result.suppressed if finding.rule.startswith(_MEANINGLESS)]
    errors = (*(finding for finding in result.findings if finding.severity == "error"), *silenced)
    if result.errors or silenced or loaded.topology is None:
        from topology.reports.concise import render_concise

        raise InvalidTopology(render_concise([replace(result, findings=errors)]), result.findings)
    return build_plan(loaded.topology, result.proofs)


def build_plan(topology: Topology, proofs: dict[str, object]) -> Plan:
    """The sealed plan of a topology without errors."""
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
