"""A scan of a cluster with an authorizer: ACLs are seen, and what may not be seen is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from watershed.clusters.admin import Admin
from watershed.clusters.inventory_scan import scan_cluster
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab import broker, clusters
from watershed.topology.inventory import InventoryAcl

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectionSettings]:
    """A broker of its own whose ACLs apply to everybody, also to us (User:ANONYMOUS)."""
    directory = tmp_path_factory.mktemp("guarded")
    usual = broker.build_broker_properties

    def properties(*about: Any) -> dict[str, str | int]:
        return {
            **usual(*about),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, "build_broker_properties", properties)
        try:
            found = clusters.start_clusters(directory, ["guarded"])
            yield ConnectionSettings("guarded", tuple(found.clusters["guarded"].bootstrap.split(",")))
        finally:
            clusters.end_clusters(directory)


def _bind(settings: ConnectionSettings, kind: str, name: str, operation: str, permission: str) -> None:
    binding = AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation[operation],
        AclPermissionType[permission],
    )
    client = AdminClient(settings.librdkafka())
    for future in client.create_acls([binding]).values():
        future.result(60)


def _said(not_seen: tuple[str, ...], about: str) -> str:
    [line] = [line for line in not_seen if line.startswith(about)]
    return line


def test_rights(guarded: ConnectionSettings) -> None:
    with Admin(guarded) as admin:
        for name in ("open", "closed"):
            admin.create_topic(name, 2)
        admin.commit_offsets("billing", {TopicPartition("open", 0): 0})
    assert scan_cluster(guarded, sample_s=0).acls == ()

    _bind(guarded, "BROKER", "kafka-cluster", "ALL", "ALLOW")
    _bind(guarded, "TOPIC", "open", "DESCRIBE_CONFIGS", "ALLOW")
    _bind(guarded, "TOPIC", "open", "DESCRIBE", "ALLOW")
    whole = scan_cluster(guarded, sample_s=0)
    assert whole.acls is not None
    assert InventoryAcl("User:ANONYMOUS", "ALL", "ALLOW", "CLUSTER", "kafka-cluster", "LITERAL") in whole.acls
    assert InventoryAcl("User:ANONYMOUS", "DESCRIBE_CONFIGS", "ALLOW", "TOPIC", "open", "LITERAL") in whole.acls
    assert (len(whole.acls), whole.not_seen) == (3, ())
    assert whole.topics["closed"].size_bytes == 0

    _bind(guarded, "BROKER", "kafka-cluster", "DESCRIBE", "DENY")
    _bind(guarded, "BROKER", "kafka-cluster", "DESCRIBE_CONFIGS", "DENY")
    _bind(guarded, "TOPIC", "closed", "DESCRIBE", "ALLOW")
    part = scan_cluster(guarded, sample_s=0)
    assert part.acls is None
    assert "CLUSTER_AUTHORIZATION_FAILED" in _said(part.not_seen, "log sizes of broker 1")
    assert _said(part.not_seen, "ACLs")
    assert _said(part.not_seen, "broker configs")
    assert _said(part.not_seen, "client quotas")
    assert _said(part.not_seen, "configs of 1 topics")
    assert part.topics["closed"].configs == {}
    assert part.topics["open"].configs
    assert {topic.size_bytes for topic in part.topics.values()} == {None}
    assert part.groups["billing"].offsets == {"open": {0: 0}}

    _bind(guarded, "TOPIC", "closed", "DESCRIBE", "DENY")
    hidden = scan_cluster(guarded, sample_s=0)
    assert "closed" not in hidden.topics  # Kafka shows no trace of a topic that one may not describe
