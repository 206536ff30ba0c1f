"""MIG806 nonzero-lag-gate: a wave may begin while records are still on their way, and its topics have keys.

Why: with producers and consumers moved one after the other, the rest of a key's records arrives while new ones are
written or read at the target; whoever reads across the switch sees them late. Watershed drains to a barrier before
producers start, so what is at stake is the time that they wait. A warning where a topic is declared `keyed: true`, a
remark where nobody says; waves that are `fenced` or `consumers_last` are not looked at.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural
from watershed.topology.rules.mig.declared_waves import (
    BEFORE,
    find_migration_flow,
    list_declared_waves,
    lower_severity_in_lab,
)


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    flow = find_migration_flow(topology) if topology is not None else None
    for move in list_declared_waves(topology):
        gate = next((each for each in move.gates("lag", BEFORE) if each.get("max_records", default=0) > 0), None)
        if topology is None or flow is None or gate is None or move.wave.strategy in ("fenced", "consumers_last"):
            continue
        known = [context.facts.topic(flow.source, topic) for topic in move.wave.topics]
        if all(facts.keyed is False for facts in known):
            continue
        keyed = next((facts for facts in known if facts.keyed), None)
        yield Problem(
            "MIG806",
            f"wave `{move.name}` may begin {render_plural(gate.get('max_records'), 'record')} behind",
            build_labels(
                (gate.where("max_records"), "not caught up"),
                (keyed.span if keyed is not None else None, "the order of keys matters"),
            ),
            path=f"{move.path}.gates.before",
            ids=(move.name,),
            help="say `max_records: 0`, or use `strategy: fenced`",
            severity=lower_severity_in_lab(topology, "warning") if keyed is not None else "info",
        )


RULE = Rule("MIG806", "nonzero-lag-gate", "warning", __doc__, check)
