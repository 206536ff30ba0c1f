"""Failover of Kafka Streams applications: the state that came with their positions, and how much is beyond them.

A position came to the target only where every internal topic was copied through what belongs to it, so no state is
missing. What was copied beyond it is state that the application builds again: at most so many records are applied twice
(decision 0122).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import JsonObject, ReadLastSeenSource, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.groups.group_preflight import describe_state_directory
from watershed.cutover.observations import LastSeenSource
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext
from watershed.cutover.utc_instant import render_utc_instant
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.topology.plan import PlanFlow

if TYPE_CHECKING:  # it imports the Kafka client, which no DAG may load
    from watershed.clusters.streams_state_range import StateRange


def read_state_ranges(context: RunContext) -> ActionGenerator[dict[str, StateRange]]:
    """Of the wave's Streams applications, by group; not of those that build their state again."""
    seen = yield from perform_action(ReadLastSeenSource(context.source_places()), LastSeenSource, context.policy)
    followed = [group for group in context.groups if group not in context.policy.rebuild]
    return select_states(context.flow, followed, seen)


def select_states(flow: PlanFlow, groups: Iterable[str], seen: LastSeenSource) -> dict[str, StateRange]:
    """Those of Streams applications that the flow names, among these groups."""
    return {group: seen.states[group] for group in groups if group in flow.sync.groups.streams if group in seen.states}


def list_standby_problems(
    context: RunContext, group: str, kind: str, internal: tuple[str, ...], state: StateRange | None
) -> Iterator[str]:
    """Why a Streams application would go on at the target with wrong results. kind, internal: of the group as the
    target shows it. state: what came with its positions."""
    flow = context.flow
    if group in context.policy.rebuild:
        return
    if group not in flow.sync.groups.streams:
        if kind == "streams":
            yield (
                f"group {group} is a Streams application with {', '.join(internal)} at {flow.target}, and its "
                f"positions did not follow its state: flow {flow.id} does not name it in sync.groups.streams. Delete "
                "these topics there and let it begin with empty state stores "
                f"(migration.groups.{group}.state: rebuild), or leave it out of the wave"
            )
        return
    if state is None:
        yield (
            f"group {group}: its state was never copied as far as its positions at {flow.source} needed, so no "
            "position of it came with its state. What was missing: `topology status`, report of the group"
        )
        return
    left = sorted({place.topic for place in state.least} - set(context.partitions()))
    if left:
        yield (
            f"group {group} is a Streams application with topics that are not in wave {context.wave.name}: "
            f"{', '.join(left)}. Workers would go on writing there: put them into the wave"
        )


def assess_states(states: Mapping[str, StateRange], held: Mapping[TopicPartition, CopiedPartition]) -> JsonObject:
    """By Streams application: `beyond`, the most offsets of its internal topics that hold state beyond its positions;
    `behind`, internal partitions whose copies lack state that belongs to them, with what they lack; and when the
    positions were read at the source (`read_at_ms`, since 1970). held: the copies, by source partition."""
    copied = {place: each.position for place, each in held.items() if each.map.runs}
    return {
        group: {
            "beyond": state.count_beyond(copied),
            "behind": {
                str(place): f"copied through {copied.get(place, 0)} of {state.most[place]}"
                for place in state.list_behind(copied)
            },
            "read_at_ms": state.at_ms,
        }
        for group, state in sorted(states.items())
    }


def require_whole_states(states: JsonObject, target: str) -> None:
    """Raises Refused where a copy lacks state that belongs to the positions: somebody has changed it since."""
    for group, found in states.items():
        if found["behind"]:
            named = ", ".join(f"{place} ({text})" for place, text in list(found["behind"].items())[:5])
            raise Refused(
                f"group {group}: copies at {target} lack state that its positions take for done: {named}. They were "
                "changed there since the positions came. Only a rebuild gives right results now: delete its internal "
                f"topics at {target}, and say migration.groups.{group}.state: rebuild",
                states,
            )


def describe_states(states: JsonObject) -> list[str]:
    """One sentence for each application, for people."""
    return [
        f"Streams application {group}: its positions are those of {render_utc_instant(found['read_at_ms'])}. "
        + (
            f"State that belongs to them is missing: {', '.join(found['behind'])}"
            if found["behind"]
            else f"No state of them is missing. Its topics hold {found['beyond']} offsets beyond them, so at most as "
            "many records may be applied twice"
        )
        for group, found in states.items()
    ]


def report_states(context: RunContext, states: JsonObject) -> ActionGenerator[None]:
    """Says it to whoever runs the failover, and what has to be done on the applications' hosts."""
    for text in describe_states(states):
        yield ReportMessage(text, states)
    for group in states:
        yield ReportMessage(describe_state_directory(group, context.flow.source, context.flow.target))
