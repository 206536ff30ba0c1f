"""Which ACLs each role needs, and nothing more: derived from the plan, without asking a cluster.

Roles: `worker` copies; `apply` writes the desired state and creates topics; `observe` reads (status, offsets, trace,
plan, scan); `verify` reads both sides for the proof; `migrate` moves groups; `align` deletes filler for
`offsets: aligned`. It alone has DELETE on topics, which brokers ask for records and for whole topics alike.

Operations and what each request needs: Kafka's documentation, "Operations and resources on protocols"; what implies
what: READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS (AclAuthorizer). Tried on a
broker with an authorizer by the tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, LEDGER_TOPIC, STATUS_TOPIC
from watershed.topology.acl_translation import ACL_RESOURCE_OPTIONS, render_operation
from watershed.topology.copy_bounds import CopyBound
from watershed.topology.migration_waves import PlanMigration
from watershed.topology.mirror_compatibility import HEARTBEATS_TOPIC
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.selectors import Selector
from watershed.topology.shell_command import render_shell_command
from watershed.topology.sync_settings import SyncMode

AccountRole = Literal["apply", "worker", "observe", "verify", "migrate", "align"]
ACCOUNT_ROLES: tuple[AccountRole, ...] = get_args(AccountRole)
_Resource = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]
CLUSTER_RESOURCE_NAME = "kafka-cluster"  # org.apache.kafka.common.resource.Resource.CLUSTER_NAME
_QUARANTINE = "watershed.quarantine"
PROBE_TOPIC = "watershed.probe"
OFFSETS_TOPIC = "__consumer_offsets"
FILL_ID_PREFIX = (
    "watershed-fill|"  # what transactional ids begin with by which logs are filled (replicator.copy.aligned.log_end)
)
_IMPLIED_BY = {"DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"), "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",)}


@dataclass(frozen=True, slots=True, order=True)
class RequiredRight:
    """One ALLOW. `pattern` LITERAL or PREFIXED, as Kafka has them (KIP-290); `why` for people.

    wider: the file's selection cannot be said as an ACL (a glob in the middle, a regex), so the right covers more.
    optional: there is another way without it, which `why` names; its absence is no finding.
    """

    cluster: str
    resource: _Resource
    name: str
    pattern: Literal["LITERAL", "PREFIXED"]
    operation: str
    why: str
    wider: bool = False
    optional: bool = False

    def command(self, principal: str, bootstrap: str) -> str:
        """The `kafka-acls` call that gives it."""
        return render_shell_command(
            *("kafka-acls", "--bootstrap-server", bootstrap, "--command-config", "admin.properties", "--add"),
            *("--allow-principal", principal, "--operation", render_operation(self.operation)),
            ACL_RESOURCE_OPTIONS[self.resource],
            *([] if self.resource == "CLUSTER" else [self.name]),
            *(["--resource-pattern-type", "prefixed"] if self.pattern == "PREFIXED" else []),
        )


def derive_required_rights(plan: Plan, role: AccountRole, cluster: str | None = None) -> tuple[RequiredRight, ...]:
    """What the role needs on every cluster of the plan (or one), sorted, each once. Raises NotInPlan."""
    if cluster is not None:
        plan.cluster(cluster)
    needed = {right for flow in plan.flows for right in _of_flow(plan, flow, role)}
    kept = {right for right in needed if cluster is None or right.cluster == cluster}
    return tuple(sorted(_once(kept)))


def _once(found: Iterable[RequiredRight]) -> Iterator[RequiredRight]:
    """One right for each thing, although several flows may need it; none that another one implies."""
    by_thing: dict[tuple[str, ...], RequiredRight] = {}
    for right in sorted(found, key=lambda right: (right.optional, right)):
        by_thing.setdefault((right.cluster, right.resource, right.name, right.pattern, right.operation), right)
    for thing, right in by_thing.items():
        stronger = [by_thing.get((*thing[:-1], each)) for each in _IMPLIED_BY.get(right.operation, ())]
        if not any(each is not None and (right.optional or not each.optional) for each in stronger):
            yield right


def _of_flow(plan: Plan, flow: PlanFlow, role: AccountRole) -> Iterator[RequiredRight]:
    if role == "worker":
        yield from _worker(plan, flow)
    elif role == "apply":
        yield from _apply(plan, flow)
    elif role == "observe":
        yield from _observe(plan, flow)
    elif role == "verify":
        yield from _verify(flow)
        yield from _groups(plan, flow, ("once", "continuous"), reading=True)
    elif role == "align":
        if flow.offsets == "aligned":
            yield from _topics(flow, "target", "DELETE", "delete filler below the source's log start (DeleteRecords)")
            yield _topic(
                flow.target, PROBE_TOPIC, "DELETE", "try once whether records can be deleted (`offsets: aligned`)"
            )
    elif plan.migration is not None and plan.migration.flow == flow.id:
        yield from _migrate(plan, flow)


def _worker(plan: Plan, flow: PlanFlow) -> Iterator[RequiredRight]:
    yield from _topics(flow, "source", "READ", "fetch records")
    yield from _topics(flow, "source", "DESCRIBE_CONFIGS", "take topic configs over to new topics")
    if flow.guard == "producer_id":
        yield _topic(flow.source, FLOWS_TOPIC, "READ", "know which batches a flow brought (loop guard)")
        yield _topic(
            flow.source, LEDGER_TOPIC, "READ", "believe another flow's producer id only where it wrote (loop guard)"
        )
    yield from _topics(flow, "target", "WRITE", "append records")
    yield from _topics(flow, "target", "READ", "look at the log's end before going on (Fetch, DescribeProducers)")
    yield from _topics(flow, "target", "CREATE", "create topics that appear at the source")
    if flow.grow:
        yield from _topics(flow, "target", "ALTER", "add partitions that were added at the source")
    yield from _topics(flow, "target", "DESCRIBE_CONFIGS", "know the largest batch that the topic takes")
    yield _brokers(flow.target, "know when brokers forget producers (producer.id.expiration.ms)")
    for name, why in (
        (FLOWS_TOPIC, "follow the desired state"),
        (LEDGER_TOPIC, "know where to go on"),
        (STATUS_TOPIC, "share the load"),
    ):
        yield _topic(flow.target, name, "READ", why)
    for name, why in (
        (FLOWS_TOPIC, "register producer ids, write down what became of orders"),
        (LEDGER_TOPIC, "write offsets down"),
        (STATUS_TOPIC, "report"),
    ):
        yield _topic(flow.target, name, "WRITE", why)
    yield RequiredRight(
        flow.target, "GROUP", f"watershed.{plan.topology}", "LITERAL", "READ", "share partitions among the workers"
    )
    if flow.transform is not None:
        group = f"watershed.{plan.topology}.transform"
        yield RequiredRight(flow.target, "GROUP", group, "LITERAL", "READ", "share partitions that are transformed")
    external = flow.placement == "external"
    why = "hold the lease on the fleet (`topology fleet supervise`)" + (" (optional)" if external else "")
    lease = f"watershed-supervisor.{plan.topology}.{flow.target}"
    yield RequiredRight(flow.target, "GROUP", lease, "LITERAL", "READ", why, optional=external)
    yield from _metadata(flow, ("continuous",))
    yield from _groups(plan, flow, ("continuous",))
    yield from _compatibility(plan, flow)
    yield from _start(flow)
    if flow.delivery == "transactions":
        yield RequiredRight(
            flow.target, "TRANSACTIONAL_ID", f"watershed.{flow.id}.", "PREFIXED", "WRITE", "copy in transactions"
        )
    if flow.rejected == "quarantine":
        for operation in ("CREATE", "WRITE"):
            yield _topic(flow.target, _QUARANTINE, operation, "keep records that the target refuses")
    if flow.offsets == "aligned":
        yield from _topics(flow, "target", "ALTER_CONFIGS", "set what filling needs, and set it back")
        yield from _aligning(flow)


def _compatibility(plan: Plan, flow: PlanFlow) -> Iterator[RequiredRight]:
    """What tools that were made for MirrorMaker 2 read is written by the worker (decision 0124)."""
    said = flow.compatibility
    if said is None:
        return
    for side, name in said.list_written_topics():
        for operation in ("CREATE", "WRITE"):
            why = "write what MirrorMaker's clients read (`compatibility`)"
            yield _topic(flow.source if side == "source" else flow.target, name, operation, why)
    if said.heartbeats:
        yield _topic(flow.source, HEARTBEATS_TOPIC, "READ", "mirror heartbeats")
        yield _topic(flow.source, HEARTBEATS_TOPIC, "DESCRIBE_CONFIGS", "see whether the topic is an application's")
    if said.checkpoints and flow.sync.groups.mode != "continuous":
        yield from _groups(plan, flow, (flow.sync.groups.mode,), reading=True)
    if said.source_group is not None:
        why = "commit how far the flow has copied (`compatibility.source_group`)"
        yield RequiredRight(flow.source, "GROUP", said.source_group, "LITERAL", "READ", why)


def _start(flow: PlanFlow) -> Iterator[RequiredRight]:
    if isinstance(flow.start, CopyBound) and flow.start.group is not None:
        why = "know where the copy begins (`delivery.start`)"
        yield RequiredRight(flow.source, "GROUP", flow.start.group, "LITERAL", "DESCRIBE", why)


def _apply(plan: Plan, flow: PlanFlow) -> Iterator[RequiredRight]:
    yield from _topics(flow, "source", "DESCRIBE", "find the topics")
    yield from _topics(flow, "source", "DESCRIBE_CONFIGS", "take topic configs over")
    yield from _topics(flow, "target", "DESCRIBE", "see which topics exist")
    yield from _topics(flow, "target", "DESCRIBE_CONFIGS", "see how they are configured")
    yield from _topics(flow, "target", "CREATE", "create missing topics")
    yield _brokers(flow.target, "know the largest batch that brokers take (message.max.bytes)")
    yield _topic(flow.target, LEDGER_TOPIC, "READ", "know what was copied under a name before")
    if flow.grow:
        yield from _topics(flow, "target", "ALTER", "add partitions")
    for name in (FLOWS_TOPIC, LEDGER_TOPIC, STATUS_TOPIC, JOURNAL_TOPIC):
        yield _topic(flow.target, name, "CREATE", "create Watershed's own topics")
        yield _topic(flow.target, name, "DESCRIBE_CONFIGS", "check how they are cleaned")
        yield _topic(flow.target, name, "DESCRIBE", "see whether they are there")
    yield _topic(flow.target, FLOWS_TOPIC, "READ", "see which flows there are")
    yield _topic(flow.source, FLOWS_TOPIC, "READ", "see which flows of other files write to the source")
    yield _topic(flow.target, FLOWS_TOPIC, "WRITE", "write the desired state")
    yield from _fleet(plan, flow)
    if plan.migration is not None and plan.migration.flow == flow.id:
        yield _topic(flow.target, JOURNAL_TOPIC, "READ", "see which applications have moved")
    yield from _metadata(flow, ("once", "continuous"))
    yield from _groups(plan, flow, ("once", "continuous"))
    if flow.offsets == "aligned":
        yield from _aligning(flow)


def _fleet(plan: Plan, flow: PlanFlow) -> Iterator[RequiredRight]:
    """What orders to a fleet and its status ask; without it brokers answer as if nobody were there."""
    for name, why in (
        (f"watershed.{plan.topology}", "see which workers a fleet has"),
        (f"watershed-supervisor.{plan.topology}.{flow.target}", "see who supervises a fleet"),
    ):
        yield RequiredRight(flow.target, "GROUP", name, "LITERAL", "DESCRIBE", why)
    if flow.transform is not None:
        name, why = f"watershed.{plan.topology}.transform", "see which workers change records"
        yield RequiredRight(flow.target, "GROUP", name, "LITERAL", "DESCRIBE", why)
    yield _topic(flow.target, STATUS_TOPIC, "READ", "see what workers report, and whether they obey orders")


def _aligning(flow: PlanFlow) -> Iterator[RequiredRight]:
    """What the probe needs, and filling gaps, beside what the role `align` does."""
    for operation in ("CREATE", "READ", "WRITE"):
        yield _topic(flow.target, PROBE_TOPIC, operation, "try once whether logs can be filled (`offsets: aligned`)")
    name = f"{FILL_ID_PREFIX}{flow.id}|"
    yield RequiredRight(flow.target, "TRANSACTIONAL_ID", name, "PREFIXED", "WRITE", "fill logs and gaps exactly")
    why = "fill gaps in bulk; without it each offset takes a transaction of its own (optional)"
    yield RequiredRight(flow.target, "CLUSTER", CLUSTER_RESOURCE_NAME, "LITERAL", "ALTER", why, optional=True)


def _groups(
    plan: Plan, flow: PlanFlow, modes: tuple[SyncMode, ...], *, reading: bool = False
) -> Iterator[RequiredRight]:
    """What following positions of groups needs, if the mode is one of `modes`; reading: without committing any.

    OffsetFetch wants DESCRIBE on the group and its topics, OffsetCommit and AlterShareGroupOffsets READ on both. In
    transactions positions are committed with WRITE on the transactional id, too (decision 0092).
    """
    if flow.sync.groups.mode not in modes:
        return
    yield from _topics(flow, "source", "DESCRIBE", "see log ends")
    yield _pending_positions(flow)
    yield from _topics(flow, "target", "DESCRIBE" if reading else "READ", "commit positions of groups")
    yield _topic(flow.source, FLOWS_TOPIC, "READ", "know whether a flow comes back from the target")
    yield _topic(flow.target, LEDGER_TOPIC, "READ", "translate positions")
    if any(each.source == flow.target and each.target == flow.source for each in plan.flows):
        yield _topic(flow.source, LEDGER_TOPIC, "READ", "translate positions in topics that came from the target")
    if not reading:
        yield _topic(flow.target, FLOWS_TOPIC, "WRITE", "write down what was carried, and what became of orders")
        sync_id, why = f"watershed.{flow.id}.groups", "commit positions of groups only where nobody else has"
        yield RequiredRight(flow.target, "TRANSACTIONAL_ID", sync_id, "LITERAL", "WRITE", why)
    for selector in flow.sync.groups.names.include or (Selector("glob", "*"),):
        literal, beginning = selector.kind == "literal", selector.prefix
        for cluster, operation, why in (
            (flow.source, "DESCRIBE", "read positions of groups"),
            (flow.target, "DESCRIBE" if reading else "READ", "see and commit positions of groups"),
        ):
            if literal:
                name = flow.sync.groups.target_group(selector.text) if cluster == flow.target else selector.text
                yield RequiredRight(cluster, "GROUP", name, "LITERAL", operation, why)
            elif beginning:
                yield RequiredRight(
                    cluster, "GROUP", beginning, "PREFIXED", operation, why, selector.text != beginning + "*"
                )
            else:
                yield RequiredRight(cluster, "GROUP", "*", "LITERAL", operation, why, selector.text != "*")
    for _, renamed in flow.sync.groups.rename:
        yield RequiredRight(
            flow.target, "GROUP", renamed, "LITERAL", "DESCRIBE" if reading else "READ", "commit for renamed groups"
        )


def _pending_positions(flow: PlanFlow) -> RequiredRight:
    """Optional, because a plan does not know the release of a cluster; `find_missing_rights` does (decision 0084)."""
    why = "tell positions in open transactions, where brokers are older than Kafka 2.5 (optional)"
    return RequiredRight(flow.source, "TOPIC", OFFSETS_TOPIC, "LITERAL", "DESCRIBE", why, optional=True)


def _metadata(flow: PlanFlow, modes: tuple[SyncMode, ...], *, reading: bool = False) -> Iterator[RequiredRight]:
    """What carrying configs, access rights, quotas and users over needs, for those whose mode is one of `modes`;
    reading: what comparing them needs. Without `continuous`, configs are only given to new topics."""
    if flow.sync_configs == "continuous":
        for side in ("source", "target"):
            yield from _topics(flow, side, "DESCRIBE_CONFIGS", "compare topic configs")
        if not reading:
            yield from _topics(flow, "target", "ALTER_CONFIGS", "keep topic configs equal")
        if flow.offsets == "aligned":
            yield _topic(flow.target, STATUS_TOPIC, "READ", "know which topics are being aligned, whose configs wait")
    if flow.sync.acls.mode in modes:
        yield _cluster(flow.source, "DESCRIBE", "read the ACLs to carry over")
        yield _cluster(flow.target, "DESCRIBE", "see which ACLs are there")
        if not reading:
            yield _cluster(flow.target, "ALTER", "create ACLs")
    if flow.sync.quotas.mode in modes:
        yield _cluster(flow.source, "DESCRIBE_CONFIGS", "read the client quotas to carry over")
        yield _cluster(flow.target, "DESCRIBE_CONFIGS", "see which client quotas are there")
        if not reading:
            yield _cluster(flow.target, "ALTER_CONFIGS", "set client quotas")
    yield from _users_and_protection(flow, modes, reading=reading)


def _protection(flow: PlanFlow, *, reading: bool) -> Iterator[RequiredRight]:
    yield _cluster(flow.target, "DESCRIBE", "see who may write to protected topics")
    yield _cluster(flow.target, "DESCRIBE_CONFIGS", "see if whoever has no right may write")
    if not reading:
        yield _cluster(flow.target, "ALTER", "deny WRITE on protected topics, and take that away again")


def _users_and_protection(flow: PlanFlow, modes: tuple[SyncMode, ...], *, reading: bool) -> Iterator[RequiredRight]:
    if flow.sync.users.mode in modes:
        yield from _users(flow, reading=reading)
    if flow.protect:
        yield from _protection(flow, reading=reading)


def _users(flow: PlanFlow, *, reading: bool) -> Iterator[RequiredRight]:
    yield _cluster(flow.source, "DESCRIBE", "read which SCRAM users there are")
    yield _cluster(flow.target, "DESCRIBE", "see which SCRAM users are there")
    if not reading and flow.sync.users.prune.mode != "never":
        yield _cluster(flow.target, "ALTER", "remove SCRAM users that were deleted at the source")


def _observe(plan: Plan, flow: PlanFlow) -> Iterator[RequiredRight]:
    for side in ("source", "target"):
        yield from _topics(flow, side, "DESCRIBE", "see log ends")
    for name in (FLOWS_TOPIC, STATUS_TOPIC, LEDGER_TOPIC, JOURNAL_TOPIC):
        yield _topic(flow.target, name, "READ", "read what is wanted, reported, copied and decided")
    yield from _fleet(plan, flow)
    yield from _metadata(flow, ("once", "continuous"), reading=True)
    yield from _groups(plan, flow, ("once", "continuous"), reading=True)
    if flow.rejected == "quarantine":
        yield _topic(flow.target, _QUARANTINE, "READ", "show the records that the target refused")
    if flow.compression is not None:
        why = "read a few batches to forecast what compression saves (optional)"
        yield from (replace(right, optional=True) for right in _topics(flow, "source", "READ", why))


def _verify(flow: PlanFlow) -> Iterator[RequiredRight]:
    for side in ("source", "target"):
        yield from _topics(flow, side, "READ", "read records for the proof")
        yield from _topics(flow, side, "DESCRIBE_CONFIGS", "compare topic configs")
        yield _brokers(flow.source if side == "source" else flow.target, "know the brokers' own defaults")
    for name in (FLOWS_TOPIC, LEDGER_TOPIC):
        yield _topic(flow.target, name, "READ", "know what was copied where")
    if flow.guard != "none" or flow.forward == "local":
        yield _topic(flow.source, FLOWS_TOPIC, "READ", "know what other flows brought to the source")
        yield _topic(flow.source, LEDGER_TOPIC, "READ", "believe other flows' producer ids only where they wrote")
    if flow.verify.pause_at_lag_ms is not None:
        yield _topic(flow.target, STATUS_TOPIC, "READ", "stop reading while the flow lags")
    if flow.rejected == "quarantine":
        yield _topic(flow.target, _QUARANTINE, "READ", "tell records that the target refused from lost ones")


def _migrate(plan: Plan, flow: PlanFlow) -> Iterator[RequiredRight]:
    assert plan.migration is not None
    yield from _verify(flow)
    groups = sorted({group for wave in plan.migration.waves for group in wave.consumers})
    if groups:
        yield _pending_positions(flow)
    for group in groups:
        yield RequiredRight(
            flow.source, "GROUP", group, "LITERAL", "READ", "read its positions, and set them on rollback"
        )
        there = flow.sync.groups.target_group(group)
        for alias, name in ((flow.source, group), (flow.target, there)):
            why = "compare what brokers hold it to, where it is no classic group (optional)"
            yield RequiredRight(alias, "GROUP", name, "LITERAL", "DESCRIBE_CONFIGS", why, optional=True)
        yield RequiredRight(flow.target, "GROUP", there, "LITERAL", "READ", "commit translated positions")
        yield RequiredRight(flow.target, "GROUP", there, "LITERAL", "DELETE", "take them back on rollback")
    yield _topic(flow.target, FLOWS_TOPIC, "WRITE", "pause and resume the flow")
    yield _topic(flow.target, STATUS_TOPIC, "READ", "know the lag")
    for operation in ("READ", "WRITE"):
        yield _topic(flow.target, JOURNAL_TOPIC, operation, "keep the journal")
    yield from _fence(plan.migration, flow)
    yield from _held_back(flow)
    yield from _failover(flow)
    if any(wave.rollback is not None and wave.rollback.reverse for wave in plan.migration.waves):
        yield _topic(flow.source, FLOWS_TOPIC, "WRITE", "start the flow that carries back what was written since")
        yield _topic(flow.source, STATUS_TOPIC, "READ", "see how it does")


def _failover(flow: PlanFlow) -> Iterator[RequiredRight]:
    """Not needed to migrate; a failover refuses to begin without the first."""
    if flow.delivery == "transactions":
        name = f"watershed.{flow.id}."
        why = "keep workers out in a failover (optional)"
        yield RequiredRight(flow.target, "TRANSACTIONAL_ID", name, "PREFIXED", "WRITE", why, optional=True)
    else:
        why = "keep workers out in a failover, by markers (optional)"
        yield RequiredRight(flow.target, "CLUSTER", CLUSTER_RESOURCE_NAME, "LITERAL", "ALTER", why, optional=True)


def _held_back(flow: PlanFlow) -> Iterator[RequiredRight]:
    """A migration refuses to begin without them, where something is held back."""
    if flow.protect:
        yield from _protection(flow, reading=False)
    if flow.sync.acls.holds_back:
        yield _cluster(flow.source, "DESCRIBE", "see which rights to write wait for the applications")
        yield _cluster(flow.target, "DESCRIBE", "see which ACLs are there")
        yield _cluster(flow.target, "ALTER", "give the rights that were held back, and take them away on rollback")


def _fence(migration: PlanMigration, flow: PlanFlow) -> Iterator[RequiredRight]:
    """At the source; a rollback fences the target the same way."""
    yield _topic(flow.source, FLOWS_TOPIC, "READ", "tell a straggler from a flow")
    why = "name a straggler by its transactional id; without it by its producer id (optional)"
    yield RequiredRight(flow.source, "TRANSACTIONAL_ID", "*", "LITERAL", "DESCRIBE", why, optional=True)
    kinds = {wave.fence.kind for wave in migration.waves}
    back = any(wave.rollback is not None and wave.rollback.reverse for wave in migration.waves)
    for cluster in (flow.source, flow.target) if back else (flow.source,):
        if "acl" in kinds:
            yield _cluster(cluster, "DESCRIBE", "see which denials stand there already (acl fence)")
            yield _cluster(cluster, "ALTER", "deny producers WRITE, and take that away again (acl fence)")
        if "quota" in kinds:
            yield _cluster(cluster, "DESCRIBE_CONFIGS", "see which client quotas stand there already (quota fence)")
            yield _cluster(cluster, "ALTER_CONFIGS", "slow producers, and set that back (quota fence)")


def _topics(flow: PlanFlow, side: str, operation: str, why: str) -> Iterator[RequiredRight]:
    """A right on the flow's topics at one side, as narrow as ACLs can say it."""
    cluster = flow.source if side == "source" else flow.target
    for selector in flow.topics.include:
        if selector.kind == "literal":
            name = selector.text if side == "source" else flow.naming.apply(selector.text)
            yield RequiredRight(cluster, "TOPIC", name, "LITERAL", operation, why)
            continue
        beginning = selector.prefix
        exact = selector.kind == "glob" and selector.text == beginning + "*"
        if side == "target":
            exact = exact and flow.naming.policy != "map" and not flow.naming.after
            beginning = "" if flow.naming.policy == "map" else flow.naming.before + beginning
        if beginning:
            yield RequiredRight(cluster, "TOPIC", beginning, "PREFIXED", operation, why, wider=not exact)
        else:
            yield RequiredRight(cluster, "TOPIC", "*", "LITERAL", operation, why, wider=selector.text != "*")


def _brokers(cluster: str, why: str) -> RequiredRight:
    return _cluster(cluster, "DESCRIBE_CONFIGS", why)


def _cluster(cluster: str, operation: str, why: str) -> RequiredRight:
    return RequiredRight(cluster, "CLUSTER", CLUSTER_RESOURCE_NAME, "LITERAL", operation, why)


def _topic(cluster: str, name: str, operation: str, why: str) -> RequiredRight:
    return RequiredRight(cluster, "TOPIC", name, "LITERAL", operation, why)
