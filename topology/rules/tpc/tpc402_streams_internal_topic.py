"""TPC402 streams-internal-topic: a flow selects topics that a Kafka Streams application made for itself.

Why: a changelog or repartition topic without the application's positions and stores is of no use: the application
builds its own at the target, and mixes its records with the copied ones. Patterns never take `*-changelog` and
`*-repartition`; naming them with `allow_internal: true` does, and a pattern may take the topics of foreign-key joins.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [orders, billing-totals-changelog], allow_internal: true}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Source: apache/kafka StreamsResetter.java for the names; KIP-213 for foreign-key joins
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Label, Problem
from topology.rule import Context, Rule
from topology.rules.mention import some
from topology.rules.tpc.reserved import named, of_streams, where


def check(context: Context) -> Iterator[Problem]:
    for flow in context.topology.flows if context.topology is not None else ():
        names = [name for name in named(context, flow) if of_streams(name)]
        if names:
            yield Problem(
                "TPC402",
                f"flow {flow.id} copies {some(names)}, which a Streams application keeps for itself",
                (Label(where(flow, names[0]), "selected here"),),
                path=f"{flow.path}.topics.include",
                ids=(flow.id, *names[:3]),
                help="exclude them and copy the application's input topics; it rebuilds its state at the target",
            )


RULE = Rule("TPC402", "streams-internal-topic", "error", __doc__, check)
