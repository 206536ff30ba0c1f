"""TPC425 end-of-a-pair: a flow has an end (`delivery.end`), and a flow back between the same clusters runs.

Why: clusters that copy to each other are to hold the same records. When one direction ends, one side goes on and the
other falls behind for ever, and every status shows a flow that is `complete`.

Source: own; active-active and standby pairs have no end
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.rule import Rule, RuleContext
from topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    running = {(flow.source, flow.target): flow for flow in flows if flow.plan.state == "running"}
    for flow in flows:
        back = running.get((flow.target, flow.source))
        if flow.plan.end is not None and back is not None:
            labels = build_labels((flow.settings.where("delivery", "end"), "ends here"))
            yield Problem(
                "TPC425",
                f"flow {flow.id} ends, and {back.id} copies back all the time",
                (*labels, Label(back.declared, "the way back")),
                path=f"{flow.path}.delivery.end",
                ids=tuple(sorted((flow.id, back.id))),
                help=f"leave `delivery.end` out, or pause the way back: `state: paused` on {back.id}",
            )


RULE = Rule("TPC425", "end-of-a-pair", "error", __doc__, check)
