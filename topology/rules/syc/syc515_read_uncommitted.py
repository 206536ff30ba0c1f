"""SYC515 read-uncommitted: aborted records are copied, though exactly once is promised, or though the source writes in
transactions (a warning).

Why: the target knows nothing of the source's transactions. A record that was aborted there becomes an ordinary,
committed one here, and stays. `semantics` is `exactly_once` unless the file says otherwise.

Source: apache/kafka MirrorSourceConnector.java; apache/kafka docs/ops.html, Exactly once
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names


def check(context: RuleContext) -> Iterator[Problem]:
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        if flow.settings.get("delivery", "isolation") != "read_uncommitted":
            continue
        semantics = flow.settings.get("delivery", "semantics", default="exactly_once")
        where = flow.settings.where("delivery", "isolation")
        help_ = "say `isolation: read_committed`, which is the default"
        if semantics != "at_least_once":
            said = flow.settings.at("delivery", "semantics")
            yield Problem(
                "SYC515",
                f"flow {flow.id} promises {semantics} and copies aborted records",
                build_labels(
                    (where, "aborted records too"), (said.span if said is not None else None, "promised here")
                ),
                path=f"{flow.path}.delivery.isolation",
                ids=(flow.id,),
                notes=() if said is not None else ("`semantics` is `exactly_once` where nothing is said",),
                help=help_,
            )
        elif found := [topic for topic in topics if topic.source.transactional]:
            yield Problem(
                "SYC515",
                f"flow {flow.id} copies aborted records of {render_some_names([topic.label for topic in found])}, "
                f"written in "
                "transactions",
                build_labels((where, "aborted records too"), (found[0].source.span, "transactional")),
                path=f"{flow.path}.delivery.isolation",
                ids=(flow.id, found[0].label),
                help=help_,
                severity="warning",
            )


RULE = Rule("SYC515", "read-uncommitted", "error", __doc__, check)
