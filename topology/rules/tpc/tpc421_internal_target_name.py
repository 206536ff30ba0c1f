"""TPC421 internal-target-name: a flow's naming gives topics of the target a name that is kept by Kafka or by Watershed.

Why: names that begin with `__` are of brokers and tools, those that begin with `watershed.` or `_watershed` hold the
state of Watershed at that cluster: desired flows, the ledger, the journal. Records of an application there are read as
orders and positions, and stop what is copied. `topology compile` and `apply` refuse such a flow, also where a comment
suppresses this; a worker holds a topic whose name turns out so, and copies the others.

Source: clusters/control_topics.py, apache/kafka Topic.java (internal topics)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.model import Flow
from watershed.topology.reserved_topics import explain_reserved_topic, find_reserved_targets
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.tpc.reserved_names import find_selector_span, list_selected_names


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        found = dict(find_reserved_targets(flow.plan))
        if "*" not in found:
            names = (name for name in list_selected_names(context, flow) if flow.plan.selects(name))
            found |= {name: there for name in names if explain_reserved_topic(there := flow.plan.target_topic(name))}
        if found:
            yield _problem(flow, found)


def _problem(flow: Flow, found: dict[str, str]) -> Problem:
    name, there = next(iter(found.items()))
    what = "every topic" if name == "*" else f"`{name}`"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    naming = flow.settings.at("naming")
    return Problem(
        "TPC421",
        f"flow {flow.id} calls {what} `{there}` at {flow.target}{more}: "
        f"{explain_reserved_topic(there.replace('*', 'x'))}",
        (Label(find_selector_span(flow, name) if naming is None else naming.span, "named here"),),
        path=f"{flow.path}.naming",
        ids=(flow.id, *sorted(found)[:3]),
        help="give it a name that begins with something else",
    )


RULE = Rule("TPC421", "internal-target-name", "error", __doc__, check)
