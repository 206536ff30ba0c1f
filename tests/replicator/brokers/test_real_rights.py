"""Brokers with an authorizer, and the rights that `topology acls` names for a role.

What a role must not be able to do is tried, with these rights and no others. `apply` and a worker do their work with
exactly them, and each is found missing when it is; so with groups, and with `offsets: aligned` (by transactions where
ALTER on the cluster is not among them; another account deletes).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.replicator.guarded import PASSWORD, Guarded, as_user, await_rights, grant, guarded, revoke
from tests.replicator.real import assert_exact_copy, plan_for, producer, put, wait_copied, workers
from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import LogRange
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, LEDGER_TOPIC, ensure_control_topics
from watershed.clusters.errors import Unauthorised
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.missing_rights import find_missing_rights
from watershed.clusters.required_role_acls import (
    ACCOUNT_ROLES,
    OFFSETS_TOPIC,
    PROBE_TOPIC,
    AccountRole,
    RequiredRight,
    derive_required_rights,
)
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.apply import apply_plan
from watershed.replicator.copy.aligned.aligned_topic_choice import probe_cluster_once
from watershed.replicator.copy.aligned.cluster_probe import probe_alignment_support
from watershed.replicator.copy.aligned.empty_log_filler import fill_log
from watershed.replicator.copy.aligned.filling_configs import (
    CLEANUP_POLICY,
    apply_filling_configs,
    build_filling_configs,
    restore_topic_configs,
)
from watershed.replicator.copy.aligned.gap_filler import GapFiller
from watershed.replicator.copy.aligned.target_log import TargetLog, build_deleter_connect
from watershed.replicator.copy.transactions.slot_sender import read_transaction_version
from watershed.replicator.sync.checkpoints import CheckpointKind
from watershed.replicator.sync.copied_positions import CopiedPositionKind
from watershed.replicator.sync.groups import GroupKind
from watershed.replicator.sync.heartbeats import HeartbeatKind
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology import compile_path
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.plan import Plan, PlanCluster, PlanSecurity
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import NO_SYNC, GroupSync, NameFilter, SyncSettings

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka
START = 250_000
OTHER = "not-of-the-file"
REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
TIMEOUT_S = 30.0
FILE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: {name}, owner: team}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - {{source: onprem, target: cloud, topics: {{include: [{name}]}}, offsets: aligned}}
migration:
  flow: onprem-to-cloud
  strategy: consumers_first
  applications:
    billing: {{http: "http://127.0.0.1:9"}}
    checkout: {{http: "http://127.0.0.1:9"}}
  waves:
    - name: all
      topics: [{name}]
      consumers: [billing]
      producers: [checkout]
      gates:
        before: [{{lag: {{max_records: 0, hold: 5s}}}}, {{verify: {{level: L1}}}}]
        after: [{{stragglers: {{watch: 6m}}}}]
      rollback: {{none: a test}}
"""


@dataclass(frozen=True, slots=True)
class Account:
    """One role at one cluster."""

    settings: ConnectionSettings
    admin: AdminClient
    producer: Producer

    @classmethod
    def at(cls, settings: ConnectionSettings) -> Account:
        return cls(settings, AdminClient(settings.librdkafka()), Producer(settings.librdkafka()))


def _delete(account: Account, topic: str) -> None:
    account.admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def _write(account: Account, topic: str) -> None:
    told: list[KafkaError | None] = []
    account.producer.produce(topic, b"forged", on_delivery=lambda error, _message: told.append(error))
    account.producer.flush(TIMEOUT_S)
    assert told, "the broker did not answer"
    if told[0] is not None:
        raise KafkaException(told[0])


def _configure(account: Account, topic: str) -> None:
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    account.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def _empty(account: Account, topic: str) -> None:
    with closing(open_connection(account.settings)) as connection:
        error, _start = connection.delete_records(topic, 0, 0)
    if error:
        raise KafkaException(KafkaError(error))


def _positions(account: Account, group: str) -> None:
    account.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(TIMEOUT_S)


def _give(account: Account, topic: str) -> None:
    every = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:onlooker", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    account.admin.create_acls([every])[every].result(TIMEOUT_S)


def _create(account: Account, topic: str) -> None:
    account.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)


COPIED = ""  # stands for the topic of the file
# what is tried, at which cluster, on what; and by which roles it is part of the work
TRIED: Mapping[str, tuple[Callable[[Account, str], None], str, str, frozenset[AccountRole]]] = {
    "delete the copied topic": (_delete, "cloud", COPIED, frozenset({"align"})),
    "delete its records": (_empty, "cloud", COPIED, frozenset({"align"})),
    "write to it": (_write, "cloud", COPIED, frozenset({"worker"})),
    "change its settings": (_configure, "cloud", COPIED, frozenset({"worker"})),
    "delete the source topic": (_delete, "onprem", COPIED, frozenset()),
    "delete the source's records": (_empty, "onprem", COPIED, frozenset()),
    "write to the source": (_write, "onprem", COPIED, frozenset()),
    "change the source's settings": (_configure, "onprem", COPIED, frozenset()),
    "delete the journal": (_delete, "cloud", JOURNAL_TOPIC, frozenset()),
    "write to the journal": (_write, "cloud", JOURNAL_TOPIC, frozenset({"migrate"})),
    "write the desired state": (_write, "cloud", FLOWS_TOPIC, frozenset({"apply", "worker", "migrate"})),
    "write to the ledger": (_write, "cloud", LEDGER_TOPIC, frozenset({"worker"})),
    "delete another topic": (_delete, "cloud", OTHER, frozenset()),
    "write to another topic": (_write, "cloud", OTHER, frozenset()),
    "change another topic's settings": (_configure, "cloud", OTHER, frozenset()),
    "create another topic": (_create, "cloud", f"{OTHER}-yet", frozenset()),
    "see another group's positions": (_positions, "onprem", OTHER, frozenset()),
    "give itself rights": (_give, "cloud", OTHER, frozenset()),
}


@pytest.fixture
def plan(guarded: Guarded, topic_name: str, tmp_path) -> Plan:
    where = {alias: each.bootstrap[0] for alias, each in guarded.admin.items()}
    file = tmp_path / "file.yaml"
    file.write_text(FILE.format(name=topic_name, **where))
    for settings in guarded.admin.values():
        with Admin(settings) as admin:
            ensure_control_topics(admin)
            admin.create_topic(topic_name, 1, 1)
            if admin.topic(OTHER) is None:
                admin.create_topic(OTHER, 1, 1)
    return compile_path(file)


@pytest.mark.parametrize("role", ACCOUNT_ROLES)
def test_what_is_not_its_work_is_refused(guarded: Guarded, plan: Plan, topic_name: str, role: AccountRole) -> None:
    given = tuple(each for each in derive_required_rights(plan, role) if not each.optional)
    grant(guarded, role, given)
    await_rights(guarded, role, given)
    accounts = {alias: Account.at(settings) for alias, settings in guarded.settings(role).items()}
    not_refused: list[str] = []
    for what, (attempt, cluster, name, by) in TRIED.items():
        if role in by:
            continue
        try:
            attempt(accounts[cluster], name or topic_name)
        except KafkaException as error:
            if error.args[0].code() in REFUSED:
                continue
            not_refused.append(f"{what}: {error}")
        else:
            not_refused.append(what)
    assert not_refused == []
    for right in given:
        revoke(guarded, role, right)


def test_who_aligns_may_delete_and_nobody_else(guarded: Guarded, plan: Plan, topic_name: str) -> None:
    """What is refused above works with the right that is missing there."""
    deleting = {
        role
        for role in ACCOUNT_ROLES
        for each in derive_required_rights(plan, role)
        if (each.resource, each.operation) == ("TOPIC", "DELETE")
    }
    assert deleting == {"align"}
    given = derive_required_rights(plan, "align")
    grant(guarded, "align", given)
    await_rights(guarded, "align", given)
    account = Account.at(guarded.settings("align")["cloud"])
    _empty(account, topic_name)
    _delete(account, topic_name)
    for right in given:
        revoke(guarded, "align", right)


def await_missing(settings: ConnectionSettings, needed: list[RequiredRight], right: RequiredRight) -> str:
    """Until it is found missing among those that are needed; what is said of it."""
    deadline = time.monotonic() + 180
    while not (said := [str(each) for each in find_missing_rights(settings, needed) if each.right == right]):
        assert time.monotonic() < deadline, f"not found missing: {right}"
        time.sleep(0.05)
    return said[0]


def test_apply_and_worker_need_exactly_what_is_named(guarded, topic_name, tmp_path: Path, monkeypatch):
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    plan = plan_for(guarded.admin, topic_name, topic_name)
    grant(guarded, "apply", derive_required_rights(plan, "apply"))
    grant(guarded, "worker", derive_required_rights(plan, "worker"))
    await_rights(guarded, "apply", derive_required_rights(plan, "apply"))

    apply_plan(plan, guarded.settings("apply").__getitem__)
    await_rights(guarded, "worker", derive_required_rights(plan, "worker"))
    put(sending := producer(guarded.admin["onprem"]), topic_name, 2_000)
    sending.flush()
    monkeypatch.setenv("GUARDED_WORKER", f"worker:{PASSWORD}")
    with workers(as_user(plan, guarded, "worker"), "cloud", tmp_path) as start:
        worker = start()
        wait_copied(guarded.admin, plan, topic_name, 2)
        with Admin(guarded.admin["onprem"]) as admin:
            admin.create_partitions(topic_name, 3)
        with Admin(guarded.admin["cloud"]) as admin:
            while admin.topic(topic_name).partitions < 3:
                time.sleep(0.2)
        put(sending, topic_name, 1_000, start=2_000)
        sending.flush()
        wait_copied(guarded.admin, plan, topic_name, 3)
        assert worker.runs()
    assert assert_exact_copy(guarded.admin, plan, topic_name, 3) == 3_000
    assert "refused" not in worker.log.read_text()


@pytest.mark.parametrize("role", ["apply", "worker", "observe", "verify"])
def test_each_missing_right_is_named(guarded, role, topic_name):
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    with Admin(guarded.admin["cloud"]) as admin:
        ensure_control_topics(admin)
        admin.create_topic(topic_name, 1, 1)
    with Admin(guarded.admin["onprem"]) as admin:
        ensure_control_topics(admin)
    plan = plan_for(guarded.admin, topic_name, topic_name)
    needed = derive_required_rights(plan, role)
    grant(guarded, "probe", needed)
    await_rights(guarded, "probe", needed)
    settings = guarded.settings("probe")
    for right in needed:
        revoke(guarded, "probe", right)
        there = [each for each in needed if each.cluster == right.cluster]
        said = await_missing(settings[right.cluster], there, right)
        assert right.operation in said
        assert right.why in said
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", there)
    for right in needed:
        revoke(guarded, "probe", right)


def test_groups_are_followed_with_exactly_what_is_named(guarded, topic_name):
    """Two flows, there and back, so that the source's own ledger is asked, too."""
    sync = SyncSettings(groups=GroupSync("continuous", NameFilter((Selector("literal", topic_name),))))
    routes = (("onprem", "cloud"), ("cloud", "onprem"))
    plan = plan_for(guarded.admin, topic_name, topic_name, routes=routes, sync=sync, sync_configs="never")
    without = replace(plan, flows=tuple(replace(flow, sync=NO_SYNC) for flow in plan.flows))
    for alias in guarded.admin:
        with Admin(guarded.admin[alias]) as admin:
            admin.create_topic(topic_name, 1, 1)
    apply_plan(without, guarded.admin.__getitem__)
    needed = [
        right
        for right in derive_required_rights(plan, "worker")
        if right not in derive_required_rights(without, "worker")
        and right.name != OFFSETS_TOPIC  # missed below Kafka 2.5 only
    ]
    assert {right.resource for right in needed} == {"GROUP", "TOPIC", "TRANSACTIONAL_ID"}
    with GroupOffsets(guarded.admin["onprem"]) as groups:
        assert groups.commit(topic_name, {TopicPartition(topic_name, 0): CommittedPosition(0)}) == {}
    everything = derive_required_rights(plan, "worker")
    grant(guarded, "probe", everything)
    await_rights(guarded, "probe", everything)
    settings = guarded.settings("probe")
    [told] = GroupKind().keep(plan.flows[0], SyncClusters(settings["onprem"], settings["cloud"]))
    assert (told.name, told.state, told.why) == (topic_name, "carried", "")
    for right in needed:
        revoke(guarded, "probe", right)
        there = [each for each in everything if each.cluster == right.cluster]
        await_missing(settings[right.cluster], there, right)
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", there)


@pytest.mark.soak
def test_mirrormakers_topics_are_written_with_exactly_what_is_named(guarded, topic_name: str) -> None:
    """And what is refused is told, with the broker's words."""
    said = MirrorCompatibility("onprem", "cloud", heartbeats=True, checkpoints=True, source_group=topic_name)
    said = replace(said, offset_syncs="source")
    plan = plan_for(guarded.admin, topic_name, topic_name, compatibility=said, sync_configs="never")
    without = replace(plan, flows=tuple(replace(flow, compatibility=None) for flow in plan.flows))
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
        ensure_control_topics(admin)
    apply_plan(without, guarded.admin.__getitem__)
    everything = derive_required_rights(plan, "worker")
    needed = [right for right in everything if right not in derive_required_rights(without, "worker")]
    grant(guarded, "probe", everything)
    await_rights(guarded, "probe", everything)
    settings = guarded.settings("probe")
    sides = SyncClusters(settings["onprem"], settings["cloud"], plan.flows)
    kinds = (HeartbeatKind(), CheckpointKind(), CopiedPositionKind())
    told = [report for kind in kinds for report in kind.keep(plan.flows[0], sides)]
    assert {(each.kind, each.state) for each in told} == {(kind.name, "equal") for kind in kinds}
    for right in (each for each in needed if each.name != OFFSETS_TOPIC):
        revoke(guarded, "probe", right)
        there = [each for each in everything if each.cluster == right.cluster]
        await_missing(settings[right.cluster], there, right)
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", there)


def test_equal_offsets_with_exactly_what_is_named(guarded, topic_name: str) -> None:
    plan = plan_for(guarded.admin, topic_name, topic_name, offsets="aligned")
    flow = plan.flows[0].id
    named = derive_required_rights(plan, "worker", "cloud")
    firm, optional = [tuple(each for each in named if each.optional == kind) for kind in (False, True)]
    assert [(each.resource, each.operation) for each in optional] == [("CLUSTER", "ALTER")]
    deletes = derive_required_rights(plan, "align", "cloud")
    assert {each.operation for each in deletes} == {"DELETE"}
    assert "DELETE" not in {each.operation for each in named}
    for user, given in (("worker", firm), ("align", deletes)):
        grant(guarded, user, given)
        await_rights(guarded, user, given)
    security = PlanSecurity(
        "SASL_PLAINTEXT",
        "PLAIN",
        SecretRef("env", "WATERSHED_SECRET_WORKER"),
        align_credentials=SecretRef("env", "WATERSHED_SECRET_ALIGN"),
    )
    secrets = {f"WATERSHED_SECRET_{user.upper()}": f"{user}:{PASSWORD}" for user in ("worker", "align")}
    bootstrap = guarded.settings("worker")["cloud"].bootstrap
    settings = resolve_connection_settings(PlanCluster("cloud", bootstrap, security=security), secrets)
    deleting = build_deleter_connect(settings)
    version = read_transaction_version(guarded.admin["cloud"])
    with Admin(settings) as admin:
        alone = probe_alignment_support(admin, "cloud", partial(open_connection, settings), flow, version)
        assert "TOPIC_AUTHORIZATION_FAILED to DeleteRecords" in alone.fills
        found = probe_cluster_once(settings, admin, flow)
        assert (found.fills, found.transactions, found.gap_method) == ("", "", "transactions")
        assert found.markers.startswith("ALTER on cluster cloud is missing")
        wanted = {CLEANUP_POLICY: "compact"}
        meanwhile = build_filling_configs(wanted, admin)
        topic = admin.create_topic(topic_name, 1, 1, wanted)
        assert apply_filling_configs(admin, topic_name, wanted, meanwhile) == ""
        log = TargetLog(partial(open_connection, settings), "cloud", topic_name, topic.topic_id, 0, deleting)
        assert fill_log(log, START, flow, found.bump) == START
        assert restore_topic_configs(admin, topic_name, wanted, meanwhile)
        assert admin.topic_configs([topic_name])[topic_name] == wanted
        for gap_method, end in (("transactions", START + 5), ("markers", START + 1_000)):
            working = GapFiller(log, flow, gap_method, found.bump)  # type: ignore[arg-type]
            if gap_method == "markers":
                with pytest.raises(Unauthorised, match="CLUSTER_AUTHORIZATION_FAILED to WriteTxnMarkers"):
                    working.advance(end)
                grant(guarded, "worker", optional)
                deadline = time.monotonic() + 180
                while (
                    probe_alignment_support(admin, "cloud", log.connect, flow, version, deleting).gap_method
                    != "markers"
                ):
                    assert time.monotonic() < deadline
            assert working.advance(end) == end
            working.close()
        log.close()
        where = TopicPartition(topic_name, 0)
        assert admin.offsets([where])[where] == LogRange(START, START + 1_000)
    for user, given in (("worker", named), ("align", deletes)):
        for right in given:
            revoke(guarded, user, right)


def test_each_missing_right_of_equal_offsets_is_named(guarded, topic_name: str) -> None:
    with Admin(guarded.admin["cloud"]) as admin:
        admin.create_topic(topic_name, 1, 1)
        if admin.topic(PROBE_TOPIC) is None:
            admin.create_topic(PROBE_TOPIC, 1, 1)
    plan = plan_for(guarded.admin, topic_name, topic_name, offsets="aligned")
    mapped = derive_required_rights(plan_for(guarded.admin, topic_name, topic_name), "worker", "cloud")
    both = (*derive_required_rights(plan, "worker", "cloud"), *derive_required_rights(plan, "align", "cloud"))
    needed = [each for each in both if each not in mapped and not each.optional]
    assert {(each.resource, each.operation) for each in needed} == {
        ("TOPIC", "DELETE"),
        ("TOPIC", "ALTER_CONFIGS"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "READ"),
        ("TOPIC", "WRITE"),
        ("TRANSACTIONAL_ID", "WRITE"),
    }
    grant(guarded, "probe", tuple(needed))
    await_rights(guarded, "probe", needed)
    settings = guarded.settings("probe")["cloud"]
    for right in needed:
        revoke(guarded, "probe", right)
        said = await_missing(settings, needed, right)
        assert right.operation in said
        assert right.why in said
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", needed)
    for right in needed:
        revoke(guarded, "probe", right)
