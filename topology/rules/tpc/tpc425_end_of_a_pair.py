"""TPC425 end-of-a-pair: a flow of a pair ends (`delivery.end`): a flow back runs, or it is of an active pattern.

Why: clusters that copy to each other, and a standby, are to hold the same records. When one direction ends, one side
goes on and the other falls behind for ever, and every status shows a flow that is `complete`.

Source: own; active-active and active-standby pairs have no end
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels

_PAIRS = ("pattern.active_standby", "pattern.active_active")


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    running = {(flow.source, flow.target): flow for flow in flows if flow.plan.state == "running"}
    for flow in flows:
        back = running.get((flow.target, flow.source))
        if flow.plan.end is None or (back is None and not flow.path.startswith(_PAIRS)):
            continue
        labels = build_labels((flow.settings.where("delivery", "end"), "ends here"))
        yield Problem(
            "TPC425",
            f"flow {flow.id} ends, "
            + ("and its target is to hold all that its source has" if back is None else f"and {back.id} copies back"),
            labels if back is None else (*labels, Label(back.declared, "the way back")),
            path=f"{flow.path}.delivery.end",
            ids=(flow.id,) if back is None else tuple(sorted((flow.id, back.id))),
            help="leave `delivery.end` out"
            + ("" if back is None else f", or pause the way back: `state: paused` on {back.id}"),
        )


RULE = Rule("TPC425", "end-of-a-pair", "error", __doc__, check)
