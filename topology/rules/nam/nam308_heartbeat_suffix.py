"""NAM308 heartbeat-suffix: a flow takes a topic whose name ends in `heartbeats`.

Why: `heartbeats` and `<alias>.heartbeats` are MirrorMaker 2's own signs of life and say nothing about other flows.
MirrorMaker 2 also renames every other topic that ends so, even with its identity policy, and copies of copies pile up
where it runs beside. Watershed copies such a topic like any other; where nothing of MirrorMaker 2 is known to be there
this is only told.

Source: apache/kafka IdentityReplicationPolicy.java, looksLikeHeartbeat; strimzi/strimzi-kafka-operator#12218
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Label, Problem, Severity
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_some_names

_SUFFIX = "heartbeats"


def check(context: RuleContext) -> Iterator[Problem]:
    beside: dict[str, bool] = {}
    for flow, topics in context.facts.by_flow if context.topology is not None else ():
        left = _list_left_out(context, flow)
        names = [topic.name for topic in topics if topic.name is not None and topic.name.endswith(_SUFFIX)]
        names = [name for name in names if name not in left]
        own = [name for name in names if name == _SUFFIX or name.endswith(f".{_SUFFIX}")]
        if own:
            help_ = "exclude them: `topology status` shows lag"
            yield _problem(flow, own, "MirrorMaker 2's own signs of life", help_, "warning")
        others = [name for name in names if name not in own]
        if others:
            for alias in {flow.source, flow.target} - beside.keys():
                beside[alias] = bool(list_mirrormaker_topics(context, alias))
            known = beside[flow.source] or beside[flow.target]
            what = f"a name that MirrorMaker 2{', which runs here,' if known else ''} renames"
            help_ = "exclude them from MirrorMaker 2 before it and this flow run together"
            yield _problem(flow, others, what, help_, "warning" if known else "info")


def _problem(flow: Flow, names: list[str], what: str, help_: str, severity: Severity) -> Problem:
    return Problem(
        "NAM308",
        f"flow {flow.id} copies {render_some_names(names)}: {what}",
        (Label(_where(flow, names[0]), "selected here"),),
        path=f"{flow.path}.topics.include",
        ids=(flow.id, *names[:1]),
        help=help_,
        severity=severity,
    )


def _where(flow: Flow, name: str) -> FileSpan:
    values = flow.settings.list("topics", "include")
    return next((each.span for each in values if each.data.text == name), flow.settings.where("topics", "include"))


def list_mirrormaker_topics(context: RuleContext, alias: str) -> list[str]:
    """Topics of a cluster that MirrorMaker 2 keeps for itself, sorted, as a scan saw them; without those that flows
    write for its clients (`compatibility`)."""
    cluster = context.inventory.cluster(alias) if context.inventory is not None else None
    ours = _list_written(context, alias)
    return sorted(
        name
        for name in (cluster.topics if cluster is not None else ())
        if name not in ours
        and (name == _SUFFIX or name.startswith(("mm2-", "mirrormaker2-")) or name.endswith(".checkpoints.internal"))
    )


def _list_written(context: RuleContext, alias: str) -> set[str]:
    """Topics that flows write at this cluster beside their copies."""
    return {
        name
        for flow in (context.topology.flows if context.topology is not None else ())
        if flow.plan.compatibility is not None
        for side, name in flow.plan.compatibility.list_written_topics()
        if alias == (flow.source if side == "source" else flow.target)
    }


def _list_left_out(context: RuleContext, flow: Flow) -> frozenset[str]:
    """Topics that the flow leaves to a declared MirrorMaker 2: those that it does not name."""
    tools = context.topology.external_flows if context.topology is not None else ()
    own = (each.external.list_own_topics(flow.source) for each in tools if each.external is not None)
    return frozenset().union(*own) - flow.plan.topics.included.literals


RULE = Rule("NAM308", "heartbeat-suffix", "warning", __doc__, check)
