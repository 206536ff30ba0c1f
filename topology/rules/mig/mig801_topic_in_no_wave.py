"""MIG801 topic-in-no-wave: the flow carries a topic that no wave moves.

Why: its producers and consumers stay at the source, and on the day of the decommission they are cut off. Known are
topics that the flow names, those that the file declares for the source, and those of a scan; a pattern alone names
none.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_plural, render_some_names
from watershed.topology.rules.mig.declared_waves import find_migration_flow, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    flow = find_migration_flow(topology) if topology is not None else None
    waves = list_declared_waves(topology)
    if topology is None or flow is None or not waves:
        return
    planned = {topic for move in waves for topic in move.wave.topics}
    carried = {topic.name for topic in context.facts.carried(flow) if topic.name is not None}
    missing = sorted(carried - planned)
    if missing:
        declared = topology.root.at("migration", "waves")
        yield Problem(
            "MIG801",
            f"flow {flow.id} carries {render_some_names(missing)}, which no wave moves",
            build_labels(
                (declared.key if declared is not None else None, render_plural(len(waves), "wave")),
                (flow.settings.where("topics", "include"), "what the flow carries"),
            ),
            path="migration.waves",
            ids=(flow.id, *missing),
            help="put them into a wave, or exclude them from the flow",
        )


RULE = Rule("MIG801", "topic-in-no-wave", "error", __doc__, check)
