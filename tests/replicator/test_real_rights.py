"""Brokers with an authorizer: `apply` and a worker do their work with exactly the rights that `topology acls` names,
and each of these rights is found missing when it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from clusters.admin import Admin
from clusters.control import ensure_control_topics
from clusters.preflight import missing_rights
from clusters.rights import Right, rights
from clusters.settings import ConnectionSettings
from lab import clusters
from lab.broker import HOST, free_ports
from replicator.apply import apply_plan
from tests.replicator.real import assert_exact_copy, plan_for, producer, put, wait_copied, workers
from topology.plan import Plan, PlanCluster, SecretRef, Security, sealed

pytestmark = pytest.mark.kafka

PASSWORD = "of-the-test"
USERS = ("apply", "worker", "probe")


@dataclass(frozen=True, slots=True)
class Guarded:
    """Settings of both clusters by who asks: `admin` (may do everything) or one of USERS (nothing, at first)."""

    ports: dict[str, int]
    admin: dict[str, ConnectionSettings]

    def settings(self, user: str) -> dict[str, ConnectionSettings]:
        return {
            alias: ConnectionSettings(
                alias,
                (f"{HOST}:{port}",),
                protocol="SASL_PLAINTEXT",
                mechanism="PLAIN",
                username=user,
                password=PASSWORD,
            )
            for alias, port in self.ports.items()
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    ports = dict(zip(("onprem", "cloud"), free_ports(2), strict=True))
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    try:
        for alias, port in ports.items():
            found = clusters.up(
                directory,
                [alias],
                settings={
                    "listeners": f"PLAINTEXT://{{host}}:{{port}},GUARDED://{{host}}:{port},"
                    "CONTROLLER://{host}:{controller_port}",
                    "advertised.listeners": f"PLAINTEXT://{{host}}:{{port}},GUARDED://{{host}}:{port}",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
                    "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
                    "listener.name.guarded.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
                    f"PlainLoginModule required {users};",
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                    "super.users": "User:ANONYMOUS",  # whoever comes by PLAINTEXT: the test itself, the controller
                },
            )
        yield Guarded(
            ports,
            {alias: ConnectionSettings(alias, (each.bootstrap,)) for alias, each in found.clusters.items()},
        )
    finally:
        clusters.down(directory)


def _binding(right: Right, user: str) -> tuple[object, ...]:
    kind = "BROKER" if right.resource == "CLUSTER" else right.resource
    return (
        ResourceType[kind],
        right.name,
        ResourcePatternType[right.pattern],
        f"User:{user}",
        "*",
        AclOperation[right.operation],
        AclPermissionType.ALLOW,
    )


def _grant(guarded: Guarded, user: str, given: tuple[Right, ...]) -> None:
    for alias, settings in guarded.admin.items():
        bindings = [AclBinding(*_binding(right, user)) for right in given if right.cluster == alias]
        if bindings:
            client = AdminClient(settings.librdkafka())  # a future of a client that is gone never ends well
            for future in client.create_acls(bindings).values():
                future.result(15)


def _revoke(guarded: Guarded, user: str, right: Right) -> None:
    client = AdminClient(guarded.admin[right.cluster].librdkafka())
    for future in client.delete_acls([AclBindingFilter(*_binding(right, user))]).values():
        assert future.result(15), f"{right} was not given"


def _as(plan: Plan, guarded: Guarded, user: str) -> Plan:
    """The plan, as a process of `user` connects: secrets by environment variable."""
    security = Security("SASL_PLAINTEXT", "PLAIN", SecretRef("env", f"GUARDED_{user.upper()}"))
    at = [PlanCluster(alias, each.bootstrap, security=security) for alias, each in guarded.settings(user).items()]
    return sealed(replace(plan, clusters=tuple(at)))


def test_apply_and_worker_need_exactly_what_is_named(guarded, topic_name, tmp_path: Path, monkeypatch):
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    plan = plan_for(guarded.admin, topic_name, topic_name)
    _grant(guarded, "apply", rights(plan, "apply"))
    _grant(guarded, "worker", rights(plan, "worker"))
    _await_rights(guarded, "apply", rights(plan, "apply"))

    apply_plan(plan, guarded.settings("apply").__getitem__)
    put(sending := producer(guarded.admin["onprem"]), topic_name, 2_000)
    sending.flush()
    monkeypatch.setenv("GUARDED_WORKER", f"worker:{PASSWORD}")
    with workers(_as(plan, guarded, "worker"), "cloud", tmp_path) as start:
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
    needed = rights(plan, role)
    _grant(guarded, "probe", needed)
    _await_rights(guarded, "probe", needed)
    settings = guarded.settings("probe")
    for right in needed:
        _revoke(guarded, "probe", right)
        there = [each for each in needed if each.cluster == right.cluster]
        deadline = time.monotonic() + 10
        while not (
            said := [str(each) for each in missing_rights(settings[right.cluster], there) if each.right == right]
        ):
            assert time.monotonic() < deadline, f"not found missing: {right}"
            time.sleep(0.05)
        assert right.operation in said[0]
        assert right.why in said[0]
        _grant(guarded, "probe", (right,))
        _await_rights(guarded, "probe", there)
    for right in needed:
        _revoke(guarded, "probe", right)


def _await_rights(guarded: Guarded, user: str, needed) -> None:
    """Until the brokers know them (ACLs travel by the metadata log)."""
    settings = guarded.settings(user)
    for alias in sorted({right.cluster for right in needed}):
        here = [right for right in needed if right.cluster == alias]
        deadline = time.monotonic() + 15
        while missing := missing_rights(settings[alias], here):
            assert time.monotonic() < deadline, [str(each) for each in missing]
            time.sleep(0.05)
