"""SLO715 way-back-stops: a budget would stop a flow on which the way back of a migration depends.

Why: a rollback needs what the way back has carried home. If a budget stops that flow, every hour that nobody looks
makes the rollback longer, and the retention at the new cluster decides when it becomes impossible. The alert tells a
person all the same. A pattern's `failback: {reverse: declared_paused}` says `alert` by itself.

Source: own; docs/decisions/0131-budgets-that-act.md
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or topology.migration is None:
        return
    ways = {wave.rollback.reverse: wave for wave in topology.migration.waves if wave.rollback is not None}
    for flow in topology.flows:
        said = flow.settings.at("slo", "on_breach")
        if flow.id not in ways or said is None or said.data == "alert":
            continue
        yield Problem(
            "SLO715",
            f"{flow.id} is the way back of wave {ways[flow.id].name}, and `on_breach: {said.data}` would stop it",
            build_labels((said.span, "stops the flow"), (flow.declared, "a rollback needs it")),
            path=f"{flow.path}.slo.on_breach",
            ids=(flow.id,),
            help=f"say `slo: {{on_breach: alert}}` in {flow.id}",
        )


RULE = Rule("SLO715", "way-back-stops", "error", __doc__, check)
