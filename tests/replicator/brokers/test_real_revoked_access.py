"""Brokers with an authorizer: what the source takes away is shown at the target with since when, and removed when a
person decides so, or after the stated time. What a person gave at the target stays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.replicator.guarded import Guarded, guarded
from tests.replicator.real import plan_for
from watershed.cli.journal_decisions import is_unchanged_decision, render_decision
from watershed.clusters.admin import Admin
from watershed.clusters.broker_propagation import wait_for_every_broker
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.flow_records import JOURNALED_PREFIX
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.synced_access_records import read_synced_access
from watershed.clusters.wire.admin_reads import read_acls, read_scram_users
from watershed.clusters.wire.admin_writes import create_acls, delete_acls, delete_scram_users
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.operations.access_pruning import propose_pruning
from watershed.cutover.operations.proposal import OperationRefused
from watershed.replicator.apply import apply_plan
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.topology.drift import FieldDrift
from watershed.topology.inventory import InventoryAcl
from watershed.topology.naming import build_prefix_naming
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import NO_SYNC, AccessPruning, AclSync, NameFilter, UserSync

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka


def set_rights(settings: ConnectionSettings, given: Sequence[InventoryAcl], taken: Sequence[InventoryAcl]) -> None:
    with open_connection(settings) as broker:
        assert create_acls(broker, given) == {}
        assert delete_acls(broker, taken) == {}
        wait_for_every_broker(settings, broker, lambda each: set(given) <= set(read_acls(each) or ()))
        wait_for_every_broker(settings, broker, lambda each: set(taken).isdisjoint(read_acls(each) or ()))


def make_user(settings: ConnectionSettings, user: str) -> None:
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), b"secret")
    client = AdminClient(settings.librdkafka())
    for future in client.alter_user_scram_credentials([change]).values():
        future.result(60)
    await_user(settings, user, there=True)


def await_user(settings: ConnectionSettings, user: str, *, there: bool) -> None:
    with open_connection(settings) as broker:
        wait_for_every_broker(settings, broker, lambda each: (user in read_scram_users(each)) is there)


def pruned(plan: Plan, topic: str, pruning: AccessPruning) -> Plan:
    """Topics get the source's name in front, so a right at the target has another name than its origin."""
    [flow] = plan.flows
    own = NameFilter((Selector("glob", f"{topic}*"),))
    sync = replace(NO_SYNC, acls=AclSync("once", own, prune=pruning), users=UserSync("once", own, pruning))
    return seal_plan(replace(plan, flows=(replace(flow, naming=build_prefix_naming("onprem"), sync=sync),)))


def of_user(found: Sequence[FieldDrift], name: str) -> list[FieldDrift]:
    return [each for each in found if each.live is not None and name in f"{each.name} {each.field}"]


@pytest.mark.soak
def test_a_revoked_right_and_a_deleted_user_are_shown_approved_and_removed(guarded: Guarded, topic_name: str) -> None:
    source, target = guarded.admin["onprem"], guarded.admin["cloud"]
    ann, bob = f"{topic_name}-ann", f"{topic_name}-bob"
    there = f"onprem.{topic_name}"
    right = InventoryAcl(f"User:{ann}", "READ", "ALLOW", "TOPIC", topic_name, "LITERAL")
    stays = replace(right, operation="DESCRIBE")
    own = InventoryAcl(f"User:{bob}", "READ", "ALLOW", "TOPIC", there, "LITERAL")
    with Admin(source) as admin:
        admin.create_topic(topic_name, 1, 1)
    set_rights(source, [right, stays], [])
    set_rights(target, [own], [])
    make_user(source, ann)
    make_user(target, bob)
    connect = guarded.admin.__getitem__
    plan = pruned(plan_for(guarded.admin, topic_name, topic_name), topic_name, AccessPruning("approve"))
    [flow] = plan.flows

    apply_plan(plan, connect)  # gives the rights, and names the user
    make_user(target, ann)  # a person does so
    apply_plan(plan, connect)
    assert [each.user for each in read_synced_access(target, flow.id).users if each.made_ms] == [ann]
    assert not propose_pruning(plan, connect, flow.id).is_needed

    set_rights(source, [], [right])
    with open_connection(source) as broker:
        assert delete_scram_users(broker, [(ann, "SCRAM-SHA-512")]) == {}
    await_user(source, ann, there=False)
    keeper = f"{topic_name}-keeper"
    make_user(source, keeper)  # a source that shows no user at all is not believed
    before_ms = time.time_ns() // 1_000_000
    apply_plan(plan, connect)  # writes down since when, and removes nothing
    [user, acl] = of_user(find_sync_differences(plan, connect), ann)
    assert (acl.name, acl.live, acl.wanted, acl.applied) == (f"topic {there}", "ALLOW", None, False)
    assert "revoked at onprem, seen first at" in acl.why
    assert f"waits for a person's decision: `topology flow prune {flow.id} FILE`" in acl.why
    assert (user.name, user.wanted, user.applied) == (ann, None, False)
    assert "deleted at onprem, seen first at" in user.why
    revoked = [each.revoked_ms for each in read_synced_access(target, flow.id).acls if each.revoked_ms]
    assert len(revoked) == 1
    assert revoked[0] >= before_ms

    proposal = propose_pruning(plan, connect, flow.id)
    assert proposal.question == "remove 1 rights and 1 users at cloud?"
    assert any(f"User:{ann} READ topic {there} (from User:{ann} READ topic {topic_name})" in e for e in proposal.lines)
    assert len(list(proposal.carry_out("eve"))) == 2
    with open_connection(target) as broker:
        left = set(read_acls(broker) or ())
        assert own in left
        assert replace(stays, name=there) in left
        assert replace(right, name=there) not in left
        users = read_scram_users(broker)
        assert bob in users
        assert ann not in users
    assert not propose_pruning(plan, connect, flow.id).is_needed
    lines = [
        each.value or {} for each in read_control_log(target, FLOWS_TOPIC) if each.key.startswith(JOURNALED_PREFIX)
    ]
    told = [line for line in lines if line["flow"] == flow.id]
    assert all(map(is_unchanged_decision, told))
    assert [line["actor"] for line in told] == ["eve", "eve"]
    assert f"eve: prune {flow.id}, User:{ann} READ topic {there}" in render_decision(told[0])
    apply_plan(plan, connect)
    access = read_synced_access(target, flow.id)
    assert [each.acl.operation for each in access.acls] == ["DESCRIBE"]
    assert [each.user for each in access.users] == [keeper]


@pytest.mark.soak
def test_what_is_removed_by_itself_waits_and_stops_where_most_is_gone_at_once(
    guarded: Guarded, topic_name: str
) -> None:
    source, target = guarded.admin["onprem"], guarded.admin["cloud"]
    connect = guarded.admin.__getitem__
    rights = [InventoryAcl(f"User:{topic_name}-{n}", "READ", "ALLOW", "TOPIC", topic_name, "LITERAL") for n in range(5)]
    there = [replace(each, name=f"onprem.{topic_name}") for each in rights]
    with Admin(source) as admin:
        admin.create_topic(topic_name, 1, 1)
    set_rights(source, rights, [])
    base = plan_for(guarded.admin, topic_name, topic_name)
    patient = pruned(base, topic_name, AccessPruning("auto"))
    at_once = pruned(base, topic_name, AccessPruning("auto", 1))
    [flow] = patient.flows
    apply_plan(patient, connect)

    def find_left() -> list[InventoryAcl]:
        with open_connection(target) as broker:
            return [each for each in there if each in (read_acls(broker) or ())]

    assert find_left() == there
    set_rights(source, [], rights[:1])
    apply_plan(patient, connect)
    [shown] = of_user(find_sync_differences(patient, connect), f"{topic_name}-0")
    assert "it is removed 1d after that" in shown.why
    assert find_left() == there, "a day has not passed"
    apply_plan(at_once, connect)
    assert find_left() == there[1:]

    set_rights(source, [], rights[1:])
    for _ in range(2):
        apply_plan(at_once, connect)
    assert find_left() == there[1:], "all of them at once are not believed"
    [shown] = of_user(find_sync_differences(at_once, connect), f"{topic_name}-1")
    assert "4 of 4 rights that the sync brought are gone at onprem at once" in shown.why
    with pytest.raises(OperationRefused, match="4 of 4 rights"):
        propose_pruning(at_once, connect, flow.id)
    list(propose_pruning(at_once, connect, flow.id, above_share=True).carry_out("eve"))
    assert find_left() == []
