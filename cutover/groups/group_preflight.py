"""What each kind of group needs in order to be moved, and why one cannot be: looked at before a client is stopped.

Classic and KIP-848 groups are the same to commits. A share group (KIP-932) has a start offset, and behind it records
that are done with, of which brokers tell the number only. A Streams application keeps state and passes records on in
topics of its own, which have to move with it. A static member (KIP-345) keeps its place after it has stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    ClusterSide,
    CommitOffsets,
    FindReaders,
    JsonObject,
    ReadGroup,
    ReadRecords,
    ReadTopics,
    ReportMessage,
)
from watershed.cutover.groups.group_configs import GROUP_CONFIG_PREFIXES, compare_group_configs
from watershed.cutover.observations import ObservedGroup, ObservedReaders, ObservedRecords, ObservedTopics
from watershed.cutover.offsets import encode_offsets, render_offsets
from watershed.cutover.polling import ActionGenerator, ConditionCheck, perform_action, wait_for_condition
from watershed.cutover.run_context import RunContext
from watershed.topology.kafka_streams import is_changelog_topic
from watershed.topology.shell_command import render_shell_command


def check_groups(context: RunContext, topics: set[str], problems: list[str]) -> ActionGenerator[JsonObject]:
    """What later steps know of each group; `problems` gets why one cannot be moved."""
    found: JsonObject = {}
    for group in context.groups:
        at_target = yield from perform_action(ReadGroup("target", group), ObservedGroup, context.policy)
        at_source = yield from perform_action(ReadGroup("source", group), ObservedGroup, context.policy)
        problems += _at_target(context, group, at_source, at_target)
        problems += _positions(context, group, at_source, topics)
        problems += _share(context, group, at_source) if at_source.kind == "share" else ()
        problems += _streams(context, group, at_source, topics) if at_source.kind == "streams" else ()
        if at_source.kind == "streams":
            yield ReportMessage(describe_state_directory(group, context.flow.source, context.flow.target))
        if at_source.static:
            yield ReportMessage(
                f"group {group} has static members ({', '.join(at_source.static)}): each keeps its place until its "
                f"session ends, for which {context.policy.empty_ms(group, static=True) / 1000:g} s are waited"
            )
        found[group] = {
            "kind": at_source.kind,
            "state": at_source.state,
            "members": at_source.members,
            "static": list(at_source.static),
            "internal": list(at_source.internal),
            "reads": _reads(at_source, topics),
            "offsets": encode_offsets(at_source.offsets),
        }
        if at_source.kind in GROUP_CONFIG_PREFIXES:
            found[group]["configs"] = yield from compare_group_configs(context, group, at_source.kind, problems)
    problems += _names(context)
    return found


def describe_state_directory(group: str, source: str, target: str) -> str:
    """What a person has to do before a Streams application starts at another cluster. Source: apache/kafka docs,
    Streams, Application Reset Tool (local state directory); checkpoint files hold changelog offsets."""
    return (
        f"Streams application {group}: delete its local state directory (state.dir/{group}) on every host before it "
        f"starts at {target}. The checkpoints there hold offsets of {source}; without them it restores its changelogs"
    )


def list_pending(seen: ObservedGroup) -> list[str]:
    """What is waited for before the group's positions are known, for people."""
    return [f"{place} is committed in a transaction that is still open" for place in sorted(seen.unstable)]


def read_stable_group(context: RunContext, side: ClusterSide, group: str) -> ActionGenerator[ObservedGroup]:
    """The group when none of its positions is part of an open transaction, or as soon as it has members: then the
    positions are its own affair. Raises Refused, naming the partitions, where a transaction stays open."""
    policy, alias = context.policy, context.flow.source if side == "source" else context.flow.target
    last: list[ObservedGroup] = []

    def look() -> ActionGenerator[ConditionCheck]:
        seen = yield from perform_action(ReadGroup(side, group), ObservedGroup, policy)
        last[:] = [seen]
        pending = [] if seen.members else list_pending(seen)
        text = f"group {group} at {alias}: {'; '.join(pending) or 'no transaction has positions of it'}"
        return ConditionCheck(not pending, text, seen.at_ms, {"pending": pending})

    yield from wait_for_condition(look, policy.copied_bound_ms, policy)
    return last[0]


def commit_positions(
    context: RunContext,
    side: ClusterSide,
    group: str,
    offsets: Mapping[TopicPartition, int],
    texts: Mapping[TopicPartition, str],
    kind: str,
) -> ActionGenerator[ObservedGroup]:
    """Commits, and reads back. The flow's group sync may have a transaction open, which our commit overrules and which
    hides it until it ends (`replicator.sync.position_transaction`)."""
    commit = CommitOffsets(side, group, offsets, texts, kind)
    seen = yield from perform_action(commit, ObservedGroup, context.policy)
    return (yield from read_stable_group(context, side, group)) if seen.unstable else seen


def find_groups_left_behind(context: RunContext, topics: set[str]) -> ActionGenerator[dict[str, list[str]]]:
    """Live groups that read the wave's topics and that the wave does not move: group → topics. Some may be meant to
    stay; whoever decides should know of them."""
    seen = yield from perform_action(FindReaders("source", tuple(sorted(topics))), ObservedReaders, context.policy)
    late, reverse = context.policy.late_groups, context.policy.reverse
    found = {name: list(read) for name, read in seen.groups.items() if name not in (*context.groups, *late)}
    after = f"where nothing is written any more once producers have moved to {context.flow.target}"
    if reverse is not None:
        after = f"and reads on what flow {reverse} brings; a wave with `strategy: consumers_last` would move it later"
    for name, read in found.items():
        where = f"group {name} reads {', '.join(read)} at {context.flow.source} and is not in wave {context.wave.name}"
        yield ReportMessage(f"{where}: it stays there, {after}")
    for group, wave in sorted(late.items()):
        yield ReportMessage(
            f"group {group} stays at {context.flow.source}, where flow {reverse} brings what producers write at "
            f"{context.flow.target}; wave {wave} moves it later"
        )
    return found


def find_unprocessed_partitions(context: RunContext, group: str, seen: ObservedGroup) -> ActionGenerator[list[str]]:
    """Partitions of the group's own repartition topics that stay behind with records which it has not taken up: they
    would be lost. Where the group's position is in an open transaction, nobody knows: wait for its end first."""
    if context.kind_of(group) != "streams":
        return []
    stay = [
        topic
        for topic in context.internal(group)
        if topic not in context.partitions() and not is_changelog_topic(topic)
    ]
    if not stay:
        return []
    counts = (yield from perform_action(ReadTopics("source"), ObservedTopics, context.policy)).partitions
    every = [TopicPartition(topic, number) for topic in stay for number in range(counts.get(topic, 0))]
    places = [place for place in every if place not in seen.unstable]
    at = {place: seen.offsets.get(place, 0) for place in places}
    records = (
        (yield from perform_action(ReadRecords("source", at), ObservedRecords, context.policy)).records if at else {}
    )
    return [str(place) for place, record in sorted(records.items()) if record is not None]


def _at_target(context: RunContext, group: str, at_source: ObservedGroup, at_target: ObservedGroup) -> Iterator[str]:
    target = context.flow.target
    if at_target.members:
        yield f"group {group} is alive at {target} ({describe_members(at_target)})"
    elif at_target.others():
        reset = ("topology", "offsets", "reset-group", "FILE", "--flow", context.flow.id, "--group", group)
        yield (
            f"group {group} has offsets at {target} already: {render_offsets(at_target.others())}; they are not "
            f"ours to overwrite. If they mean nothing (another copier left them), `{render_shell_command(*reset)}` "
            "replaces them"
        )
    elif is_kind_conflict(at_source.kind, at_target.kind):
        yield (
            f"group {group} is a {at_source.kind} group at {context.flow.source} and a {at_target.kind} group "
            f"at {target}: remove it at {target}, or give it another name there (sync.groups.rename)"
        )


def describe_members(seen: ObservedGroup) -> str:
    """`2 members: billing-1 at 10.0.0.1, billing-2 at 10.0.0.2`"""
    count = f"{seen.members} member{'' if seen.members == 1 else 's'}"
    return f"{count}: {', '.join(seen.who)}" if seen.who else count


def is_kind_conflict(one: str, other: str) -> bool:
    """Whether a group cannot be both: share groups keep other positions than all the others."""
    return "unknown" not in (one, other) and (one == "share") != (other == "share")


def _positions(context: RunContext, group: str, at_source: ObservedGroup, topics: set[str]) -> Iterator[str]:
    mine = [place for place in at_source.list_committed() if place.topic in topics]
    if not mine and not at_source.members and group not in context.policy.uncommitted:
        yield f"group {group} has no commit at {context.flow.source}, and the file declares no policy for it"
    own = set(at_source.internal)
    committed = {place.topic for place in at_source.list_committed()}
    for topic in sorted(committed - topics - own):
        command = render_shell_command("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
        yield (
            f"group {group} also reads {topic}, which is not in wave {context.wave.name}: a group moves as a whole. "
            f"Put its topics into one wave; if it reads {topic} no more, delete its offsets of it at "
            f"{context.flow.source} ({command})"
        )
    for topic in sorted(at_source.reads - committed - topics - own):  # what is written there later, nobody would read
        yield (
            f"group {group} also subscribes to {topic}, which is not in wave {context.wave.name}: a group moves as a "
            f"whole. Put its topics into one wave, or take {topic} out of its subscription"
        )


def _reads(at_source: ObservedGroup, topics: set[str]) -> list[str]:
    """The wave's topics in which the group needs a position. Its members tell what they read; of a group without
    members nobody knows, so it may be all."""
    maybe = at_source.reads if at_source.members else topics
    read = {topic for topic in topics if topic in maybe} | {place.topic for place in at_source.list_committed()}
    return sorted(topic for topic in read & topics if not (topic in at_source.internal and is_changelog_topic(topic)))


def _share(context: RunContext, group: str, at_source: ObservedGroup) -> Iterator[str]:
    if group in context.policy.redelivery or context.policy.strategy == "producers_first":
        return  # who drains first leaves nothing behind the start offset
    yield (
        f"group {group} is a share group: its start offsets can be moved, but not which of the records behind them are "
        f"done with ({sum(at_source.again.values())} offsets now): they are delivered again. Accept that "
        f"(migration.groups.{group}.redelivery: accept), or let its consumers read everything first "
        "(strategy: producers_first)"
    )


def _streams(context: RunContext, group: str, at_source: ObservedGroup, topics: set[str]) -> Iterator[str]:
    """Streams finds its topics by its application id, which is its group id, and writes to them as long as it runs."""
    called, moved = (
        context.flow.sync.groups.target_group(group),
        [each for each in at_source.internal if each in topics],
    )
    left = [each for each in at_source.internal if each not in topics]
    if called != group:
        yield (
            f"group {group} is a Streams application, which finds its own topics by its id: it cannot be renamed to "
            f"{called}; take it out of sync.groups.rename"
        )
    if left and group not in context.policy.rebuild:
        yield (
            f"group {group} is a Streams application with topics that are not in wave {context.wave.name}: "
            f"{', '.join(left)}. Without them it would go on with wrong results: put them into the flow and the wave, "
            f"or let it begin with empty state stores (migration.groups.{group}.state: rebuild)"
        )
    for topic in moved:
        if context.rename(topic) != topic:
            name = f"{context.rename(topic)} at {context.flow.target}"
            yield f"topic {topic} would be {name}, where the Streams application {group} does not look for it"
    if moved and group not in context.producers:
        yield (
            f"group {group} is a Streams application and writes to {', '.join(moved)}: name it among the producers of "
            f"wave {context.wave.name}, too, so that it is fenced, and starts at {context.flow.target} behind the proof"
        )


def _names(context: RunContext) -> Iterator[str]:
    called: dict[str, list[str]] = {}
    for group in context.groups:
        called.setdefault(context.flow.sync.groups.target_group(group), []).append(group)
    for name, groups in called.items():
        if len(groups) > 1:
            yield f"groups {' and '.join(groups)} would both be {name} at {context.flow.target} (sync.groups.rename)"
    both = [group for group in context.groups if group in context.producers]
    if both and context.policy.strategy != "fenced":
        yield (
            f"{', '.join(both)} read and write in wave {context.wave.name}: what one strategy step stops, another "
            "needs running. Move them with strategy: fenced"
        )
