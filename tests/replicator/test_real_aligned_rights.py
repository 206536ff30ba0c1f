"""Brokers with an authorizer: the probe, filling and gaps work with exactly the rights that `topology acls` names for
`offsets: aligned`, by transactions where ALTER on the cluster is not among them; another account deletes."""

from __future__ import annotations

import time
from functools import partial

import pytest

from clusters.admin import Admin
from clusters.errors import Unauthorised
from clusters.names import TopicPartition
from clusters.preflight import missing_rights
from clusters.rights import rights
from clusters.settings import connection_settings
from clusters.surface import LogRange
from clusters.wire.connection import connect
from replicator.aligned.decisions import probed_cluster
from replicator.aligned.fill import fill
from replicator.aligned.gaps import GapFiller
from replicator.aligned.log import TargetLog, deleter
from replicator.aligned.probe import PROBE, probe
from replicator.aligned.topic import POLICY, prepared, restored, while_filling
from replicator.transactions.senders import transaction_version
from tests.replicator.guarded import PASSWORD, await_rights, grant, guarded, revoke
from tests.replicator.real import plan_for
from topology.plan import PlanCluster, SecretRef, Security

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka
START = 250_000


def test_with_exactly_what_is_named(guarded, topic_name: str) -> None:
    plan = plan_for(guarded.admin, topic_name, topic_name, offsets="aligned")
    flow = plan.flows[0].id
    named = rights(plan, "worker", "cloud")
    firm, optional = [tuple(each for each in named if each.optional == kind) for kind in (False, True)]
    assert [(each.resource, each.operation) for each in optional] == [("CLUSTER", "ALTER")]
    deletes = rights(plan, "align", "cloud")
    assert {each.operation for each in deletes} == {"DELETE"}
    assert "DELETE" not in {each.operation for each in named}
    for user, given in (("worker", firm), ("align", deletes)):
        grant(guarded, user, given)
        await_rights(guarded, user, given)
    security = Security(
        "SASL_PLAINTEXT",
        "PLAIN",
        SecretRef("env", "WATERSHED_SECRET_WORKER"),
        align_credentials=SecretRef("env", "WATERSHED_SECRET_ALIGN"),
    )
    secrets = {f"WATERSHED_SECRET_{user.upper()}": f"{user}:{PASSWORD}" for user in ("worker", "align")}
    bootstrap = guarded.settings("worker")["cloud"].bootstrap
    settings = connection_settings(PlanCluster("cloud", bootstrap, security=security), secrets)
    deleting = deleter(settings)
    version = transaction_version(guarded.admin["cloud"])
    with Admin(settings) as admin:
        alone = probe(admin, "cloud", partial(connect, settings), flow, version)
        assert "TOPIC_AUTHORIZATION_FAILED to DeleteRecords" in alone.fills
        found = probed_cluster(settings, admin, flow)
        assert (found.fills, found.transactions, found.way) == ("", "", "transactions")
        assert found.markers.startswith("ALTER on cluster cloud is missing")
        wanted = {POLICY: "compact"}
        meanwhile = while_filling(wanted, admin)
        topic = admin.create_topic(topic_name, 1, 1, wanted)
        assert prepared(admin, topic_name, wanted, meanwhile) == ""
        log = TargetLog(partial(connect, settings), "cloud", topic_name, topic.topic_id, 0, deleting)
        assert fill(log, START, flow, found.bump) == START
        assert restored(admin, topic_name, wanted, meanwhile)
        assert admin.topic_configs([topic_name])[topic_name] == wanted
        for way, end in (("transactions", START + 5), ("markers", START + 1_000)):
            working = GapFiller(log, flow, way, found.bump)  # type: ignore[arg-type]
            if way == "markers":
                with pytest.raises(Unauthorised, match="CLUSTER_AUTHORIZATION_FAILED to WriteTxnMarkers"):
                    working.advance(end)
                grant(guarded, "worker", optional)
                deadline = time.monotonic() + 180
                while probe(admin, "cloud", log.connect, flow, version, deleting).way != "markers":
                    assert time.monotonic() < deadline
            assert working.advance(end) == end
            working.close()
        log.close()
        where = TopicPartition(topic_name, 0)
        assert admin.offsets([where])[where] == LogRange(START, START + 1_000)
    for user, given in (("worker", named), ("align", deletes)):
        for right in given:
            revoke(guarded, user, right)


def test_each_missing_right_is_named(guarded, topic_name: str) -> None:
    with Admin(guarded.admin["cloud"]) as admin:
        admin.create_topic(topic_name, 1, 1)
        if admin.topic(PROBE) is None:
            admin.create_topic(PROBE, 1, 1)
    plan = plan_for(guarded.admin, topic_name, topic_name, offsets="aligned")
    mapped = rights(plan_for(guarded.admin, topic_name, topic_name), "worker", "cloud")
    both = (*rights(plan, "worker", "cloud"), *rights(plan, "align", "cloud"))
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
        deadline = time.monotonic() + 180
        while not (said := [str(each) for each in missing_rights(settings, needed) if each.right == right]):
            assert time.monotonic() < deadline, f"not found missing: {right}"
            time.sleep(0.05)
        assert right.operation in said[0]
        assert right.why in said[0]
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", needed)
    for right in needed:
        revoke(guarded, "probe", right)
