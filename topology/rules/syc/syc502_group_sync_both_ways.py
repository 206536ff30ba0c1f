"""SYC502 group-sync-both-ways: two running flows keep the positions of one group equal in both directions.

Why: a position follows the application from the side where it was last, and goes home with it. An application that
runs on both sides at once under one group id has two positions, and then neither is followed. Where records of both
sides lie in one log, a group that moves reads some of them again. Topics must come back under their own name for it; a
paused way back does no harm. A group that one flow renames has to get its name back by the other, paused or not: else
its application comes home to a group that stands where it left.

Source: own; Amazon MSK Replicator, active-active: different group ids
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.syc.two_way_group_sync import find_returning_topic, find_two_way_flows


def check(context: RuleContext) -> Iterator[Problem]:
    for pair in find_two_way_flows(context.topology) if context.topology is not None else ():
        one, two = pair.one.flow, pair.two.flow
        whose = "every group" if pair.group == "*" else f"group `{pair.group}`"
        yield Problem(
            "SYC502",
            f"{one.id} and {two.id} both write positions of {whose} in `{pair.topic}`, in opposite directions",
            build_labels(
                (pair.one.span, one.id), (pair.two.span, two.id), (one.declared, one.id), (two.declared, two.id)
            ),
            path=f"{one.path}.sync.groups",
            ids=(one.id, two.id),
            help="keep one direction, or pause one of the flows; groups that run on both sides need ids of their own",
        )
    for one, two, name, to in _not_back(context.topology.flows) if context.topology is not None else ():
        yield Problem(
            "SYC502",
            f"{one.id} renames group `{name}` to `{to}`, and {two.id} does not rename it back",
            build_labels((one.settings.where("sync", "groups", "rename"), one.id), (two.declared, two.id)),
            path=f"{one.path}.sync.groups.rename",
            ids=(one.id, two.id),
            help=f"write `rename: {{{to}: {name}}}` in {two.id}, so that the position comes home with the application",
        )


def _not_back(flows: Iterable[Flow]) -> Iterator[tuple[Flow, Flow, str, str]]:
    """There, back, and the first group that would come home under another id; paused flows, too."""
    syncing = [flow for flow in flows if flow.plan.sync.groups.mode != "never"]
    for one, two in product(syncing, syncing):
        if (one.source, one.target) == (two.target, two.source) and one.plan.sync.groups.rename:
            there, back = one.plan.sync.groups, two.plan.sync.groups
            wrong = [(name, to) for name, to in there.rename if name != to and back.target_group(to) != name]
            if wrong and find_returning_topic(one, two) is not None:
                yield one, two, *wrong[0]


RULE = Rule("SYC502", "group-sync-both-ways", "warning", __doc__, check)
