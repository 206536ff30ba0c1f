"""A topology file as a plan, or every reason why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from topology.alignment import filled_first, not_aligned
from topology.errors import InvalidTopology
from topology.fences import leaving_fences
from topology.load import load_path
from topology.model import Flow, Topology
from topology.plan import Plan, PlanFlow, sealed
from topology.sharing import Sharing, sharing

_MEANINGLESS = ("SYN", "CLU101", "CLU107", "GRF214", "TPC421")


def compile_path(path: Path) -> Plan:
    """Raises InvalidTopology (any finding of severity error) and UnreadableTopology."""
    from topology.lint import lint_loaded

    loaded = load_path(Path(path))
    result = lint_loaded(loaded)
    # what has no meaning stays an error here, whatever a comment says
    silenced = [finding for finding in result.suppressed if finding.rule.startswith(_MEANINGLESS)]
    errors = (*(finding for finding in result.findings if finding.severity == "error"), *silenced)
    if result.errors or silenced or loaded.topology is None:
        from topology.reports.concise import concise

        raise InvalidTopology(concise([replace(result, findings=errors)]), result.findings)
    return plan_of(loaded.topology, result.proofs)


def plan_of(topology: Topology, proofs: dict[str, object]) -> Plan:
    """The sealed plan of a topology without errors."""
    shared = sharing(topology)
    filled = filled_first(topology)
    flows = tuple(_with_offsets(flow, shared[flow.id], filled.get(flow.id, "")) for flow in topology.flows)
    return sealed(
        Plan(
            topology=topology.name,
            clusters=tuple(topology.clusters[alias] for alias in sorted(topology.clusters)),
            flows=leaving_fences(flows, topology.migration),
            migration=topology.migration,
            proofs=proofs,
        )
    )


def _with_offsets(flow: Flow, how: Sharing, filled: str) -> PlanFlow:
    plan = replace(flow.plan, delivery=how.delivery, delivery_reason=how.reason, paths=how.paths)
    reason = not_aligned(flow, how) or filled
    return replace(plan, offsets="mapped", offsets_reason=reason) if reason else plan
