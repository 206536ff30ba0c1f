"""SYC516 discovery-slower-than-lag: new topics and partitions are looked for less often than the flow's lag budget
allows.

Why: the first records of a new topic wait until it is found, so it misses its budget from birth.

Source: apache/kafka MirrorSourceConfig.java: every 600 seconds by default
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        word = "max" if flow.settings.at("slo", "lag", "max") is not None else "p99"
        budget, every = flow.settings.get("slo", "lag", word), flow.plan.discovery_ms
        if budget is not None and every > budget:
            default = "" if flow.settings.at("workers", "discovery") is not None else " (the default)"
            yield Problem(
                "SYC516",
                f"flow {flow.id} looks for new topics every {render_duration(every)}{default}, but promises a lag of "
                f"{render_duration(budget)}",
                build_labels(
                    (flow.settings.where("workers", "discovery"), f"every {render_duration(every)}"),
                    (flow.settings.where("slo", "lag", word), f"{render_duration(budget)} promised"),
                ),
                path=f"{flow.path}.workers.discovery",
                ids=(flow.id,),
                help=f"say `discovery: {render_duration(budget)}` or less, or promise less",
            )


RULE = Rule("SYC516", "discovery-slower-than-lag", "warning", __doc__, check)
