"""SEC614 protect-contradiction: `protect` refuses applications at the target, and the same file has them write there.

Why: a protected topic takes Watershed's writes only. With `merge`, applications or other flows write to it as well;
with a running flow back, applications of the target are meant to write to what comes back. A paused way back that
protects its target keeps out the applications that a rollback brings home. With `sync.acls.include_write: always` each
right to write that is given is denied at once. The applications would stand still, or one key of the two would be
without effect.

Source: own; KIP-11 for denials, which win over rights
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.syc.two_way_group_sync import find_returning_topic


def check(context: RuleContext) -> Iterator[Problem]:
    flows = context.topology.flows if context.topology is not None else ()
    for flow in flows:
        if not flow.plan.protect:
            continue
        for why, help_ in _list_contradictions(flow, flows):
            yield Problem(
                "SEC614",
                f"flow {flow.id} protects its topics at {flow.target}, but {why}",
                build_labels((flow.settings.where("protect"), "protected"), (flow.declared, flow.id)),
                path=f"{flow.path}.protect",
                ids=(flow.id,),
                help=help_,
            )


def _list_contradictions(flow: Flow, flows: tuple[Flow, ...]) -> Iterator[tuple[str, str]]:
    """Each with its help."""
    if flow.plan.merge:
        yield "`merge.allowed` says that others write to them", "remove `protect`, or `merge`"
    if flow.plan.sync.acls.include_write == "always":
        yield (
            "`sync.acls.include_write: always` gives applications the right to write there",
            "say `include_write: on_failover`: a migration or failover gives the rights when it lifts the protection",
        )
    for back in flows:
        if (back.source, back.target, back.plan.state) != (flow.target, flow.source, "running"):
            continue
        topic = find_returning_topic(flow, back)
        if topic is not None and flow.plan.state == "paused":
            yield (
                f"it is the way back of {back.id}: applications that come home to {flow.target} would be refused there",
                "say `protect: false` in the way back",
            )
        elif topic is not None:
            yield (
                f"{back.id} runs and carries back what applications write to `{topic}` there",
                f"remove `protect`, or let {back.id} wait for the switch: `state: paused`",
            )


RULE = Rule("SEC614", "protect-contradiction", "error", __doc__, check)
