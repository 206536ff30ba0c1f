"""TPC402 streams-internal-topic: a flow selects topics that a Kafka Streams application made for itself.

Why: a changelog or repartition topic without the application's positions and stores is of no use: the application
builds its own at the target, and mixes its records with the copied ones. Patterns never take `*-changelog` and
`*-repartition`; naming them with `allow_internal: true` does, and a pattern may take the topics of foreign-key joins.
A topic that a wave of the migration moves goes along with its application, and is not told.

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
from topology.plan import Migration
from topology.rule import Context, Rule
from topology.rules.mention import some
from topology.rules.tpc.reserved import named, of_streams, where


def check(context: Context) -> Iterator[Problem]:
    topology = context.topology
    migration = topology.migration if topology is not None else None
    moved = {topic for wave in (migration.waves if migration is not None else ()) for topic in wave.topics}
    for flow in topology.flows if topology is not None else ():
        along = moved if migration is not None and flow.id in _ways(migration) else set()
        names = [name for name in named(context, flow) if of_streams(name) and name not in along]
        if names:
            yield Problem(
                "TPC402",
                f"flow {flow.id} copies {some(names)}, which a Streams application keeps for itself",
                (Label(where(flow, names[0]), "selected here"),),
                path=f"{flow.path}.topics.include",
                ids=(flow.id, *names[:3]),
                help="exclude them and copy the application's input topics; it rebuilds its state at the target",
            )


def _ways(migration: Migration) -> set[str | None]:
    """The flow of the migration, and its ways back."""
    return {migration.flow, *(wave.rollback.reverse for wave in migration.waves if wave.rollback is not None)}


RULE = Rule("TPC402", "streams-internal-topic", "error", __doc__, check)
