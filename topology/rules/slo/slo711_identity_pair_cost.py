"""SLO711 identity-pair-cost: two clusters copy the same topics to each other under the same names.

Why: each side reads back what it sent, only to drop it: the line between them carries everything twice, and so do the
brokers' disks. Prefix naming reads each record once and costs consumers a pattern; `forward: local` does not help, as
the records are read before they are judged. The file makes the choice; this remark says what it costs.

Source: Amazon MSK Replicator manual, active-active
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.selection_overlap import find_overlap


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    same = [flow for flow in flows if flow.plan.naming.policy == "identity" and flow.plan.state == "running"]
    ways: dict[tuple[str, str], list[int]] = {}
    for index, flow in enumerate(same):
        ways.setdefault((flow.source, flow.target), []).append(index)
    for there in same:
        if there.source >= there.target:
            continue
        for index in ways.get((there.target, there.source), ()):
            back = same[index]
            if not find_overlap(frozenset({("", "", there.plan.topics), ("", "", back.plan.topics)})).found:
                continue
            yield Problem(
                "SLO711",
                f"{there.source} and {there.target} copy topics to each other under the same names, and read back what "
                "they sent",
                build_labels((there.declared, f"{there.id}"), (back.declared, f"{back.id}")),
                path=f"{there.path}.naming",
                ids=(there.id, back.id),
                help="count twice the ingress on the line between them, or use `naming: {policy: prefix}`",
            )


RULE = Rule("SLO711", "identity-pair-cost", "info", __doc__, check)
