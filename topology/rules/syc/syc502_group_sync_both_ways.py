"""SYC502 group-sync-both-ways: two running flows keep the positions of one group equal in both directions.

Why: each direction writes what the other one just read. A position that moves on one side is set back from the other,
again and again. Topics must come back under their own name for it; a paused way back does no harm.

Bad:

    defaults:
      topics: {include: [orders]}
      merge: {allowed: true}
      sync: {groups: {mode: continuous}}
    flows:
      - {source: a, target: b}
      - {source: b, target: a}

Good:

    defaults:
      topics: {include: [orders]}
      sync: {groups: {mode: continuous}}
    flows:
      - {source: a, target: b}
      - {source: b, target: a, state: paused}

Source: own; Amazon MSK Replicator, active-active: different group ids
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.rule import Context, Rule
from topology.rules.mention import labels
from topology.rules.syc.both_ways import both_ways


def check(context: Context) -> Iterator[Problem]:
    for pair in both_ways(context.topology) if context.topology is not None else ():
        one, two = pair.one.flow, pair.two.flow
        whose = "every group" if pair.group == "*" else f"group `{pair.group}`"
        yield Problem(
            "SYC502",
            f"{one.id} and {two.id} both write positions of {whose} in `{pair.topic}`, in opposite directions",
            labels((pair.one.span, one.id), (pair.two.span, two.id), (one.declared, one.id), (two.declared, two.id)),
            path=f"{one.path}.sync.groups",
            ids=(one.id, two.id),
            help="keep one direction, or pause one of the flows; groups that run on both sides need ids of their own",
        )


RULE = Rule("SYC502", "group-sync-both-ways", "error", __doc__, check)
