"""Brokers with an authorizer: the probe, filling and gaps work with exactly the rights that `topology acls` names for
`offsets: aligned`, by transactions where ALTER on the cluster is not among them; another account deletes."""

from __future__ import annotations

import time
from functools import partial

import pytest

from clusters.admin import Admin
from clusters.cluster_protocol import LogRange
from clusters.errors import Unauthorised
from clusters.missing_rights import find_missing_rights
from clusters.required_role_acls import PROBE_TOPIC, derive_required_rights
from clusters.settings import resolve_connection_settings
from clusters.topic_partition import TopicPartition
from clusters.wire.connection import open_connection
from replicator.copy.aligned.aligned_topic_choice import probe_cluster_once
from replicator.copy.aligned.cluster_probe import probe_alignment_support
from replicator.copy.aligned.empty_log_filler import fill_log
from replicator.copy.aligned.filling_configs import (
    CLEANUP_POLICY,
    apply_filling_configs,
    build_filling_configs,
    restore_topic_configs,
)
from replicator.copy.aligned.gap_filler import GapFiller
from replicator.copy.aligned.target_log import TargetLog, build_deleter_connect
from replicator.copy.transactions.slot_sender import read_transaction_version
from tests.replicator.guarded import PASSWORD, await_rights, grant, guarded, revoke
from tests.replicator.real import plan_for
from topology.plan import PlanCluster, PlanSecurity
from topology.secret_ref import SecretRef

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka
START = 250_000


def test_with_exactly_what_is_named(guarded, topic_name: str) -> None:
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


def test_each_missing_right_is_named(guarded, topic_name: str) -> None:
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
        deadline = time.monotonic() + 180
        while not (said := [str(each) for each in find_missing_rights(settings, needed) if each.right == right]):
            assert time.monotonic() < deadline, f"not found missing: {right}"
            time.sleep(0.05)
        assert right.operation in said[0]
        assert right.why in said[0]
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", needed)
    for right in needed:
        revoke(guarded, "probe", right)
