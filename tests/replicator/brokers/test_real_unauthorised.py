"""A right is taken away while a flow runs (F31, AC-91, AC-92): its partition says which, others go on, and it comes
back by itself when the right does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from clusters.settings import ConnectionSettings
from lab import clusters
from tests.replicator.real import applied, read_all, settings_of, workers
from tests.replicator.states_scene import QUICK, create, in_state, produce, report, until, written

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectionSettings]:
    """A broker of its own whose ACLs apply to everybody, also to us (User:ANONYMOUS); no ACL: all is allowed."""
    directory = tmp_path_factory.mktemp("unauthorised")
    try:
        found = clusters.start_clusters(
            directory,
            ["guarded"],
            settings={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "true",
            },
        )
        yield ConnectionSettings("guarded", (found.clusters["guarded"].bootstrap,))
    finally:
        clusters.end_clusters(directory)


def _denial(topic: str, operation: str) -> tuple[object, ...]:
    return (
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation[operation],
        AclPermissionType.DENY,
    )  # fmt: skip


def deny(settings: ConnectionSettings, topic: str, operation: str) -> None:
    client = AdminClient(settings.librdkafka())
    for future in client.create_acls([AclBinding(*_denial(topic, operation))]).values():
        future.result(60)


def allow(settings: ConnectionSettings, topic: str, operation: str) -> None:
    client = AdminClient(settings.librdkafka())
    for future in client.delete_acls([AclBindingFilter(*_denial(topic, operation))]).values():
        assert future.result(60)


@pytest.mark.parametrize(("side", "operation"), [("onprem", "READ"), ("cloud", "WRITE"), ("onprem", "DESCRIBE")])
def test_a_right_that_goes_and_comes_back(kafka_pair, guarded, topic_name, tmp_path, side, operation):
    settings = settings_of(kafka_pair) | {side: ConnectionSettings(side, guarded.bootstrap)}
    closed, fine = f"{topic_name}-closed", f"{topic_name}-fine"
    create(settings["onprem"], closed, fine)
    plan = applied(settings, written(tmp_path / "rights.yaml", settings, topic_name, [closed, fine]))

    def copied(topic: str, count: int) -> bool:
        return len(read_all(settings["cloud"], topic, 1)[0]) == count

    for topic in (closed, fine):
        produce(settings["onprem"], topic, 0, 20)
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        for topic in (closed, fine):
            until(lambda topic=topic: copied(topic, 20), f"{topic} is copied")
        if operation == "WRITE":
            deny(guarded, closed, operation)
            produce(settings["onprem"], closed, 20, 10)
        else:
            produce(settings["onprem"], closed, 20, 10)  # we are anonymous, too
            deny(guarded, closed, operation)
        produce(settings["onprem"], fine, 20, 10)
        stopped = in_state(settings, plan, closed, "unauthorised")
        assert closed in stopped.error
        if operation == "DESCRIBE":  # a refused Fetch does not say which right was missing, the next inspection does
            until(lambda: "DESCRIBE" in (report(settings, plan, closed).error or ""), "the right is named")
        else:
            assert operation in stopped.error
        assert stopped.remedy
        until(lambda: copied(fine, 30), "the other topic goes on")
        in_state(settings, plan, fine, "running")
        allow(guarded, closed, operation)
        until(lambda: copied(closed, 30), "it came back by itself")
        in_state(settings, plan, closed, "running")
    here, there = (read_all(settings[alias], closed, 1)[0] for alias in ("onprem", "cloud"))
    assert [record for _, record in here] == [record for _, record in there]
