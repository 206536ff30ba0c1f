"""Whether a wave can be rehearsed, and what would be made: found out before anything is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import TopicDescription
from watershed.clusters.control_records import read_messages
from watershed.clusters.control_topics import FLOWS_TOPIC, LEDGER_TOPIC, STATUS_TOPIC
from watershed.clusters.errors import ClusterError
from watershed.clusters.missing_rights import find_missing_rights
from watershed.clusters.producer_fence import is_acl_on_topic
from watershed.clusters.required_role_acls import RequiredRight, derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import JsonObject
from watershed.cutover.drill.drill_topology import map_copies_to_originals
from watershed.topology.migration_waves import Wave
from watershed.topology.plan import Plan, PlanFlow

_READ_S = 30.0
_OPEN = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True)
class Drill:
    """One rehearsal. plan: the real one; drill: what `build_drill_topology` makes of it. records: how many of a topic
    are copied at most. keep: what was made stays. settings: of both clusters, by alias."""

    plan: Plan
    wave: str
    run: str
    drill: Plan
    settings: Mapping[str, ConnectionSettings]
    records: int = 10_000
    keep: bool = False

    @property
    def moved(self) -> Wave:
        """The drill's only wave: copies instead of topics."""
        assert self.drill.migration is not None
        [wave] = self.drill.migration.waves
        return wave

    @property
    def flow(self) -> PlanFlow:
        """The flow from the copies at the source to their target copies."""
        assert self.drill.migration is not None
        return self.drill.flow(self.drill.migration.flow)

    @property
    def copies(self) -> dict[str, str]:
        """Copy at the source → the topic that it is a copy of."""
        return map_copies_to_originals(self.plan, self.wave, self.run)

    @property
    def principals(self) -> dict[str, str]:
        """Whom an acl fence denies, by the names of the rehearsal's producers."""
        assert self.drill.migration is not None
        known = self.drill.migration.applications
        return {name: who for name in self.moved.producers if (who := known[name].principal) is not None}


@dataclass(frozen=True, slots=True)
class _DrillFindings:
    """problems, lacking, what: as `cutover.drill.copy_actions.ObservedOriginals` has them."""

    problems: tuple[str, ...]
    lacking: tuple[str, ...]
    what: JsonObject


def inspect_originals(drill: Drill) -> _DrillFindings:
    """Rights first: without them nothing else can be seen. Raises ClusterError when a cluster does not answer."""
    flow = drill.flow
    for alias in (flow.source, flow.target):
        with Admin(drill.settings[alias]) as admin:
            admin.check_identity()
    problems = _missing(drill, list_drill_rights(drill))
    lacking = tuple(_missing(drill, derive_required_rights(_only(drill), "migrate")))
    if problems:
        return _DrillFindings(tuple(problems), lacking, {})
    found = _found(drill, problems)
    what = _what(drill, found)
    if not problems:
        problems += _unreadable(drill)
    if not problems and drill.moved.fence.kind == "acl":
        what["allowed"] = _allowed(drill, problems)
    return _DrillFindings(tuple(problems), lacking, what)


def _found(drill: Drill, problems: list[str]) -> dict[str, TopicDescription]:
    """Copy → the topic as it is. No copy may be there already: it would be somebody else's."""
    flow, found = drill.flow, dict[str, TopicDescription]()
    with Admin(drill.settings[flow.source]) as source, Admin(drill.settings[flow.target]) as target:
        for copy, name in drill.copies.items():
            topic = source.topic(name)
            if topic is None:
                problems.append(f"topic {name} does not exist at {flow.source}")
            else:
                found[copy] = topic
            for admin, taken, alias in ((source, copy, flow.source), (target, flow.target_topic(copy), flow.target)):
                if admin.topic(taken) is not None:
                    problems.append(f"topic {taken} is there already at {alias}, and no other than ours may be removed")
    return found


def find_copied_spans(drill: Drill, copy: str, name: str, partitions: int) -> dict[int, tuple[int, int]]:
    """Partition → from where to where it is copied: its newest offsets. Those without records are left out."""
    with Admin(drill.settings[drill.flow.source]) as admin:
        found = admin.offsets(TopicPartition(name, number) for number in range(partitions))
    most = max(1, drill.records // partitions)
    wanted = {place.partition: (max(span.start, span.end - most), span.end) for place, span in found.items()}
    return {number: each for number, each in wanted.items() if each[0] < each[1]}


def _what(drill: Drill, found: Mapping[str, TopicDescription]) -> JsonObject:
    flow = drill.flow
    return {
        "plan": drill.plan.hash,
        "source": flow.source,
        "target": flow.target,
        "copies": [
            {
                "topic": drill.copies[copy],
                "copy": copy,
                "target_copy": flow.target_topic(copy),
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
            }
            for copy, topic in sorted(found.items())
        ],
        "flows": {each.id: each.target for each in drill.drill.flows},
        "groups": list(drill.moved.consumers),
        "allowed": {},
        "keep": drill.keep,
    }


def _only(drill: Drill) -> Plan:
    """The real plan with this wave alone, whose rights are asked for."""
    assert drill.plan.migration is not None
    wave = drill.plan.migration.wave(drill.wave)
    return replace(drill.plan, migration=replace(drill.plan.migration, waves=(wave,)))


def list_drill_rights(drill: Drill) -> Iterator[RequiredRight]:
    """What this process does itself; workers have rights of their own."""
    flow, wave = drill.flow, drill.moved
    yield from derive_required_rights(drill.drill, "apply")
    yield from derive_required_rights(drill.drill, "migrate")
    for each in drill.drill.flows:
        for name in (FLOWS_TOPIC, LEDGER_TOPIC, STATUS_TOPIC):
            yield RequiredRight(
                each.target, "TOPIC", name, "LITERAL", "READ", "see how the rehearsal's flows do, and end them"
            )
            yield RequiredRight(
                each.target, "TOPIC", name, "LITERAL", "WRITE", "remove what is written down of these flows"
            )
    for copy, name in drill.copies.items():
        yield RequiredRight(flow.source, "TOPIC", name, "LITERAL", "READ", "copy its newest records")
        yield RequiredRight(
            flow.source, "TOPIC", name, "LITERAL", "DESCRIBE_CONFIGS", "give the copy the same settings"
        )
        for alias, called in ((flow.source, copy), (flow.target, flow.target_topic(copy))):
            for operation, why in (
                ("CREATE", "make the copy"),
                ("WRITE", "write as the applications do"),
                ("READ", "read as the applications do"),
                *((("ALTER_CONFIGS", "let what is kept expire"),) if drill.keep else (("DELETE", "remove the copy"),)),
            ):
                yield RequiredRight(alias, "TOPIC", called, "LITERAL", operation, why)
    for group in wave.consumers:
        for alias in (flow.source, flow.target):
            yield RequiredRight(alias, "GROUP", group, "LITERAL", "READ", "read as the applications do")
            yield RequiredRight(alias, "GROUP", group, "LITERAL", "DELETE", "remove the group")


def _missing(drill: Drill, needed: Iterable[RequiredRight]) -> list[str]:
    every = list(dict.fromkeys(needed))
    return list(
        dict.fromkeys(
            str(missing)
            for alias in sorted({right.cluster for right in every})
            for missing in find_missing_rights(drill.settings[alias], [each for each in every if each.cluster == alias])
        )
    )


def _unreadable(drill: Drill) -> list[str]:
    """One record of each topic is read."""
    source, problems = drill.settings[drill.flow.source], list[str]()
    with Admin(source) as admin:
        partitions = {name: topic.partitions for name in drill.copies.values() if (topic := admin.topic(name))}
    for copy, name in drill.copies.items():
        try:
            wanted = find_copied_spans(drill, copy, name, partitions[name])
            for number, (_, end) in list(wanted.items())[:1]:
                next(iter(read_messages(source, name, {number: (end - 1, end)}, _READ_S)), None)
        except ClusterError as error:
            problems.append(f"topic {name} cannot be read: {error}")
    return problems


def _allowed(drill: Drill, problems: list[str]) -> JsonObject:
    """Alias → [principal, topic]: rights to write that an acl fence can take away. Without any, the first denial on a
    copy would be the first right on it at all (`clusters.producer_fence.inspect_acl_fence`)."""
    flow, found = drill.flow, dict[str, list[list[str]]]()
    names = {flow.source: list(drill.copies), flow.target: [flow.target_topic(copy) for copy in drill.copies]}
    for alias, topics in names.items():
        with open_connection(drill.settings[alias]) as inquiry:
            acls = admin_reads.read_acls(inquiry) or ()
        bare = [topic for topic in topics if not any(is_acl_on_topic(acl, topic) for acl in acls)]
        with Admin(drill.settings[alias]) as admin:
            everybody = (admin.broker_config(_OPEN) or "false").lower() == "true"
        if bare and everybody:
            problems.append(
                f"cluster {alias} has {_OPEN}, so that the first right on a copy would shut this process out: give it "
                "all rights on topics that begin with watershed.drill."
            )
        found[alias] = [[who, topic] for who in sorted(set(drill.principals.values())) for topic in bare]
    return found
