"""MIG832 late-groups-without-switch: no wave moves the producers of a topic whose groups are to move last.

Why: `consumers_last` moves groups behind producers that have moved with an earlier wave. Where no wave moves the
producers of a topic, there is no switch behind which its groups could go on, and the wave is refused when it begins.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    waves = list_declared_waves(context.topology)
    moved = {topic for move in waves if not move.wave.is_late and move.wave.producers for topic in move.wave.topics}
    for move in waves:
        left = [topic for topic in move.wave.topics if topic not in moved]
        if move.wave.is_late and left:
            yield Problem(
                "MIG832",
                f"wave `{move.name}` moves groups last, and no wave moves the producers of {render_some_names(left)}",
                build_labels(
                    (move.value.where("strategy"), "consumers last"), (move.value.where("topics"), "of these")
                ),
                path=f"{move.path}.topics",
                ids=(move.name, *left),
                help="put the topics and their producers into a wave with another strategy",
            )


RULE = Rule("MIG832", "late-groups-without-switch", "error", __doc__, check)
