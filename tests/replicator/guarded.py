"""Two clusters with an authorizer: who may do what is given and taken by the tests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from watershed.clusters.missing_rights import find_missing_rights
from watershed.clusters.required_role_acls import RequiredRight
from watershed.clusters.settings import ConnectionSettings
from watershed.lab import clusters
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports
from watershed.topology.plan import Plan, PlanCluster, PlanSecurity, seal_plan
from watershed.topology.secret_ref import SecretRef

PASSWORD = "of-the-test"
USERS = ("apply", "worker", "observe", "verify", "migrate", "align", "probe", "onlooker", "nobody")


@dataclass(frozen=True, slots=True)
class Guarded:
    """Settings of both clusters by who asks: `admin` (may do everything) or one of USERS (nothing, at first; `nobody`
    never). logs: what the brokers write, by cluster."""

    ports: dict[str, int]
    admin: dict[str, ConnectionSettings]
    logs: dict[str, Path]

    def settings(self, user: str) -> dict[str, ConnectionSettings]:
        return {
            alias: ConnectionSettings(
                alias,
                (f"{LOOPBACK_HOST}:{port}",),
                protocol="SASL_PLAINTEXT",
                mechanism="PLAIN",
                username=user,
                password=PASSWORD,
            )
            for alias, port in self.ports.items()
        }


@pytest.fixture(scope="module")
def guarded(guarded_pair: Guarded) -> Iterator[Guarded]:
    """The pair of all files that need one (tests/conftest.py); a file leaves no rights behind."""
    yield guarded_pair
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for settings in guarded_pair.admin.values():
        client = AdminClient(settings.librdkafka())
        client.delete_acls([every])[every].result(60)


@contextmanager
def run_guarded_clusters(directory: Path) -> Iterator[Guarded]:
    """`onprem` and `cloud`; ended with the block."""
    ports = dict(zip(("onprem", "cloud"), find_free_ports(2), strict=True))
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    try:
        for alias, port in ports.items():
            found = clusters.start_clusters(
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
            {alias: each.brokers[0].log for alias, each in found.clusters.items()},
        )
    finally:
        clusters.end_clusters(directory)


def _binding(right: RequiredRight, user: str) -> tuple[object, ...]:
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


def grant(guarded: Guarded, user: str, given: tuple[RequiredRight, ...]) -> None:
    for alias, settings in guarded.admin.items():
        bindings = [AclBinding(*_binding(right, user)) for right in given if right.cluster == alias]
        if bindings:
            client = AdminClient(settings.librdkafka())  # a future of a client that is gone never ends well
            for future in client.create_acls(bindings).values():
                future.result(60)


def revoke(guarded: Guarded, user: str, right: RequiredRight) -> None:
    client = AdminClient(guarded.admin[right.cluster].librdkafka())
    for future in client.delete_acls([AclBindingFilter(*_binding(right, user))]).values():
        assert future.result(60), f"{right} was not given"


def as_user(plan: Plan, guarded: Guarded, user: str) -> Plan:
    """The plan, as a process of `user` connects: secrets by environment variable."""
    security = PlanSecurity("SASL_PLAINTEXT", "PLAIN", SecretRef("env", f"GUARDED_{user.upper()}"))
    at = [PlanCluster(alias, each.bootstrap, security=security) for alias, each in guarded.settings(user).items()]
    return seal_plan(replace(plan, clusters=tuple(at)))


def await_rights(guarded: Guarded, user: str, needed: Iterable[RequiredRight]) -> None:
    """Until the brokers know them (ACLs travel by the metadata log)."""
    needed, settings = list(needed), guarded.settings(user)
    for alias in sorted({right.cluster for right in needed}):
        here = [right for right in needed if right.cluster == alias]
        deadline = time.monotonic() + 180
        while missing := find_missing_rights(settings[alias], here):
            assert time.monotonic() < deadline, [str(each) for each in missing]
            time.sleep(0.05)
