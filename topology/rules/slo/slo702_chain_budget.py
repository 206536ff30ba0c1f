"""SLO702 chain-budget: the lag budgets of the hops add up to more than `end_to_end` promises.

Why: a record may be late on every hop, so what is promised at the end is at least the sum of what each hop may use. The
promise then breaks while every single flow keeps its own. Hops are the flows that a topic takes one after the other,
whether a chain made them or single flows; `forward: local` ends the way.

Source: own; the sum of two 99th percentiles is no percentile, but no smaller number can be promised from them
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural
from watershed.topology.rules.slo.paths import BudgetPath, find_lag_budget, find_worst_paths

_KINDS = ("p99", "max")
_SHOWN = 6  # hops of a way


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or not any(flow.settings.at("slo", "end_to_end") for flow in topology.flows):
        return
    for kind in _KINDS:
        exceeding: dict[FileSpan, BudgetPath] = {}
        paths = find_worst_paths(topology, kind)
        for flow in topology.flows:
            promised = flow.settings.at("slo", "end_to_end", kind)
            path = paths.get(flow.id)
            if promised is None or path is None or path.total <= promised.data:
                continue
            known = exceeding.get(promised.span)
            if known is None or path.total > known.total:
                exceeding[promised.span] = path
        for span, path in sorted(exceeding.items()):
            yield _problem(kind, span, path)


def _problem(kind: str, span: FileSpan, path: BudgetPath) -> Problem:
    last = path.flows[-1]
    promised = render_duration(last.settings.get("slo", "end_to_end", kind))
    total = render_duration(path.total)
    parts = [f"{flow.id} {render_duration(find_lag_budget(flow, kind))}" for flow in path.flows[:_SHOWN]]
    rest = path.flows[_SHOWN:]
    if rest:
        parts.append(
            f"{render_plural(len(rest), 'more hop')} "
            f"{render_duration(sum(find_lag_budget(flow, kind) for flow in rest))}"
        )
    budgets = ((flow.settings.where("slo", "lag", kind), "a hop's budget") for flow in path.flows[:_SHOWN])
    return Problem(
        "SLO702",
        f"the hops from {path.clusters[0]} to {path.clusters[-1]} may be {total} late ({kind}), but `end_to_end` "
        f"promises {promised}",
        build_labels((span, f"promises {promised}"), *budgets),
        path=f"{last.path}.slo.end_to_end.{kind}",
        ids=tuple(flow.id for flow in path.flows),
        notes=(f"{' + '.join(parts)} = {total}",),
        help=f"give the hops at most {promised} together, or promise {total}",
    )


RULE = Rule("SLO702", "chain-budget", "error", __doc__, check)
