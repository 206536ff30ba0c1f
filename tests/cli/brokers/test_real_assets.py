"""The plain scripts of `topology assets`, run by Kafka's own tools on an empty cluster: its inventory is what the plan
says, field by field, whatever the names are."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.topology.hostile_names import HOSTILE_NAME
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ensure_control_topics
from watershed.clusters.inventory_scan import scan_cluster
from watershed.clusters.missing_rights import find_missing_rights
from watershed.clusters.required_role_acls import derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_writes import alter_client_quotas, create_acls
from watershed.clusters.wire.connection import open_connection
from watershed.lab import clusters
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports
from watershed.lab.kafka_tools import write_kafka_tools
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.topology import compile_path
from watershed.topology.drift import find_drift
from watershed.topology.inventory import Inventory, InventoryAcl, InventoryCluster
from watershed.topology.inventory_json import encode_inventory

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

_PASSWORD = r"""p,a]s[s=w"o'r\d $(id) `id` ${HOME}"""
_WHO = f"User:{HOSTILE_NAME}"
_ACLS = [
    InventoryAcl("User:ann", "READ", "ALLOW", "TOPIC", "orders.", "PREFIXED"),
    InventoryAcl("User:ann", "DESCRIBE_CONFIGS", "ALLOW", "TOPIC", "orders.", "PREFIXED"),
    InventoryAcl("User:ann", "WRITE", "ALLOW", "TOPIC", "orders.paid", "LITERAL"),
    InventoryAcl("User:ann", "ALL", "ALLOW", "GROUP", "*", "LITERAL"),
    InventoryAcl("User:*", "READ", "DENY", "TOPIC", "-orders", "LITERAL", "10.0.0.7"),
    InventoryAcl("User:CN=web, OU=a,b, O=x", "READ", "ALLOW", "TOPIC", "orders.paid", "LITERAL"),
    InventoryAcl("User:CN=web, OU=a,b, O=x", "READ", "ALLOW", "TOPIC", "-orders", "LITERAL"),
    InventoryAcl(_WHO, "READ", "ALLOW", "GROUP", HOSTILE_NAME, "LITERAL"),
    InventoryAcl(_WHO, "DELETE", "DENY", "GROUP", "--help", "PREFIXED"),
]
_QUOTAS: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {
    (("user", "ann"),): {"producer_byte_rate": 1_048_576.0, "request_percentage": 12.5},
    (("user", None), ("client-id", "web")): {"consumer_byte_rate": 5000.0},
    (("user", HOSTILE_NAME), ("client-id", HOSTILE_NAME)): {"producer_byte_rate": 9.0},
    (("user", "ann,client-id=web"),): {"producer_byte_rate": 11.0},
    (("client-id", None),): {"controller_mutation_rate": 10.0},
    (("client-id", HOSTILE_NAME),): {"producer_byte_rate": 7.0, "consumer_byte_rate": 8.0},
}
_TOPICS = {
    "orders.paid": (3, {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}),
    "orders.created": (1, {}),
    "-orders": (2, {"max.message.bytes": "2000000", "segment.ms": "600000"}),
    "Orders_UPPER.x": (1, {"min.insync.replicas": "1"}),  # never carried over
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ConnectionSettings]]:
    """Two clusters of their own with an authorizer and SCRAM: a whole inventory is compared. PLAINTEXT may do all."""
    directory = tmp_path_factory.mktemp("assets")
    found: dict[str, ConnectionSettings] = {}
    try:
        for alias, port in zip(("onprem", "cloud"), find_free_ports(2), strict=True):
            settings = {
                "listeners": f"PLAINTEXT://{{host}}:{{port}},GUARDED://{{host}}:{port},"
                "CONTROLLER://{host}:{controller_port}",
                "advertised.listeners": f"PLAINTEXT://{{host}}:{{port}},GUARDED://{{host}}:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
                "listener.name.guarded.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.guarded.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram."
                "ScramLoginModule required;",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
            lab = clusters.start_clusters(directory, [alias], settings=settings)
            found[alias] = ConnectionSettings(alias, (lab.cluster(alias).bootstrap,))
            found[f"{alias}-guarded"] = ConnectionSettings(
                alias, (f"{LOOPBACK_HOST}:{port}",), protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-512"
            )
        yield found
    finally:
        clusters.end_clusters(directory)


def _fill_source(source: ConnectionSettings) -> None:
    with Admin(source) as admin:
        for name, (partitions, configs) in _TOPICS.items():
            admin.create_topic(name, partitions, 1, configs)
    with open_connection(source) as connection:
        assert create_acls(connection, _ACLS) == {}
        assert alter_client_quotas(connection, _QUOTAS) == {}
    _create_user(source, "ann", ScramMechanism.SCRAM_SHA_512, 8192)
    _create_user(source, HOSTILE_NAME, ScramMechanism.SCRAM_SHA_256, 4096)


def _create_user(cluster: ConnectionSettings, user: str, mechanism: ScramMechanism, iterations: int) -> None:
    client = AdminClient(cluster.librdkafka())  # a future of a client that is gone never ends
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, iterations), b"of-the-test")
    for future in client.alter_user_scram_credentials([change]).values():
        future.result(60)


def _scan_filled(source: ConnectionSettings) -> InventoryCluster:
    """Brokers hear of ACLs, quotas and users by the metadata log."""
    deadline = time.monotonic() + 60
    while True:
        seen = scan_cluster(source, sample_s=0)
        if (len(seen.acls or ()), len(seen.quotas), len(seen.users or {})) == (len(_ACLS), len(_QUOTAS), 2):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)


def _write_file(folder: Path, pair: Mapping[str, ConnectionSettings]) -> Path:
    document: dict[str, Any] = {
        "apiVersion": "topology/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "assets", "owner": "tests"},
        "clusters": {alias: {"bootstrap": list(pair[alias].bootstrap)} for alias in ("onprem", "cloud")},
        "flows": [
            {
                "source": "onprem",
                "target": "cloud",
                "topics": {"include": [{"glob": "*"}]},
                "naming": {"policy": "prefix"},
                "sync": {
                    "configs": {"mode": "continuous", "set": {"segment.bytes": "268435456"}},
                    "acls": {"mode": "once", "include_write": "always"},
                    "quotas": {"mode": "once"},
                    "users": {"mode": "once"},
                },
            }
        ],
    }
    path = folder / "assets.yaml"
    path.write_text(json.dumps(document))
    return path


def _run_scripts(folder: Path, environment: Mapping[str, str]) -> list[subprocess.CompletedProcess[str]]:
    return [
        subprocess.run(
            ["bash", str(script)], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
        )
        for script in sorted(folder.glob("*.sh"))
    ]


def _list_own_configs(cluster: InventoryCluster) -> dict[str, tuple[int, int, dict[str, str]]]:
    return {
        name: (each.partitions, each.replication_factor, {key: each.configs[key] for key in each.overridden})
        for name, each in cluster.topics.items()
        if not each.internal
    }


def test_the_scripts_make_an_empty_cluster_what_the_plan_says(
    pair: dict[str, ConnectionSettings], tmp_path: Path
) -> None:
    _fill_source(pair["onprem"])
    path, inventory, folder = _write_file(tmp_path, pair), tmp_path / "inventory.json", tmp_path / "assets"
    source = _scan_filled(pair["onprem"])
    empty = scan_cluster(pair["cloud"], sample_s=0)
    assert (empty.topics, empty.acls, empty.quotas, empty.users) == ({}, (), {}, {})
    inventory.write_text(encode_inventory(Inventory({"onprem": source, "cloud": empty})))
    told = ["assets", str(path), "--inventory", str(inventory), "--as", "scripts", "-o", str(folder)]
    assert main(told) == 0

    scripts = folder / "cloud"
    assert "Left out" not in (scripts / "README.md").read_text()
    (scripts / "admin.properties").write_text((scripts / "admin.properties.example").read_text())
    tools = write_kafka_tools(tmp_path / "bin")
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    refused = _run_scripts(scripts, environment)
    assert [each.returncode for each in refused] == [0, 1, 0, 0], [each.stderr for each in refused]
    assert refused[1].stderr.count("no password for") == 2
    (scripts / "passwords").mkdir()
    for line in (scripts / "README.md").read_text().splitlines():
        if line.startswith("- `passwords/"):
            (scripts / line.split("`")[1]).write_text(_PASSWORD + "\n")
    for _ in range(2):  # the second time changes nothing
        done = _run_scripts(scripts, environment)
        assert [each.returncode for each in done] == [0, 0, 0, 0], [(each.stdout, each.stderr) for each in done]

        there = _await_equal(pair["cloud"], source)
        assert _list_own_configs(there) == {
            "onprem.orders.paid": (
                3,
                1,
                {"retention.ms": "3600000", "cleanup.policy": "compact,delete", "segment.bytes": "268435456"},
            ),
            "onprem.orders.created": (1, 1, {"segment.bytes": "268435456"}),
            "onprem.-orders": (
                2,
                1,
                {"max.message.bytes": "2000000", "segment.ms": "600000", "segment.bytes": "268435456"},
            ),
            "onprem.Orders_UPPER.x": (1, 1, {"segment.bytes": "268435456"}),
        }
        plan = compile_path(path)
        drift = find_drift(plan, Inventory({"onprem": source, "cloud": there}), ())
        assert [each for each in drift if each.kind == "topic"] == []
        left = find_sync_differences(plan, pair.__getitem__)
        assert left == [], left

    login = replace(pair["cloud-guarded"], username="ann", password=_PASSWORD)
    with Admin(login) as admin:
        assert admin.topic("onprem.orders.paid") is not None


def _rename(acl: InventoryAcl) -> InventoryAcl:
    """What the flow's prefix makes of it."""
    return replace(acl, name=f"onprem.{acl.name}") if acl.resource == "TOPIC" else acl


def _await_equal(target: ConnectionSettings, source: InventoryCluster) -> InventoryCluster:
    """The target's scan, once its rights, limits and users are the source's under the new names."""
    deadline = time.monotonic() + 60
    wanted = ({_rename(acl) for acl in source.acls or ()}, source.quotas, source.users)
    while True:
        seen = scan_cluster(target, sample_s=0)
        found = (set(seen.acls or ()), seen.quotas, seen.users)
        if found == wanted:
            return seen
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.2)


def test_a_cluster_where_watershed_creates_nothing_gets_its_topics_and_rights_from_the_files(
    pair: dict[str, ConnectionSettings], tmp_path: Path
) -> None:
    path, inventory, folder = _write_file(tmp_path, pair), tmp_path / "inventory.json", tmp_path / "assets"
    seen = {alias: scan_cluster(pair[alias], sample_s=0) for alias in ("onprem", "cloud")}
    inventory.write_text(encode_inventory(Inventory(seen)))
    told = ["assets", str(path), "--inventory", str(inventory), "--as", "scripts", "-o", str(folder)]
    own = ["--control-topics", "--grant", "worker=User:mover", "--only", "acls", "--cluster", "cloud"]
    assert main([*told, *own]) == 0
    scripts = folder / "cloud"
    (scripts / "admin.properties").write_text("")
    environment = {"PATH": f"{write_kafka_tools(tmp_path / 'bin')}:{os.environ['PATH']}"}
    done = _run_scripts(scripts, environment)
    assert [each.returncode for each in done] == [0, 0], [(each.stdout, each.stderr) for each in done]

    before = scan_cluster(pair["cloud"], sample_s=0).topics
    assert {"watershed.flows", "watershed.journal", "watershed.ledger", "watershed.status"} <= before.keys()
    with Admin(pair["cloud"]) as admin:
        ensure_control_topics(admin)
    assert scan_cluster(pair["cloud"], sample_s=0).topics == before
    needed = [each for each in derive_required_rights(compile_path(path), "worker") if each.cluster == "cloud"]
    _create_user(pair["cloud"], "mover", ScramMechanism.SCRAM_SHA_512, 4096)
    login = replace(pair["cloud-guarded"], username="mover", password="of-the-test")
    deadline = time.monotonic() + 60
    while missing := find_missing_rights(login, needed):
        assert time.monotonic() < deadline, [str(each) for each in missing]
        time.sleep(0.2)
