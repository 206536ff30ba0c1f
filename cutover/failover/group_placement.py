"""Where groups go on at a target whose source is gone: where the flow carried them, else where the file says."""

from __future__ import annotations

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    JsonObject,
    ReadRecords,
    RecallDeeds,
    ReportMessage,
)
from watershed.cutover.application_steps import start_application_there
from watershed.cutover.errors import Refused
from watershed.cutover.failover.streams_standby import list_standby_problems, read_state_ranges
from watershed.cutover.groups.group_preflight import commit_positions, read_stable_group
from watershed.cutover.observations import (
    ObservedGroup,
    ObservedLogs,
    ObservedRecords,
    RecalledDeeds,
)
from watershed.cutover.offsets import decode_offsets, encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext, read_target_logs


class _GroupPlacement:
    """Where a group stands at the target. wanted: each partition's position; carried: those that the flow brought;
    chosen: by the file's policy, or where nothing was ever written; texts: what a Streams application kept beside
    carried positions; reads: source topics that it reads."""

    def __init__(self, seen: ObservedGroup, reads: list[str]) -> None:
        self.kind, self.reads = seen.kind, reads
        self.wanted: dict[TopicPartition, int] = {}
        self.carried: set[TopicPartition] = set()
        self.chosen: dict[TopicPartition, int] = {}
        self.texts: dict[TopicPartition, str] = {}
        self.problems: list[str] = []

    def to_json(self) -> JsonObject:
        return {
            "source": {},  # nobody can say
            "target": encode_offsets(self.wanted),
            "chosen": encode_offsets(self.chosen),
            "carried": len(self.carried),
            "reads": self.reads,
            "kind": self.kind,
        }


def plan_group_placement(context: RunContext, group: str, logs: ObservedLogs) -> ActionGenerator[_GroupPlacement]:
    """Carried positions, and for the rest the file's policy: the source's commits cannot be asked for any more. What
    this run began to commit is not somebody else's. Where it holds a position in some topics, it reads only those."""
    flow = context.flow
    seen = yield from read_stable_group(context, "target", group)
    held = {place.topic for place in seen.offsets}
    topics = [topic for topic in sorted(context.partitions()) if context.rename(topic) in held] or sorted(
        context.partitions()
    )
    found = _GroupPlacement(seen, topics)
    state = (yield from read_state_ranges(context)).get(group)
    found.problems += list_standby_problems(context, group, seen.kind, seen.internal, state)
    found.texts = {} if state is None else {place: text for place, text in state.texts.items() if place in seen.kept}
    if seen.members:
        found.problems.append(f"group {group} is alive at {flow.target} ({seen.members} members)")
    reads = {context.rename(topic) for topic in topics}
    places = tuple(place for place in context.target_places() if place.topic in reads)
    others = {place: at for place, at in seen.others().items() if place in set(places)}
    silent: list[TopicPartition] = []
    way = context.policy.uncommitted.get(group)
    for place in places:
        start, end = logs.starts[place], logs.stable[place]
        if place in seen.offsets:
            found.wanted[place] = seen.offsets[place]
            found.carried |= {place} & seen.kept
        elif start == end or way == "latest":
            found.chosen[place] = end
        elif way == "earliest":
            found.chosen[place] = start
        else:
            silent.append(place)
    found.wanted |= found.chosen
    recalled = yield from perform_action(RecallDeeds("CommitOffsets"), RecalledDeeds, context.policy)
    ours = [decode_offsets(deed["offsets"]) for deed in recalled.deeds if deed["group"] == group]
    ours += [dict(each) for each in (context.earlier.ours.get(group, ()) if context.earlier is not None else ())]
    others = {place: at for place, at in others.items() if not any(each.get(place) == at for each in ours)}
    if others:
        found.problems.append(
            f"group {group} holds positions at {flow.target} that flow {flow.id} did not bring there "
            f"({render_offsets(others)}): leave the group out of wave {context.wave.name}, and it goes on where it "
            f"committed"
        )
    if silent:
        named = ", ".join(map(str, silent[:5])) + (f" and {len(silent) - 5} more" if len(silent) > 5 else "")
        found.problems.append(
            f"group {group} has no position at {flow.target} for {named}: `sync.groups` did not carry it there, and "
            f"{flow.source} cannot be asked where it had read to. Say in migration.groups.{group}.uncommitted whether "
            "it begins at the earliest or the latest record there"
        )
    for place, at in found.wanted.items():
        if not logs.starts[place] <= at <= logs.ends[place]:
            found.problems.append(
                f"group {group} stands at {at} of {place} at {flow.target}, whose log holds {logs.starts[place]} to "
                f"{logs.ends[place] - 1}: the records it would go on with are gone"
            )
    return found


def place_groups(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Carried positions stay as they are; only what the file's policy says is committed (compare-and-set), and the text
    of Streams applications, which our mark had replaced: the time that their windows have reached."""
    outcome["groups"] = {}
    logs = yield from read_target_logs(context)
    for group in context.groups:
        found = yield from plan_group_placement(context, group, logs)
        if found.problems:
            raise Refused("; ".join(found.problems))
        ours = found.chosen | {place: found.wanted[place] for place in found.texts}
        if ours:
            done = yield from commit_positions(context, "target", group, ours, found.texts, found.kind)
            if any(done.offsets.get(place) != at for place, at in ours.items()):
                raise Refused(
                    f"group {group}: committed {render_offsets(ours)}, read back {render_offsets(done.offsets)}"
                )
        outcome["groups"][group] = found.to_json()
        yield ReportMessage(f"group {group}: goes on at {render_offsets(found.wanted)}", outcome["groups"][group])


def check_landing_at_target(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """At each position a record can be read, or the log ends there: all that can be shown without the source."""
    outcome["groups"] = {}
    for group in context.groups:
        wanted = context.outcomes.find_placed_offsets(group)
        records = (yield from perform_action(ReadRecords("target", wanted), ObservedRecords, context.policy)).records
        found = sum(record is not None for record in records.values())
        outcome["groups"][group] = {"record": found, "at_end": len(records) - found}


def start_promoted_consumers(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """The positions are looked at once more: share groups have no transactions, nor have all servers, or they keep
    their positions in another order. There a worker that stood still may have carried an older one meanwhile (decision
    0092)."""
    outcome["started"] = {}
    alias = context.flow.target
    for group in context.readers:
        wanted = context.outcomes.find_placed_offsets(group)
        at_target = yield from read_stable_group(context, "target", group)
        if not at_target.members and any(at_target.offsets.get(place) != at for place, at in wanted.items()):
            raise Refused(
                f"group {group} was to go on at {render_offsets(wanted)} and holds "
                f"{render_offsets(at_target.offsets)} at {alias} now: "
                "something else commits for this group id"
            )
        outcome["started"][group] = yield from start_application_there(context, group, "consumer", "target")
