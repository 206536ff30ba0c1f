"""MIG818 big-bang: one wave moves very much, or every group at once.

Why: when it goes wrong everything goes wrong together, and taking it back takes as long as moving it. A first wave
with little at stake shows what nobody thought of. The bound is the option `wave_topics`, 50.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext, RuleOption
from watershed.topology.rules.finding_text import render_plural
from watershed.topology.rules.mig.declared_waves import list_declared_waves

_MANY = RuleOption("wave_topics", "count", 50, "A wave with more topics than this is called large.")


def check(context: RuleContext) -> Iterator[Problem]:
    waves = list_declared_waves(context.topology)
    groups = {group for move in waves for group in move.wave.consumers}
    for move in waves:
        mine = set(move.wave.consumers)
        if len(move.wave.topics) > context.option(_MANY):
            said = f"moves {render_plural(len(move.wave.topics), 'topic')} at once"
        elif not move.wave.after and len(mine) > 1 and mine == groups:
            said = f"moves all {len(mine)} groups at once"
        else:
            continue
        yield Problem(
            "MIG818",
            f"wave `{move.name}` {said}",
            (Label(move.span),),
            path=move.path,
            ids=(move.name,),
            help="begin with a small wave, and let the others wait for it: `after: [canary]`",
        )


RULE = Rule("MIG818", "big-bang", "info", __doc__, check, options=(_MANY,))
