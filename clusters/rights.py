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
from dataclasses import dataclass
from typing import Literal, get_args

from clusters.control import FLOWS, JOURNAL, LEDGER, STATUS
from topology.command import command
from topology.plan import Migration, Plan, PlanFlow
from topology.selectors import Selector
from topology.sync import Mode

Role = Literal["apply", "worker", "observe", "verify", "migrate", "align"]
ROLES: tuple[Role, ...] = get_args(Role)
_Resource = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]
CLUSTER_NAME = "kafka-cluster"  # org.apache.kafka.common.resource.Resource.CLUSTER_NAME
_QUARANTINE = "watershed.quarantine"
PROBE = "watershed.probe"
FILLING = "watershed-fill|"  # what transactional ids begin with by which logs are filled (replicator.aligned.advance)
_IMPLIED_BY = {"DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"), "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",)}
RESOURCE_OPTION = {
    "TOPIC": "--topic",
    "GROUP": "--group",
    "CLUSTER": "--cluster",
    "TRANSACTIONAL_ID": "--transactional-id",
}


@dataclass(frozen=True, slots=True, order=True)
class Right:
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
        return command(
            *("kafka-acls", "--bootstrap-server", bootstrap, "--command-config", "admin.properties", "--add"),
            *("--allow-principal", principal, "--operation", self.operation, RESOURCE_OPTION[self.resource]),
            *([] if self.resource == "CLUSTER" else [self.name]),
            *(["--resource-pattern-type", "prefixed"] if self.pattern == "PREFIXED" else []),
        )


def rights(plan: Plan, role: Role, cluster: str | None = None) -> tuple[Right, ...]:
    """What the role needs on every cluster of the plan (or one), sorted, each once. Raises NotInPlan."""
    if cluster is not None:
        plan.cluster(cluster)
    needed = {right for flow in plan.flows for right in _of_flow(plan, flow, role)}
    kept = {right for right in needed if cluster is None or right.cluster == cluster}
    return tuple(sorted(_once(kept)))


def _once(found: Iterable[Right]) -> Iterator[Right]:
    """One right for each thing, although several flows may need it; none that another one implies."""
    by_thing: dict[tuple[str, ...], Right] = {}
    for right in sorted(found, key=lambda right: (right.optional, right)):
        by_thing.setdefault((right.cluster, right.resource, right.name, right.pattern, right.operation), right)
    for thing, right in by_thing.items():
        stronger = [by_thing.get((*thing[:-1], each)) for each in _IMPLIED_BY.get(right.operation, ())]
        if not any(each is not None and (right.optional or not each.optional) for each in stronger):
            yield right


def _of_flow(plan: Plan, flow: PlanFlow, role: Role) -> Iterator[Right]:
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
            yield _topic(flow.target, PROBE, "DELETE", "try once whether records can be deleted (`offsets: aligned`)")
    elif plan.migration is not None and plan.migration.flow == flow.id:
        yield from _migrate(plan, flow)


def _worker(plan: Plan, flow: PlanFlow) -> Iterator[Right]:
    yield from _topics(flow, "source", "READ", "fetch records")
    yield from _topics(flow, "source", "DESCRIBE_CONFIGS", "take topic configs over to new topics")
    if flow.guard == "producer_id":
        yield _topic(flow.source, FLOWS, "READ", "know which batches a flow brought (loop guard)")
        yield _topic(flow.source, LEDGER, "READ", "believe another flow's producer id only where it wrote (loop guard)")
    yield from _topics(flow, "target", "WRITE", "append records")
    yield from _topics(flow, "target", "READ", "look at the log's end before going on (Fetch, DescribeProducers)")
    yield from _topics(flow, "target", "CREATE", "create topics that appear at the source")
    if flow.grow:
        yield from _topics(flow, "target", "ALTER", "add partitions that were added at the source")
    yield from _topics(flow, "target", "DESCRIBE_CONFIGS", "know the largest batch that the topic takes")
    yield _brokers(flow.target, "know when brokers forget producers (producer.id.expiration.ms)")
    for name, why in ((FLOWS, "follow the desired state"), (LEDGER, "know where to go on"), (STATUS, "share the load")):
        yield _topic(flow.target, name, "READ", why)
    for name, why in (
        (FLOWS, "register producer ids, write down what became of orders"),
        (LEDGER, "write offsets down"),
        (STATUS, "report"),
    ):
        yield _topic(flow.target, name, "WRITE", why)
    yield Right(
        flow.target, "GROUP", f"watershed.{plan.topology}", "LITERAL", "READ", "share partitions among the workers"
    )
    yield from _metadata(flow, ("continuous",))
    yield from _groups(plan, flow, ("continuous",))
    if flow.delivery == "transactions":
        yield Right(
            flow.target, "TRANSACTIONAL_ID", f"watershed.{flow.id}.", "PREFIXED", "WRITE", "copy in transactions"
        )
    if flow.rejected == "quarantine":
        for operation in ("CREATE", "WRITE"):
            yield _topic(flow.target, _QUARANTINE, operation, "keep records that the target refuses")
    if flow.offsets == "aligned":
        yield from _topics(flow, "target", "ALTER_CONFIGS", "set what filling needs, and set it back")
        yield from _aligning(flow)


def _apply(plan: Plan, flow: PlanFlow) -> Iterator[Right]:
    yield from _topics(flow, "source", "DESCRIBE", "find the topics")
    yield from _topics(flow, "source", "DESCRIBE_CONFIGS", "take topic configs over")
    yield from _topics(flow, "target", "DESCRIBE", "see which topics exist")
    yield from _topics(flow, "target", "DESCRIBE_CONFIGS", "see how they are configured")
    yield from _topics(flow, "target", "CREATE", "create missing topics")
    yield _brokers(flow.target, "know the largest batch that brokers take (message.max.bytes)")
    yield _topic(flow.target, LEDGER, "READ", "know what was copied under a name before")
    if flow.grow:
        yield from _topics(flow, "target", "ALTER", "add partitions")
    for name in (FLOWS, LEDGER, STATUS, JOURNAL):
        yield _topic(flow.target, name, "CREATE", "create Watershed's own topics")
        yield _topic(flow.target, name, "DESCRIBE_CONFIGS", "check how they are cleaned")
        yield _topic(flow.target, name, "DESCRIBE", "see whether they are there")
    yield _topic(flow.target, FLOWS, "READ", "see which flows there are")
    yield _topic(flow.source, FLOWS, "READ", "see which flows of other files write to the source")
    yield _topic(flow.target, FLOWS, "WRITE", "write the desired state")
    if plan.migration is not None and plan.migration.flow == flow.id:
        yield _topic(flow.target, JOURNAL, "READ", "see which applications have moved")
    yield from _metadata(flow, ("once", "continuous"))
    yield from _groups(plan, flow, ("once", "continuous"))
    if flow.offsets == "aligned":
        yield from _aligning(flow)


def _aligning(flow: PlanFlow) -> Iterator[Right]:
    """What the probe needs, and filling gaps, beside what the role `align` does."""
    for operation in ("CREATE", "READ", "WRITE"):
        yield _topic(flow.target, PROBE, operation, "try once whether logs can be filled (`offsets: aligned`)")
    name = f"{FILLING}{flow.id}|"
    yield Right(flow.target, "TRANSACTIONAL_ID", name, "PREFIXED", "WRITE", "fill logs and gaps exactly")
    why = "fill gaps in bulk; without it each offset takes a transaction of its own (optional)"
    yield Right(flow.target, "CLUSTER", CLUSTER_NAME, "LITERAL", "ALTER", why, optional=True)


def _groups(plan: Plan, flow: PlanFlow, modes: tuple[Mode, ...], *, reading: bool = False) -> Iterator[Right]:
    """What following positions of groups needs, if the mode is one of `modes`; reading: without committing any.

    OffsetFetch wants DESCRIBE on the group and its topics, OffsetCommit and AlterShareGroupOffsets READ on both.
    """
    if flow.sync.groups.mode not in modes:
        return
    yield from _topics(flow, "source", "DESCRIBE", "see log ends")
    yield from _topics(flow, "target", "DESCRIBE" if reading else "READ", "commit positions of groups")
    yield _topic(flow.source, FLOWS, "READ", "know whether a flow comes back from the target")
    yield _topic(flow.target, LEDGER, "READ", "translate positions")
    if any(each.source == flow.target and each.target == flow.source for each in plan.flows):
        yield _topic(flow.source, LEDGER, "READ", "translate positions in topics that came from the target")
    if not reading:
        yield _topic(flow.target, FLOWS, "WRITE", "write down what was carried, and what became of orders")
    for selector in flow.sync.groups.names.include or (Selector("glob", "*"),):
        literal, beginning = selector.kind == "literal", selector.prefix
        for cluster, operation, why in (
            (flow.source, "DESCRIBE", "read positions of groups"),
            (flow.target, "DESCRIBE" if reading else "READ", "see and commit positions of groups"),
        ):
            if literal:
                name = flow.sync.groups.target_group(selector.text) if cluster == flow.target else selector.text
                yield Right(cluster, "GROUP", name, "LITERAL", operation, why)
            elif beginning:
                yield Right(cluster, "GROUP", beginning, "PREFIXED", operation, why, selector.text != beginning + "*")
            else:
                yield Right(cluster, "GROUP", "*", "LITERAL", operation, why, selector.text != "*")
    for _, renamed in flow.sync.groups.rename:
        yield Right(
            flow.target, "GROUP", renamed, "LITERAL", "DESCRIBE" if reading else "READ", "commit for renamed groups"
        )


def _metadata(flow: PlanFlow, modes: tuple[Mode, ...], *, reading: bool = False) -> Iterator[Right]:
    """What carrying configs, access rights, quotas and users over needs, for those whose mode is one of `modes`;
    reading: what comparing them needs. Without `continuous`, configs are only given to new topics."""
    if flow.sync_configs == "continuous":
        for side in ("source", "target"):
            yield from _topics(flow, side, "DESCRIBE_CONFIGS", "compare topic configs")
        if not reading:
            yield from _topics(flow, "target", "ALTER_CONFIGS", "keep topic configs equal")
        if flow.offsets == "aligned":
            yield _topic(flow.target, STATUS, "READ", "know which topics are being aligned, whose configs wait")
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
    if flow.sync.users.mode in modes:
        yield _cluster(flow.source, "DESCRIBE", "read which SCRAM users there are")
        yield _cluster(flow.target, "DESCRIBE", "see which SCRAM users are there")


def _observe(plan: Plan, flow: PlanFlow) -> Iterator[Right]:
    for side in ("source", "target"):
        yield from _topics(flow, side, "DESCRIBE", "see log ends")
    for name in (FLOWS, STATUS, LEDGER, JOURNAL):
        yield _topic(flow.target, name, "READ", "read what is wanted, reported, copied and decided")
    yield from _metadata(flow, ("once", "continuous"), reading=True)
    yield from _groups(plan, flow, ("once", "continuous"), reading=True)
    if flow.rejected == "quarantine":
        yield _topic(flow.target, _QUARANTINE, "READ", "show the records that the target refused")


def _verify(flow: PlanFlow) -> Iterator[Right]:
    for side in ("source", "target"):
        yield from _topics(flow, side, "READ", "read records for the proof")
        yield from _topics(flow, side, "DESCRIBE_CONFIGS", "compare topic configs")
        yield _brokers(flow.source if side == "source" else flow.target, "know the brokers' own defaults")
    for name in (FLOWS, LEDGER):
        yield _topic(flow.target, name, "READ", "know what was copied where")
    if flow.guard != "none" or flow.forward == "local":
        yield _topic(flow.source, FLOWS, "READ", "know what other flows brought to the source")
        yield _topic(flow.source, LEDGER, "READ", "believe other flows' producer ids only where they wrote")
    if flow.verify.pause_at_lag_ms is not None:
        yield _topic(flow.target, STATUS, "READ", "stop reading while the flow lags")
    if flow.rejected == "quarantine":
        yield _topic(flow.target, _QUARANTINE, "READ", "tell records that the target refused from lost ones")


def _migrate(plan: Plan, flow: PlanFlow) -> Iterator[Right]:
    assert plan.migration is not None
    yield from _verify(flow)
    groups = sorted({group for wave in plan.migration.waves for group in wave.consumers})
    for group in groups:
        yield Right(flow.source, "GROUP", group, "LITERAL", "READ", "read its positions, and set them on rollback")
        there = flow.sync.groups.target_group(group)
        for alias, name in ((flow.source, group), (flow.target, there)):
            why = "compare what brokers hold it to, where it is no classic group (optional)"
            yield Right(alias, "GROUP", name, "LITERAL", "DESCRIBE_CONFIGS", why, optional=True)
        yield Right(flow.target, "GROUP", there, "LITERAL", "READ", "commit translated positions")
        yield Right(flow.target, "GROUP", there, "LITERAL", "DELETE", "take them back on rollback")
    yield _topic(flow.target, FLOWS, "WRITE", "pause and resume the flow")
    yield _topic(flow.target, STATUS, "READ", "know the lag")
    for operation in ("READ", "WRITE"):
        yield _topic(flow.target, JOURNAL, operation, "keep the journal")
    yield from _fence(plan.migration, flow)
    yield from _held_back(flow)
    yield from _failover(flow)
    if any(wave.rollback is not None and wave.rollback.reverse for wave in plan.migration.waves):
        yield _topic(flow.source, FLOWS, "WRITE", "start the flow that carries back what was written since")
        yield _topic(flow.source, STATUS, "READ", "see how it does")


def _failover(flow: PlanFlow) -> Iterator[Right]:
    """Not needed to migrate; a failover refuses to begin without the first."""
    if flow.delivery == "transactions":
        name = f"watershed.{flow.id}."
        why = "keep workers out in a failover (optional)"
        yield Right(flow.target, "TRANSACTIONAL_ID", name, "PREFIXED", "WRITE", why, optional=True)
    else:
        why = "keep workers out in a failover, by markers (optional)"
        yield Right(flow.target, "CLUSTER", CLUSTER_NAME, "LITERAL", "ALTER", why, optional=True)


def _held_back(flow: PlanFlow) -> Iterator[Right]:
    """A migration refuses to begin without them, where something is held back."""
    if flow.sync.acls.holds_back:
        yield _cluster(flow.source, "DESCRIBE", "see which rights to write wait for the applications")
        yield _cluster(flow.target, "DESCRIBE", "see which ACLs are there")
        yield _cluster(flow.target, "ALTER", "give the rights that were held back, and take them away on rollback")


def _fence(migration: Migration, flow: PlanFlow) -> Iterator[Right]:
    """At the source; a rollback fences the target the same way."""
    yield _topic(flow.source, FLOWS, "READ", "tell a straggler from a flow")
    why = "name a straggler by its transactional id; without it by its producer id (optional)"
    yield Right(flow.source, "TRANSACTIONAL_ID", "*", "LITERAL", "DESCRIBE", why, optional=True)
    kinds = {wave.fence.kind for wave in migration.waves}
    back = any(wave.rollback is not None and wave.rollback.reverse for wave in migration.waves)
    for cluster in (flow.source, flow.target) if back else (flow.source,):
        if "acl" in kinds:
            yield _cluster(cluster, "DESCRIBE", "see which denials stand there already (acl fence)")
            yield _cluster(cluster, "ALTER", "deny producers WRITE, and take that away again (acl fence)")
        if "quota" in kinds:
            yield _cluster(cluster, "DESCRIBE_CONFIGS", "see which client quotas stand there already (quota fence)")
            yield _cluster(cluster, "ALTER_CONFIGS", "slow producers, and set that back (quota fence)")


def _topics(flow: PlanFlow, side: str, operation: str, why: str) -> Iterator[Right]:
    """A right on the flow's topics at one side, as narrow as ACLs can say it."""
    cluster = flow.source if side == "source" else flow.target
    for selector in flow.topics.include:
        if selector.kind == "literal":
            name = selector.text if side == "source" else flow.naming.apply(selector.text)
            yield Right(cluster, "TOPIC", name, "LITERAL", operation, why)
            continue
        beginning = selector.prefix
        exact = selector.kind == "glob" and selector.text == beginning + "*"
        if side == "target":
            exact = exact and flow.naming.policy != "map" and not flow.naming.after
            beginning = "" if flow.naming.policy == "map" else flow.naming.before + beginning
        if beginning:
            yield Right(cluster, "TOPIC", beginning, "PREFIXED", operation, why, wider=not exact)
        else:
            yield Right(cluster, "TOPIC", "*", "LITERAL", operation, why, wider=selector.text != "*")


def _brokers(cluster: str, why: str) -> Right:
    return _cluster(cluster, "DESCRIBE_CONFIGS", why)


def _cluster(cluster: str, operation: str, why: str) -> Right:
    return Right(cluster, "CLUSTER", CLUSTER_NAME, "LITERAL", operation, why)


def _topic(cluster: str, name: str, operation: str, why: str) -> Right:
    return Right(cluster, "TOPIC", name, "LITERAL", operation, why)
