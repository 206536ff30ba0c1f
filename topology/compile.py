"""A topology file as a plan, or every reason why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from watershed.topology.errors import InvalidTopology
from watershed.topology.loader import load_topology
from watershed.topology.plan import Plan
from watershed.topology.plan_builder import build_plan

# A finding of these rules says that the file has no meaning. It stops the compiler even if a comment silences it.
_MEANINGLESS = ("SYN", "CLU101", "CLU107", "GRF214", "TPC421")


def compile_topology(path: Path) -> Plan:
    """Raises InvalidTopology (any finding of severity error) and UnreadableTopology."""
    from watershed.topology.lint import lint_topology

    loaded = load_topology(Path(path))
    result = lint_topology(loaded)
    silenced = [finding for finding in result.suppressed if finding.rule.startswith(_MEANINGLESS)]
    errors = (*(finding for finding in result.findings if finding.severity == "error"), *silenced)
    if result.errors or silenced or loaded.topology is None:
        from watershed.topology.reports.concise import render_concise

        raise InvalidTopology(render_concise([replace(result, findings=errors)]), result.findings)
    return build_plan(loaded.topology, result.proofs)
