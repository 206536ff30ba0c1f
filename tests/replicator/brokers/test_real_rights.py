"""Brokers with an authorizer: `apply` and a worker do their work with exactly the rights that `topology acls` names,
and each of these rights is found missing when it is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clusters.admin import Admin
from clusters.control_topics import ensure_control_topics
from clusters.missing_rights import find_missing_rights
from clusters.required_role_acls import derive_required_rights
from replicator.apply import apply_plan
from tests.replicator.guarded import PASSWORD, as_user, await_rights, grant, guarded, revoke
from tests.replicator.real import assert_exact_copy, plan_for, producer, put, wait_copied, workers

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka


def test_apply_and_worker_need_exactly_what_is_named(guarded, topic_name, tmp_path: Path, monkeypatch):
    with Admin(guarded.admin["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    plan = plan_for(guarded.admin, topic_name, topic_name)
    grant(guarded, "apply", derive_required_rights(plan, "apply"))
    grant(guarded, "worker", derive_required_rights(plan, "worker"))
    await_rights(guarded, "apply", derive_required_rights(plan, "apply"))

    apply_plan(plan, guarded.settings("apply").__getitem__)
    await_rights(guarded, "worker", derive_required_rights(plan, "worker"))
    put(sending := producer(guarded.admin["onprem"]), topic_name, 2_000)
    sending.flush()
    monkeypatch.setenv("GUARDED_WORKER", f"worker:{PASSWORD}")
    with workers(as_user(plan, guarded, "worker"), "cloud", tmp_path) as start:
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
    needed = derive_required_rights(plan, role)
    grant(guarded, "probe", needed)
    await_rights(guarded, "probe", needed)
    settings = guarded.settings("probe")
    for right in needed:
        revoke(guarded, "probe", right)
        there = [each for each in needed if each.cluster == right.cluster]
        deadline = time.monotonic() + 180
        while not (
            said := [str(each) for each in find_missing_rights(settings[right.cluster], there) if each.right == right]
        ):
            assert time.monotonic() < deadline, f"not found missing: {right}"
            time.sleep(0.05)
        assert right.operation in said[0]
        assert right.why in said[0]
        grant(guarded, "probe", (right,))
        await_rights(guarded, "probe", there)
    for right in needed:
        revoke(guarded, "probe", right)
