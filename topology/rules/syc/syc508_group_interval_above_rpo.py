"""SYC508 group-interval-above-rpo: positions are written less often than the flow's `rpo` or lag budget allows.

Why: after a failover a group begins at the last position that was written. What it read since then it reads again, and
that is more than was promised.

Source: apache/kafka MirrorCheckpointConfig.java: every 60 seconds by default, and group sync is off
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.syc.declared_group_sync import build_declared_group_sync

_DEFAULT_MS = 10_000
_BUDGETS = ((("slo", "rpo"), "slo.rpo"), (("slo", "lag", "max"), "slo.lag.max"))


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        interval = flow.settings.get("sync", "groups", "interval", default=_DEFAULT_MS)
        budgets = [(flow.settings.get(*path), name, path) for path, name in _BUDGETS]
        tighter = sorted((ms, name, path) for ms, name, path in budgets if ms is not None and 0 < ms < interval)
        if build_declared_group_sync(flow).mode == "continuous" and tighter:
            ms, name, path = tighter[0]
            said = flow.settings.at("sync", "groups", "interval")
            default = "" if said is not None else " (the default)"
            yield Problem(
                "SYC508",
                f"flow {flow.id} writes positions every {render_duration(interval)}{default}, but `{name}` promises "
                f"{render_duration(ms)}",
                build_labels(
                    (flow.settings.where("sync", "groups", "interval"), f"every {render_duration(interval)}"),
                    (flow.settings.where(*path), f"{render_duration(ms)} promised"),
                ),
                path=f"{flow.path}.sync.groups.interval",
                ids=(flow.id,),
                help=f"say `interval: {render_duration(ms)}` or less, or promise more in `{name}`",
            )


RULE = Rule("SYC508", "group-interval-above-rpo", "warning", __doc__, check)
