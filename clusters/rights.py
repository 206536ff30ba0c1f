"""Which ACLs each role needs, and nothing more: derived from the plan, without asking a cluster.

Roles: `worker` copies; `apply` writes the desired state and creates topics; `observe` reads (status, offsets, trace,
plan, scan); `verify` reads both sides for the proof; `migrate` moves groups. Operations and what each request needs:
Kafka's documentation, "Operations and resources on protocols"; what implies what: READ, WRITE, DELETE and ALTER imply
DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS (AclAuthorizer). Tried on a broker with an authorizer by the tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from clusters.control import FLOWS, JOURNAL, LEDGER, STATUS
from topology.plan import Plan, PlanFlow

Role = Literal["apply", "worker", "observe", "verify", "migrate"]
ROLES: tuple[Role, ...] = get_args(Role)
Resource = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]
CLUSTER_NAME = "kafka-cluster"  # org.apache.kafka.common.resource.Resource.CLUSTER_NAME
QUARANTINE = "watershed.quarantine"
_IMPLIED_BY = {"DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"), "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",)}
_RESOURCE_OPTION = {
    "TOPIC": "--topic",
    "GROUP": "--group",
    "CLUSTER": "--cluster",
    "TRANSACTIONAL_ID": "--transactional-id",
}


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One ALLOW. `pattern` LITERAL or PREFIXED, as Kafka has them (KIP-290); `why` for people.

    wider: the file's selection cannot be said as an ACL (a glob in the middle, a regex), so the right covers more.
    """

    cluster: str
    resource: Resource
    name: str
    pattern: Literal["LITERAL", "PREFIXED"]
    operation: str
    why: str
    wider: bool = False

    def command(self, principal: str, bootstrap: str) -> str:
        """The `kafka-acls` call that gives it."""
        name = "" if self.resource == "CLUSTER" else f" '{self.name}'"
        pattern = " --resource-pattern-type prefixed" if self.pattern == "PREFIXED" else ""
        return (
            f"kafka-acls --bootstrap-server {bootstrap} --command-config admin.properties --add "
            f"--allow-principal '{principal}' --operation {self.operation} "
            f"{_RESOURCE_OPTION[self.resource]}{name}{pattern}"
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
    for right in sorted(found):
        by_thing.setdefault((right.cluster, right.resource, right.name, right.pattern, right.operation), right)
    for thing, right in by_thing.items():
        if not any((*thing[:-1], stronger) in by_thing for stronger in _IMPLIED_BY.get(right.operation, ())):
            yield right


def _of_flow(plan: Plan, flow: PlanFlow, role: Role) -> Iterator[Right]:
    if role == "worker":
        yield from _worker(plan, flow)
    elif role == "apply":
        yield from _apply(flow)
    elif role == "observe":
        yield from _observe(flow)
    elif role == "verify":
        yield from _verify(flow)
    elif plan.migration is not None and plan.migration.flow == flow.id:
        yield from _migrate(plan, flow)


def _worker(plan: Plan, flow: PlanFlow) -> Iterator[Right]:
    yield from _topics(flow, "source", "READ", "fetch records")
    yield from _topics(flow, "source", "DESCRIBE_CONFIGS", "take topic configs over to new topics")
    if flow.guard == "producer_id":
        yield _topic(flow.source, FLOWS, "READ", "know which batches a flow brought (loop guard)")
    yield from _topics(flow, "target", "WRITE", "append records")
    yield from _topics(flow, "target", "READ", "look at the log's end before going on (Fetch, DescribeProducers)")
    yield from _topics(flow, "target", "CREATE", "create topics that appear at the source")
    if flow.grow:
        yield from _topics(flow, "target", "ALTER", "add partitions that were added at the source")
    yield from _topics(flow, "target", "DESCRIBE_CONFIGS", "know the largest batch that the topic takes")
    yield _brokers(flow.target, "know when brokers forget producers (producer.id.expiration.ms)")
    for name, why in ((FLOWS, "follow the desired state"), (LEDGER, "know where to go on"), (STATUS, "share the load")):
        yield _topic(flow.target, name, "READ", why)
    for name, why in ((FLOWS, "register producer ids"), (LEDGER, "write offsets down"), (STATUS, "report")):
        yield _topic(flow.target, name, "WRITE", why)
    yield Right(
        flow.target, "GROUP", f"watershed.{plan.topology}", "LITERAL", "READ", "share partitions among the workers"
    )
    if flow.delivery == "transactions":
        yield Right(
            flow.target, "TRANSACTIONAL_ID", f"watershed.{flow.id}.", "PREFIXED", "WRITE", "copy in transactions"
        )
    if flow.rejected == "quarantine":
        for operation in ("CREATE", "WRITE"):
            yield _topic(flow.target, QUARANTINE, operation, "keep records that the target refuses")
    why = "journal a gap that is accepted by the file, or that grew as far as an order allows"
    yield _topic(flow.target, JOURNAL, "WRITE", why)


def _apply(flow: PlanFlow) -> Iterator[Right]:
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


def _observe(flow: PlanFlow) -> Iterator[Right]:
    for side in ("source", "target"):
        yield from _topics(flow, side, "DESCRIBE", "see log ends")
    for name in (FLOWS, STATUS, LEDGER, JOURNAL):
        yield _topic(flow.target, name, "READ", "read what is wanted, reported, copied and decided")


def _verify(flow: PlanFlow) -> Iterator[Right]:
    for side in ("source", "target"):
        yield from _topics(flow, side, "READ", "read records for the proof")
        yield from _topics(flow, side, "DESCRIBE_CONFIGS", "compare topic configs")
        yield _brokers(flow.source if side == "source" else flow.target, "know the brokers' own defaults")
    for name in (FLOWS, LEDGER):
        yield _topic(flow.target, name, "READ", "know what was copied where")


def _migrate(plan: Plan, flow: PlanFlow) -> Iterator[Right]:
    assert plan.migration is not None
    yield from _verify(flow)
    groups = sorted({group for wave in plan.migration.waves for group in wave.consumers})
    for group in groups:
        yield Right(flow.source, "GROUP", group, "LITERAL", "READ", "read its positions, and set them on rollback")
        yield Right(flow.target, "GROUP", group, "LITERAL", "READ", "commit translated positions")
    yield _topic(flow.target, FLOWS, "WRITE", "pause and resume the flow")
    yield _topic(flow.target, STATUS, "READ", "know the lag")
    for operation in ("READ", "WRITE"):
        yield _topic(flow.target, JOURNAL, operation, "keep the journal")


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
    return Right(cluster, "CLUSTER", CLUSTER_NAME, "LITERAL", "DESCRIBE_CONFIGS", why)


def _topic(cluster: str, name: str, operation: str, why: str) -> Right:
    return Right(cluster, "TOPIC", name, "LITERAL", operation, why)
