"""Groups that stay at the source when the producers of their topics move, and follow weeks later (`consumers_last`).

From the switch on, the flow back carries what is written at the target to the source, where these groups read on. So a
late group's position is a position among copies that the flow back has written. It is translated by the map of the flow
back, read backwards; a position below the switch by the map of the migration's flow (`SwitchoverMap`). Decision 0121.
"""

from __future__ import annotations

from collections.abc import Mapping

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import FindWriters, JsonObject, ReadCopies, ReadFlow, RecallSwitches
from watershed.cutover.errors import Refused
from watershed.cutover.groups.histories import read_switchover_maps
from watershed.cutover.observations import (
    ObservedCopies,
    ObservedFlow,
    ObservedLogs,
    ObservedWriter,
    ObservedWriters,
    RecalledSwitches,
)
from watershed.cutover.offsets import encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import CopyProgress, RunContext, read_source_logs, read_target_logs
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, RepeatedRunMap
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.ledger.offset_translation import CopiedPartition
from watershed.replicator.ledger.switchover_map import SwitchoverMap, translate_returning_group

_Places = dict[TopicPartition, int]


def check_producer_switches(context: RunContext, problems: list[str]) -> ActionGenerator[JsonObject]:
    """Part of a late wave's preflight: where producers have switched, by the journal → `ends` and `target_ends`, as the
    steps `barrier` and `point_of_no_return` of those runs have them, and `waves`: wave → run and time."""
    recall = RecallSwitches(context.policy.producer_waves)
    seen = yield from perform_action(recall, RecalledSwitches, context.policy)
    missing = sorted(set(context.policy.producer_waves) - {each.wave for each in seen.switches})
    if missing or not seen.switches:
        names = ", ".join(missing) or context.wave.name
        problems.append(
            f"no migration in the journal has moved the producers of wave {names}: late groups follow producers that "
            "have moved. If a failover promoted them, take it back first (`topology failback`). Then move wave "
            f"{names} by `topology migrate`, and wave {context.wave.name} after that"
        )
    mine = set(context.wave.topics)
    barrier = {place: at for each in seen.switches for place, at in each.barrier.items() if place.topic in mine}
    theirs = set(map(context.rename, mine))
    cut = {place: at for each in seen.switches for place, at in each.cut.items() if place.topic in theirs}
    return {
        "ends": encode_offsets(barrier),
        "target_ends": encode_offsets(cut),
        "waves": {each.wave: {"run": each.run, "at_ms": each.at_ms} for each in seen.switches},
    }


def check_flow_back(context: RunContext, topics: list[str], problems: list[str]) -> ActionGenerator[None]:
    """Part of a late wave's preflight: the way back runs, carries these source topics, and the flow there has let go
    of them."""
    name, flow = context.policy.reverse, context.flow
    if name is None:
        problems.append(
            f"no flow leads back (`rollback.reverse` of wave {context.wave.name}): nothing that was written at "
            f"{flow.target} since the switch has come to its groups at {flow.source}"
        )
        return
    seen = yield from perform_action(ReadFlow(name), ObservedFlow, context.policy)
    if seen.state != "running":
        resume = f"`topology flow resume {name}` lets it go on where it was"
        problems.append(f"flow {name}, which feeds the groups at {flow.source}, is {seen.state}, not running: {resume}")
    elif not seen.same_plan:
        problems.append(f"flow {name} runs another plan than this file: `topology apply` first")
    forward = yield from perform_action(ReadFlow(), ObservedFlow, context.policy)
    for topic in topics:
        there = context.rename(topic)
        problems += [f"topic {there}: {seen.halted_topics[there]}"] if there in seen.halted_topics else []
        problems += [seen.paused_topics[there]] if there in seen.paused_topics else []
        if there in seen.retired:
            problems.append(f"flow {name} leaves {there} alone, so its records do not come to {flow.source}")
        if forward.state != "missing" and topic not in forward.retired:
            problems.append(f"flow {flow.id} still copies {topic}: its producers have not moved")


def check_repeats(context: RunContext, partitions: Mapping[str, int], problems: list[str]) -> ActionGenerator[None]:
    """Part of a late wave's preflight: neither flow copies with repeats (`at_least_once, proven`). partitions: source
    topic → count. The history across the switch has a place for each record once, and no rule for what stands twice."""
    here = tuple(TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count))
    there = tuple(map(context.at_target, here))
    for flow, places in ((context.flow.id, here), (context.policy.reverse, there)):
        if flow is None:
            continue
        ask = ReadCopies(places, None if flow == context.flow.id else flow)
        seen = yield from perform_action(ask, ObservedCopies, context.policy)
        repeated = sorted({place.topic for place, each in seen.copies.items() if isinstance(each.map, RepeatedRunMap)})
        if repeated:
            problems.append(
                f"flow {flow} copies {', '.join(repeated)} with repeats (`at_least_once`): positions of late groups "
                f"cannot be translated exactly. Let their owners choose where they begin at {context.flow.target} "
                "(`topology offsets reset-group`)"
            )


def read_lag_back(
    context: RunContext, snapshot: Mapping[TopicPartition, int], progress: CopyProgress
) -> ActionGenerator[tuple[int, int, int]]:
    """Records at the target that the flow back has not carried: (all of them, those below the snapshot, the time of
    the look in ms). Raises Refused where records expired before they were carried: the groups never get them."""
    logs = yield from read_target_logs(context)
    assert context.policy.reverse is not None, "preflight refuses late groups without a way back"
    ask = ReadCopies(context.target_places(), context.policy.reverse)
    seen = yield from perform_action(ask, ObservedCopies, context.policy)
    cut = context.outcomes.cut
    reached = {
        place: max(cut.get(place, 0), seen.copies[place].position if place in seen.copies else 0)
        for place in context.target_places()
    }
    expired = {place: at for place, at in reached.items() if at < logs.starts[place] and at < logs.stable[place]}
    if expired:
        raise Refused(
            f"records at {context.flow.target} from {render_offsets(expired)} on expired before they were carried to "
            f"{context.flow.source}: its groups never get them. Raise the retention at {context.flow.target}, and let "
            "their owners decide where the groups go on (`topology offsets reset-group`)",
            {"expired": encode_offsets(expired)},
        )
    missing = {place: logs.stable[place] - at for place, at in reached.items() if at < logs.stable[place]}
    yield from progress.look(seen, missing)
    behind = sum(max(0, at - reached[place]) for place, at in snapshot.items())
    return sum(missing.values()), behind, seen.at_ms


def find_unsettled_positions(
    context: RunContext,
    group: str,
    at: Mapping[TopicPartition, int],
    held: Mapping[TopicPartition, CopiedPartition],
    logs: ObservedLogs,
) -> ActionGenerator[list[str]]:
    """Positions behind the switch that cannot be translated yet, for people. at: where the group goes on, by source
    partition; logs: read after it; held: the histories by which it is translated.

    A transaction of the flow back may be visible in the topic before it is in the ledger: then the map ends below the
    position, and is asked again. Raises Refused for records of anybody else that the group has still to read: they are
    not at the target, so the group would miss them.
    """
    barrier = context.outcomes.barrier
    known = {place: _find_known_end(held[place].map, barrier.get(place, 0)) for place in at if place in held}
    read = {place: max(barrier.get(place, 0), min(at[place], end)) for place, end in known.items()}
    since = {place: max(offset, logs.starts[place]) for place, offset in read.items() if offset < logs.ends[place]}
    if not since:
        return []
    ask = FindWriters("source", tuple(sorted(since)), since)
    seen = yield from perform_action(ask, ObservedWriters, context.policy)
    records = [each for each in seen.writers if not each.marker]
    strays = [each for each in records if each.flow != context.policy.reverse and each.last >= at[each.place]]
    if strays:
        raise Refused(_describe_strays(context, group, strays), {"strays": [str(each.place) for each in strays]})
    mine = [each for each in records if each.flow == context.policy.reverse]  # others' records are never in the ledger
    unknown = [each for each in mine if each.first < at[each.place] and each.first >= known[each.place]]
    unread = [place for place in since if seen.upto.get(place, -1) < min(at[place], logs.ends[place])]
    return [
        *(f"{each.place} is read through {at[each.place]}, and the ledger is not there yet" for each in unknown),
        *(f"{place} cannot be read to the position {at[place]} yet" for place in sorted(unread)),
    ]


def _find_known_end(history: OffsetMap, barrier: int) -> int:
    """Source offset behind the last record of a history; the barrier before the first one that was carried back."""
    assert isinstance(history, ExplicitRunMap), "a history across a switch"
    return max([barrier, *(run.source + run.records for run in history.counted[-1:])])


def _describe_strays(context: RunContext, group: str, strays: list[ObservedWriter]) -> str:
    named = ", ".join(f"{each.place} offsets {each.first} to {each.last}" for each in strays[:5])
    return (
        f"records were written at {context.flow.source} after the switch, by somebody who did not move ({named}), and "
        f"group {group} has not read them: they are not at {context.flow.target}, so it would miss them. Let the group "
        "read them where it is, stop their producer, and run again"
    )


def refuse_expired_starts(context: RunContext, group: str, wanted: _Places) -> ActionGenerator[None]:
    """Raises Refused where the target's log begins behind the offset at which the group would go on."""
    logs = yield from read_target_logs(context)
    gone = {place: at for place, at in wanted.items() if place in logs.starts and at < logs.starts[place]}
    if gone:
        raise Refused(
            f"group {group} would go on at {render_offsets(gone)} at {context.flow.target}, but the log there begins "
            f"behind these offsets: let the group read on at {context.flow.source} first",
            {"expired": encode_offsets(gone)},
        )


def wait_until_carried_back(
    context: RunContext, group: str, reached: Mapping[TopicPartition, int], given: _Places
) -> ActionGenerator[_Places]:
    """Where a late group goes on at the source after it has read at the target, by source partition. Waits until all
    that it has read is carried back. Raises Refused when that takes longer than `copied_bound_ms`."""
    policy = context.policy
    before = context.translated(group).source
    pairs = tuple((place, context.at_target(place)) for place in context.list_needed_partitions(group))
    back: _Places = {}

    def look() -> ActionGenerator[ConditionCheck]:
        logs = yield from read_source_logs(context)
        maps: Mapping[TopicPartition, SwitchoverMap] = yield from read_switchover_maps(context)
        try:
            found = translate_returning_group(
                reached, given, before, maps, pairs, policy.uncommitted.get(group), logs.starts
            )
        except ReplicatorError as error:
            raise Refused(f"group {group} cannot be translated back: {error}") from None
        back.clear()
        back.update(found.offsets)
        waiting = [str(each) for each in found.ahead]
        text = f"group {group}: {'; '.join(waiting) or 'everything it has read is carried back'}"
        return ConditionCheck(not waiting, text, logs.at_ms, {"ahead": waiting})

    yield from wait_for_condition(look, policy.copied_bound_ms, policy)
    return back
