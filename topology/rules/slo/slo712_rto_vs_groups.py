"""SLO712 rto-vs-groups: `rto` is shorter than it takes until clients run at the target.

Why: a failover waits for the last translation of group positions (`sync.groups.interval`), and then clients notice,
rebalance and start. Kafka's consumers alone wait up to `session.timeout.ms`, 45 seconds by default. A shorter promise
has no mechanism behind it. The allowance for the restart is the option `client_restart`, two minutes.

Source: KIP-735 for the 45 seconds; own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import Flow
from watershed.topology.quantities import render_duration
from watershed.topology.rule import Rule, RuleContext, RuleOption
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.slo.flows_by_declaration import render_flow_names

_RESTART = RuleOption("client_restart", "duration", 120_000, "How long clients take to start at the other cluster.")
_INTERVAL_MS = 10_000  # the language's default of sync.groups.interval


def check(context: RuleContext) -> Iterator[Problem]:
    restart = context.option(_RESTART)
    groups: dict[tuple[FileSpan, int], list[Flow]] = {}
    for flow in context.topology.flows if context.topology is not None else ():
        rto = flow.settings.at("slo", "rto")
        interval = _interval(flow)
        if rto is not None and rto.data < interval + restart:
            groups.setdefault((rto.span, interval), []).append(flow)
    for (span, interval), flows in sorted(groups.items()):
        needed = interval + restart
        first = flows[0]
        parts = f"{render_duration(restart)} until clients run"
        if interval:
            parts = f"{render_duration(interval)} between translations of positions + {parts}"
        yield Problem(
            "SLO712",
            f"{render_flow_names(flows)} cannot be back within "
            f"{render_duration(first.settings.get('slo', 'rto'))}: a failover takes "
            f"{render_duration(needed)}",
            build_labels((span, "the promise"), (_said(first), "translated this often")),
            path=f"{first.path}.slo.rto",
            ids=tuple(flow.id for flow in flows),
            notes=(f"{parts} = {render_duration(needed)}",),
            help=f"promise {render_duration(needed)} or more, or translate positions more often",
        )


def _interval(flow: Flow) -> int:
    """ms between two translations; 0 where a failover translates itself."""
    groups = flow.settings.at("sync", "groups")
    if groups is None or groups.get("mode") != "continuous":
        return 0
    said: int = groups.get("interval", default=_INTERVAL_MS)
    return said


def _said(flow: Flow) -> FileSpan | None:
    said = flow.settings.at("sync", "groups", "interval")
    return said.span if said is not None else None


RULE = Rule("SLO712", "rto-vs-groups", "warning", __doc__, check, options=(_RESTART,))
