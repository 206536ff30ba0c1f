"""Brokers with an authorizer: what each role must not be able to do is tried, with the rights that `topology acls`
names for it and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

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

from clusters.admin import Admin
from clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC, LEDGER_TOPIC, ensure_control_topics
from clusters.required_role_acls import ACCOUNT_ROLES, AccountRole, derive_required_rights
from clusters.settings import ConnectionSettings
from clusters.wire.connection import open_connection
from tests.replicator.guarded import Guarded, await_rights, grant, guarded, revoke
from topology import compile_path
from topology.plan import Plan

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka

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
        if (each.resource, each.operation) == _DELETE
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


_DELETE = ("TOPIC", "DELETE")
