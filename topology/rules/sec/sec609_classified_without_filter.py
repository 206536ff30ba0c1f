"""SEC609 classified-without-filter: a topic labelled `pii` or the like is carried to another owner's cluster.

Why: who may read it is decided by somebody else there, and every field goes along: a flow copies records whole, it
takes nothing out of them. Looked at where both clusters say their `owner`; followed over several flows. The labels
`public`, `open`, `none` and `unclassified` are free.

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        owner: team-shop
        topics: [{match: customers, classification: pii}]
      b: {bootstrap: [k1.b.example.internal:9093], owner: partner}
    flows:
      - source: a
        target: b
        topics: {include: [customers, orders]}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        owner: team-shop
        topics: [{match: customers, classification: pii}]
      b: {bootstrap: [k1.b.example.internal:9093], owner: partner}
    flows:
      - source: a
        target: b
        topics: {include: [customers.masked, orders]}

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem
from topology.quoting import shown
from topology.rule import Context, Rule
from topology.rules.mention import labels
from topology.rules.sec.journeys import Journey, journeys

FREE = {"public", "open", "none", "unclassified"}


def check(context: Context) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return

    def handed_over(journey: Journey) -> bool:
        mine = topology.root.get("clusters", journey.birth, "owner")
        theirs = topology.root.get("clusters", journey.target, "owner")
        return mine is not None and theirs is not None and mine != theirs

    for journey in journeys(context, "classification", handed_over):
        if journey.label.casefold() in FREE or not handed_over(journey):
            continue
        last = journey.flows[-1]
        owner = topology.root.at("clusters", journey.target, "owner")
        assert owner is not None, "it was compared"
        over = f" (by way of {journey.route})" if len(journey.flows) > 1 else ""
        yield Problem(
            "SEC609",
            f"flow {last.id} carries `{journey.symbol.label}` ({shown(journey.label)}) to {journey.target}, which "
            f"belongs to {shown(owner.data)}{over}",
            labels(
                (last.declared, "carries it there"), (journey.span, shown(journey.label)), (owner.span, "another owner")
            ),
            path=f"{last.path}.topics",
            ids=(last.id, journey.birth, journey.symbol.label),
            help="write a topic without the protected fields and copy that one, or say in a comment who agreed to it",
            confidence="certain" if journey.symbol.certain else "possible",
        )


RULE = Rule("SEC609", "classified-without-filter", "warning", __doc__, check)
