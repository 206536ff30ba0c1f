"""MIG802 topic-in-two-waves: two waves move the same topic.

Why: the second one fences producers and commits positions for what already lives at the target, and its rollback
would take the first wave back. Waves with `strategy: consumers_last` move no topic: they are not counted.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.rules.mig.declared_waves import MAX_SHOWN_WAVES, find_shared_entries, list_declared_waves


def check(context: RuleContext) -> Iterator[Problem]:
    moving = tuple(move for move in list_declared_waves(context.topology) if not move.wave.is_late)
    for name, places in find_shared_entries(moving, "topics").items():
        waves = [move.name for move, _ in places]
        yield Problem(
            "MIG802",
            f"topic `{name}` is moved by the waves {render_some_names(waves)}",
            build_labels(*((span, f"in wave `{move.name}`") for move, span in places[:MAX_SHOWN_WAVES])),
            path=f"{places[-1][0].path}.topics",
            ids=(name, *waves),
            help="leave it in the wave that its consumers belong to; groups that move later than its producers go into "
            "a wave with `strategy: consumers_last`",
        )


RULE = Rule("MIG802", "topic-in-two-waves", "error", __doc__, check)
