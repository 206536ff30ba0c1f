"""Brokers with an authorizer: topic configs, access rights, quotas and SCRAM users are compared and carried over, by
somebody who has exactly the rights that `topology acls` names; what is not carried over is told by name."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.replicator.guarded import PASSWORD, Guarded, as_user, await_rights, grant, guarded, revoke
from tests.replicator.real import plan_for, settings_of, workers
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.broker_propagation import wait_for_every_broker
from watershed.clusters.flow_records import read_flows
from watershed.clusters.missing_rights import find_missing_rights
from watershed.clusters.required_role_acls import RequiredRight, derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_reads import read_acls, read_client_quotas, read_topic_config_entries
from watershed.clusters.wire.admin_writes import alter_client_quotas, alter_topic_configs, create_acls
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.withheld_rights_records import read_withheld_rights
from watershed.cutover.actions import GiveRights, ReadRights, TakeRights
from watershed.cutover.live.rights_actions import LiveRights
from watershed.replicator.apply import apply_plan
from watershed.replicator.copy.flow_epoch_fence import explain_fence_refusal
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.topology import compile_path
from watershed.topology.drift import FieldDrift
from watershed.topology.inventory import InventoryAcl
from watershed.topology.naming import build_prefix_naming
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import (
    NO_SYNC,
    AclSync,
    GroupSync,
    NameFilter,
    QuotaSync,
    SyncMode,
    SyncSettings,
    UserSync,
)

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka


def acl(text: str, who: str, permission: str = "ALLOW", host: str = "*") -> InventoryAcl:
    """`READ TOPIC orders*`: a prefix."""
    operation, resource, name = text.split()
    prefixed = name.endswith("*") and name != "*"
    pattern = "PREFIXED" if prefixed else "LITERAL"
    return InventoryAcl(
        who, operation, permission, resource, name.removesuffix("*") if prefixed else name, pattern, host
    )


def everything(plan: Plan, topic: str, mode: SyncMode = "continuous") -> Plan:
    """The plan, carrying all metadata of this test over; topics get the source's name in front."""
    own = NameFilter((Selector("glob", f"{topic}*"),))
    sync = SyncSettings(
        groups=GroupSync(rename=((f"{topic}-old", f"{topic}-new"),)),
        acls=AclSync(mode, own),
        quotas=QuotaSync(mode, own),
        users=UserSync(mode, own),
    )
    [flow] = plan.flows
    topics = replace(flow.topics, include=(Selector("glob", f"{topic}*"),))
    return seal_plan(
        replace(
            plan,
            flows=(
                replace(
                    flow, topics=topics, naming=build_prefix_naming("onprem"), sync=sync, sync_configs="continuous"
                ),
            ),
        )
    )


def of(found: list[FieldDrift], kind: str, name: str = "") -> list[FieldDrift]:
    return [each for each in found if each.kind == kind and name in each.name]


def mine(settings: ConnectionSettings, principal: str) -> set[InventoryAcl]:
    with open_connection(settings) as inquiry:
        return {each for each in read_acls(inquiry) or () if each.principal == principal}


def settle(guarded: Guarded, plan: Plan) -> None:
    """Until nothing is left to carry over: brokers hear of it by the metadata log."""
    deadline = time.monotonic() + 180
    while left := [each for each in find_sync_differences(plan, guarded.admin.__getitem__) if each.applied]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_rights_quotas_and_configs_are_carried_over_once_and_for_all(guarded: Guarded, topic_name: str) -> None:
    topic, ann = topic_name, f"User:{topic_name}-ann"
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic, 1, 1, {"retention.ms": "3600000", "segment.ms": "600000"})
    given = [
        acl(f"READ TOPIC {topic}", ann),
        acl(f"READ TOPIC {topic}.*", ann, host="127.0.0.1"),
        acl(f"WRITE TOPIC {topic}", ann),
        acl(f"ALL TOPIC {topic}.x", ann),
        acl(f"DELETE TOPIC {topic}", ann, "DENY"),
        acl(f"READ GROUP {topic}-old", ann),
        acl(f"READ GROUP {topic}-g", ann),
        acl(f"WRITE TRANSACTIONAL_ID {topic}-t", ann),
    ]
    user, client = ("user", f"{topic}-ann"), ("client-id", f"{topic}-c")
    limits = {
        (user,): {"producer_byte_rate": 1_000_000.0, "consumer_byte_rate": 2_000_000.0},
        (client,): {"request_percentage": 12.5},
        (client, user): {"producer_byte_rate": 5000.0},
    }
    with open_connection(guarded.admin["onprem"]) as source:
        assert create_acls(source, given) == {}
        assert alter_client_quotas(source, limits) == {}
    plan = everything(plan_for(guarded.admin, topic, topic), topic)
    needed = derive_required_rights(plan, "apply")
    grant(guarded, "apply", needed)
    await_rights(guarded, "apply", needed)
    connect = guarded.settings("apply").__getitem__

    changed = {(change.what, change.name) for change in apply_plan(plan, connect) if not change.error}
    there = f"onprem.{topic}"
    assert ("set", f"acl topic {there} {ann} READ") in changed
    settle(guarded, plan)
    with open_connection(guarded.admin["cloud"]) as target:
        mine = {each for each in read_acls(target) or () if each.principal == ann}
        quotas = {entity: each for entity, each in read_client_quotas(target).items() if topic in str(entity)}
    assert mine == {
        acl(f"READ TOPIC {there}", ann),
        acl(f"READ TOPIC {there}.*", ann, host="127.0.0.1"),
        acl(f"DELETE TOPIC {there}", ann, "DENY"),
        *(acl(f"{operation} TOPIC {there}.x", ann) for operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")),
        acl(f"READ GROUP {topic}-new", ann),
        acl(f"READ GROUP {topic}-g", ann),
    }
    assert {frozenset(entity): each for entity, each in quotas.items()} == {
        frozenset(entity): each for entity, each in limits.items()
    }
    assert apply_plan(plan, connect) == []
    left = find_sync_differences(plan, guarded.settings("apply").__getitem__)
    assert [each.name for each in left if topic in each.why] == ["transactional ids of onprem"]

    revoke(guarded, f"{topic}-ann", RequiredRight("onprem", "TOPIC", topic, "LITERAL", "READ", ""))
    deadline = time.monotonic() + 180
    while not (found := of(find_sync_differences(plan, connect), "acl", f"topic {there}")):
        assert time.monotonic() < deadline
    [revoked] = found
    assert (revoked.live, revoked.wanted, revoked.applied) == ("ALLOW", None, False)
    assert f"--remove --force --allow-principal {ann}" in revoked.why
    assert apply_plan(plan, connect) == []
    with open_connection(guarded.admin["cloud"]) as target:
        assert acl(f"READ TOPIC {there}", ann) in (read_acls(target) or ())


def test_drift_of_configs_is_mended_where_that_is_safe(guarded: Guarded, topic_name: str) -> None:
    topic, there = topic_name, f"onprem.{topic_name}"
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic, 1, 1, {"retention.ms": "3600000", "segment.ms": "600000"})
    plan = everything(plan_for(guarded.admin, topic, topic), topic)
    apply_plan(plan, guarded.admin.__getitem__)
    with open_connection(guarded.admin["cloud"]) as target:
        drift = {"retention.ms": "1000", "segment.ms": "700000", "cleanup.policy": "compact", "preallocate": "true"}
        assert alter_topic_configs(target, {there: drift | {"delete.retention.ms": "99999999"}}) == {}
    with open_connection(guarded.admin["onprem"]) as source:
        assert alter_topic_configs(source, {topic: {"max.message.bytes": "2000000"}}) == {}
    deadline = time.monotonic() + 180
    while len(found := of(find_sync_differences(plan, guarded.admin.__getitem__), "topic", there)) < 6:
        assert time.monotonic() < deadline, found
    assert {(each.field, each.live, each.wanted, each.drift, each.applied) for each in found} == {
        ("retention.ms", "1000", "3600000", "safe", True),
        ("segment.ms", "700000", "600000", "safe", True),
        ("preallocate", "true", None, "safe", True),
        ("max.message.bytes", "1048588", "2000000", "safe", True),
        ("cleanup.policy", "compact", None, "unsafe", False),
        ("delete.retention.ms", "99999999", None, "unsafe", False),
    }
    assert {change.name for change in apply_plan(plan, guarded.admin.__getitem__)} == {
        f"topic {there} {key}" for key in ("retention.ms", "segment.ms", "preallocate", "max.message.bytes")
    }
    settle(guarded, plan)
    with open_connection(guarded.admin["cloud"]) as target:
        configs = read_topic_config_entries(target, [there])[0][there]
    assert (configs["cleanup.policy"].value, configs["retention.ms"].value) == ("compact", "3600000")
    assert (configs["preallocate"].value, configs["preallocate"].own) == ("false", False)
    assert apply_plan(plan, guarded.admin.__getitem__) == []


def test_the_worker_keeps_everything_equal_with_exactly_its_rights(
    guarded: Guarded, topic_name: str, tmp_path, monkeypatch
) -> None:
    topic, there, bob = topic_name, f"onprem.{topic_name}", f"User:{topic_name}-bob"
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic, 1, 1)
    plan = everything(plan_for(guarded.admin, topic, topic), topic)
    apply_plan(plan, guarded.admin.__getitem__)
    grant(guarded, "worker", derive_required_rights(plan, "worker"))
    await_rights(guarded, "worker", derive_required_rights(plan, "worker"))
    monkeypatch.setenv("GUARDED_WORKER", f"worker:{PASSWORD}")
    often = "import watershed.replicator.sync.sync_kind as k; k.METADATA_INTERVAL_MS = 200"
    with workers(as_user(plan, guarded, "worker"), "cloud", tmp_path, often) as start:
        worker = start()
        with open_connection(guarded.admin["onprem"]) as source:
            assert create_acls(source, [acl(f"READ TOPIC {topic}*", bob)]) == {}
            assert alter_client_quotas(source, {(("user", f"{topic}-bob"),): {"producer_byte_rate": 7.0}}) == {}
            assert alter_topic_configs(source, {topic: {"retention.ms": "-1"}}) == {}
        deadline = time.monotonic() + 180
        while True:
            with open_connection(guarded.admin["cloud"]) as target:
                done = acl(f"READ TOPIC {there}*", bob) in (read_acls(target) or ())
                done = done and (("user", f"{topic}-bob"),) in read_client_quotas(target)
                done = done and read_topic_config_entries(target, [there])[0][there]["retention.ms"].value == "-1"
            if done:
                break
            assert worker.runs(), worker.log.read_text()
            assert time.monotonic() < deadline, worker.log.read_text()
            time.sleep(0.1)


def test_scram_users_are_named_and_never_made(guarded: Guarded, topic_name: str) -> None:
    change = UserScramCredentialUpsertion(
        f"{topic_name}-ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), b"secret"
    )
    client = AdminClient(guarded.admin["onprem"].librdkafka())
    for future in client.alter_user_scram_credentials([change]).values():
        future.result(60)
    plan = everything(plan_for(guarded.admin, topic_name, topic_name), topic_name, "once")
    deadline = time.monotonic() + 180
    while not (found := of(find_sync_differences(plan, guarded.admin.__getitem__), "user")):
        assert time.monotonic() < deadline
    [lacking] = found
    assert (lacking.name, lacking.field, lacking.live, lacking.wanted, lacking.applied) == (
        f"{topic_name}-ann",
        "SCRAM-SHA-512",
        None,
        "8192 iterations",
        False,
    )
    assert "SCRAM-SHA-512=[iterations=8192,password=PASSWORD]" in lacking.why


def test_without_a_right_it_is_told_what_was_not_compared(guarded: Guarded, topic_name: str) -> None:
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    plan = everything(plan_for(guarded.admin, topic_name, topic_name), topic_name)
    found = find_sync_differences(plan, guarded.settings("probe").__getitem__)
    assert {each.kind for each in found} >= {"acls", "quotas", "users"}
    assert all(not each.applied and "not compared" in each.why for each in found)


def topology_file(guarded: Guarded, folder: Path, topic: str) -> Path:
    clusters = "\n".join(
        f"  {alias}: {{bootstrap: ['{each.bootstrap[0]}'], security: {{protocol: SASL_PLAINTEXT, mechanism: PLAIN, "
        "credentials: {env: GUARDED_PROBE}}}"
        for alias, each in guarded.settings("probe").items()
    )
    path = folder / "t.yaml"
    path.write_text(
        f"apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {{name: {topic}}}\nclusters:\n{clusters}\n"
        f"flows:\n  - source: onprem\n    target: cloud\n    suffix: {topic}\n    topics: {{include: [{topic}]}}\n"
        "    sync:\n      configs: {mode: continuous}\n"
        f"      acls: {{mode: continuous, include: [{topic}], include_write: on_failover}}\n"
        f"      quotas: {{mode: once, include: [{topic}]}}\n      users: {{mode: once, include: [{topic}]}}\n"
    )
    return path


def test_each_missing_right_is_named_before_anything_is_changed(
    guarded: Guarded, topic_name: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    with open_connection(guarded.admin["onprem"]) as source:
        assert create_acls(source, [acl(f"ALL TOPIC {topic_name}", "User:ann")]) == {}
        assert alter_client_quotas(source, {(("user", topic_name),): {"producer_byte_rate": 9.0}}) == {}
    monkeypatch.setenv("GUARDED_PROBE", f"probe:{PASSWORD}")
    path = topology_file(guarded, tmp_path, topic_name)
    plan = compile_path(path)
    for needed in (derive_required_rights(plan, "apply"), derive_required_rights(plan, "observe")):
        grant(guarded, "probe", needed)
        await_rights(guarded, "probe", needed)
    plain = seal_plan(
        replace(plan, flows=tuple(replace(each, sync=NO_SYNC, sync_configs="once") for each in plan.flows))
    )
    without = {(right.cluster, right.name, right.operation) for right in derive_required_rights(plain, "apply")}
    more = [
        right
        for right in derive_required_rights(plan, "apply")
        if (right.cluster, right.name, right.operation) not in without
    ]
    assert {(right.cluster, right.resource, right.operation) for right in more} == {
        ("onprem", "CLUSTER", "DESCRIBE"),
        ("onprem", "CLUSTER", "DESCRIBE_CONFIGS"),
        ("cloud", "CLUSTER", "ALTER"),
        ("cloud", "CLUSTER", "ALTER_CONFIGS"),
        ("cloud", "TOPIC", "ALTER_CONFIGS"),
    }
    for right in more:
        if right.resource == "TOPIC":
            continue  # there is no such topic yet, so the brokers cannot tell
        revoke(guarded, "probe", right)
        deadline = time.monotonic() + 180
        while not find_missing_rights(guarded.settings("probe")[right.cluster], [right]):
            assert time.monotonic() < deadline, right
            time.sleep(0.05)
        assert main(["apply", str(path), "--yes"]) == 1
        said = capsys.readouterr().err
        assert f"{right.operation} on the cluster is missing" in said
        assert "nothing was changed" in said
        main(["plan", str(path), "--format", "json"])
        document = json.loads(capsys.readouterr().out)
        errors = {each["rule"] for each in document["findings"] if each["severity"] == "error"}
        assert errors <= {"SEC611"}, "the worker's own rights, which nobody has here"
        changes = document["changes"]
        assert [each for each in changes if each["field"] == "partitions"], "the rest is compared all the same"
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", [right])
    with Admin(guarded.admin["cloud"]) as admin:
        assert admin.topic(topic_name) is None

    main(["plan", str(path)])
    told = capsys.readouterr().out
    assert f"  + acl topic {topic_name}\n" in told
    assert "User:ann READ        -> ALLOW" in told
    assert "held back until applications move there" in told
    assert f"  + quota user={topic_name}\n" in told
    assert main(["apply", str(path), "--yes"]) == 0
    capsys.readouterr()
    deadline = time.monotonic() + 180
    while main(["apply", str(path), "--yes", "--format", "json"]) or json.loads(capsys.readouterr().out)["changes"]:
        assert time.monotonic() < deadline


def test_clusters_without_an_authorizer_are_told_once(kafka_pair, topic_name: str) -> None:
    settings = settings_of(kafka_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    plan = everything(plan_for(settings, topic_name, topic_name), topic_name)
    assert [change for change in apply_plan(plan, settings.__getitem__) if change.error] == []
    found = find_sync_differences(plan, settings.__getitem__)
    assert [(each.kind, each.name, each.applied) for each in found] == [
        ("acl", "authorizer of onprem and cloud", False)
    ]
    pinned = {alias: replace(each, cluster_id="another") for alias, each in settings.items()}
    told = find_sync_differences(plan, pinned.__getitem__)
    assert {each.kind for each in told} == {"configs", "acls", "quotas", "users"}
    assert all("pins another" in each.why for each in told)


def test_rights_that_wait_for_a_failover_are_written_down_at_the_target_and_given_there(
    guarded: Guarded, topic_name: str
) -> None:
    """The source is not asked when they are given: it is gone then."""
    ann = f"User:{topic_name}-ann"
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    with open_connection(guarded.admin["onprem"]) as source:
        given = [acl(f"READ TOPIC {topic_name}", ann), acl(f"WRITE TOPIC {topic_name}", ann)]
        assert create_acls(source, given) == {}
        wait_for_every_broker(
            guarded.admin["onprem"], source, lambda broker: set(given) <= set(read_acls(broker) or ())
        )
    base = plan_for(guarded.admin, topic_name, topic_name)
    sync = replace(NO_SYNC, acls=AclSync("continuous", include_write="on_failover"))
    flow = replace(base.flows[0], sync=sync)
    plan = seal_plan(replace(base, flows=(flow,)))
    apply_plan(plan, guarded.admin.__getitem__)
    settle(guarded, plan)
    target = guarded.admin["cloud"]
    withheld = read_withheld_rights(target, flow.id)
    assert withheld is not None
    assert [each for each in withheld.acls if each.principal == ann] == [acl(f"WRITE TOPIC {topic_name}", ann)]
    gone = replace(guarded.admin["onprem"], bootstrap=("127.0.0.1:9",))
    world = LiveRights(flow, {"source": gone, "target": target}, lambda: 0)
    looked = world.look(ReadRights(remembered=True))
    assert (looked.asked, looked.unable, looked.known_ms) == (True, "", withheld.at_ms)
    right = asdict(acl(f"WRITE TOPIC {topic_name}", ann))
    assert right in looked.missing
    for _ in range(2):  # as often as one likes
        seen = world.give(GiveRights(looked.missing))
        assert (seen.missing, seen.there, seen.refused) == ((), looked.missing, {})
        assert mine(target, ann) == set(given)
    # A migration asks the source, for what its wave needs; who may not give rights is told so.
    living = LiveRights(flow, {"source": guarded.admin["onprem"], "target": target}, lambda: 0)
    wanted = ReadRights((topic_name,), ())
    assert [each for each in living.look(wanted).there if each["principal"] == ann] == [right]
    assert right not in living.look(ReadRights((f"{topic_name}.other",), ())).there
    for _ in range(2):
        assert living.take(TakeRights("target", (right,))).there == ()
        assert mine(target, ann) == {given[0]}
    looked = living.look(wanted)
    assert right in looked.missing
    seeing = tuple(
        RequiredRight(each, "CLUSTER", "kafka-cluster", "LITERAL", "DESCRIBE", "test") for each in guarded.admin
    )
    grant(guarded, "onlooker", seeing)
    await_rights(guarded, "onlooker", seeing)
    onlooker = guarded.settings("onlooker")
    weak = LiveRights(flow, {"source": onlooker["onprem"], "target": onlooker["cloud"]}, lambda: 0)
    assert "ALTER on the cluster is missing" in weak.look(wanted).unable
    refused = weak.give(GiveRights((right,)))
    assert (refused.missing, list(refused.refused)) == ((right,), [f"{ann} WRITE topic {topic_name}"])
    for each in seeing:
        revoke(guarded, "onlooker", each)
    record = read_flows(target)[flow.id]
    assert explain_fence_refusal(record, target) == ""
    assert "ALTER on the cluster is missing" in explain_fence_refusal(record, guarded.settings("nobody")["cloud"])
