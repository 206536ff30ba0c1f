"""Small topologies for the tests of rules, and what a rule finds in them."""

from __future__ import annotations

from watershed.topology.finding import LintFinding
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.rule_manual import build_example_inventory, complete_example

# name, rule, example (with its scan behind `--- # topology scan`), a part of each message in the order of the file
Case = tuple[str, str, str, list[str]]
FLOW = "flows:\n  - {source: a, target: b, topics: {include: [orders]}%s}\n"


def found(example: str, code: str) -> list[LintFinding]:
    """What the rule says of the example, with its scan as if taken just now."""
    loaded = parse_topology(complete_example(example))
    assert [problem.message for problem in loaded.problems] == []
    result = lint_topology(loaded, build_example_inventory(example, live=True))
    return [finding for finding in result.findings if finding.rule == code]


def clusters(a: str = "", b: str = "", c: str = "") -> str:
    """Clusters with more keys each, such as `topics: [{match: orders, partitions: 3}]`."""
    return "clusters:\n" + "".join(
        f"  {alias}: {{bootstrap: [k1.{alias}.example.internal:9093]{', ' + more if more else ''}}}\n"
        for alias, more in (("a", a), ("b", b), ("c", c))
    )


def topics(*entries: str) -> str:
    return "topics: [" + ", ".join("{" + entry + "}" for entry in entries) + "]"


ORDERS = "match: orders, "
SLO = ", slo: {lag: {max: 1h}, outage_allowance: 23h}"
