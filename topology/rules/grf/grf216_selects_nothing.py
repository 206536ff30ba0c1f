"""GRF216 selects-nothing: a flow's include minus its exclude leaves no topic.

Why: a typo in a pattern copies nothing and fails nowhere. The patterns themselves are compared first; with an inventory
the source's real topics are, too.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.topic_symbols import list_source_symbols


def check(context: RuleContext) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        where = Label(flow.settings.where("topics", "include"), flow.id)
        seen = context.inventory.cluster(flow.source) if context.inventory is not None else None
        if next(list_source_symbols(flow.plan), None) is None:
            message = f"{flow.id} selects nothing: what it includes is excluded again, or internal"
        elif _is_fed_by_flow(context, flow.source) or flow.plan.state == "paused":
            continue  # what it will find there comes with other flows, or with a failover
        elif seen is not None and not seen.topics.keys() & context.facts.names(flow.source, flow.plan.topics):
            message = f"{flow.id} selects none of the {len(seen.topics)} topics that {flow.source} has"
        else:
            continue
        yield Problem(
            "GRF216",
            message,
            (where,),
            path=f"{flow.path}.topics",
            ids=(flow.id,),
            help="compare `topics.include` and `exclude` (also those under `defaults:`) with the names; "
            "internal topics have to be named literally, with `allow_internal: true`",
        )


def _is_fed_by_flow(context: RuleContext, alias: str) -> bool:
    return context.graph is not None and alias in context.graph.writers


RULE = Rule("GRF216", "selects-nothing", "warning", __doc__, check)
