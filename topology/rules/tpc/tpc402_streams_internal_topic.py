"""TPC402 streams-internal-topic: a flow selects topics that a Kafka Streams application made for itself.

Why: a changelog or repartition topic without the application's positions and stores is of no use: the application
builds its own at the target, and mixes its records with the copied ones. Patterns never take `*-changelog` and
`*-repartition`; naming them with `allow_internal: true` does, and a pattern may take the topics of foreign-key joins.
A topic that a wave of the migration moves goes along with its application, and is not told; nor are those of an
application whose state the flow carries (`sync.groups.streams`).

Source: apache/kafka StreamsResetter.java for the names; KIP-213 for foreign-key joins
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.kafka_streams import find_streams_topics
from watershed.topology.migration_waves import PlanMigration
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import render_some_names
from watershed.topology.rules.tpc.reserved_names import find_selector_span, is_streams_name, list_selected_names


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    migration = topology.migration if topology is not None else None
    moved = {topic for wave in (migration.waves if migration is not None else ()) for topic in wave.topics}
    for flow in topology.flows if topology is not None else ():
        along = moved if migration is not None and flow.id in _ways(migration) else set()
        selected = list_selected_names(context, flow)
        along = along.union(*(find_streams_topics(each, selected) for each in flow.plan.sync.groups.streams))
        names = [name for name in selected if is_streams_name(name) and name not in along]
        if names:
            yield Problem(
                "TPC402",
                f"flow {flow.id} copies {render_some_names(names)}, which a Streams application keeps for itself",
                (Label(find_selector_span(flow, names[0]), "selected here"),),
                path=f"{flow.path}.topics.include",
                ids=(flow.id, *names[:3]),
                help="exclude them and copy the application's input topics; it rebuilds its state at the target. Or "
                "name the application in `sync.groups.streams`, and its state travels",
            )


def _ways(migration: PlanMigration) -> set[str | None]:
    """The flow of the migration, and its ways back."""
    return {migration.flow, *(wave.rollback.reverse for wave in migration.waves if wave.rollback is not None)}


RULE = Rule("TPC402", "streams-internal-topic", "error", __doc__, check)
