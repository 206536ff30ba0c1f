"""A whole worker whose target takes passwords, ends sessions after two seconds, and changes the password meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.ways import ALIAS, Way
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    settings_of,
    wait_copied,
    wait_progress,
    workers,
)
from watershed.clusters.admin import Admin
from watershed.lab.certificates import write_secret_file
from watershed.lab.clusters import Lab
from watershed.lab.secured_cluster import SecuredCluster, create_scram_user
from watershed.topology.plan import PlanCluster, seal_plan

pytestmark = pytest.mark.kafka


def test_a_copy_goes_on_over_sessions_and_a_change_of_password(
    kafka_pair: Lab, secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str
) -> None:
    way = Way(secured_cluster, tmp_path, "SHORT", "SCRAM-SHA-512")
    create_scram_user(secured_cluster, topic_name, "first")
    write_secret_file(way.account, f"{topic_name}:first")
    settings = {"onprem": settings_of(kafka_pair)["onprem"], ALIAS: way.settings()}
    origin = settings[ALIAS].origin
    assert origin is not None
    clusters = (origin.cluster, PlanCluster("onprem", settings["onprem"].bootstrap))
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1, {})
    plan = applied(settings, seal_plan(replace(plan_for(settings, topic_name, topic_name), clusters=clusters)))
    sending = producer(settings["onprem"])
    put(sending, topic_name, 3_000)
    sending.flush()
    with workers(plan, ALIAS, tmp_path) as start:
        worker = start()
        wait_progress(settings, plan, topic_name, 2, 3_000)
        create_scram_user(secured_cluster, topic_name, "second")
        write_secret_file(way.account, f"{topic_name}:second")
        for number in range(3, 8):
            put(sending, topic_name, 1_000, start=1_000 * number)
            sending.flush()
            wait_copied(settings, plan, topic_name, 2)
        assert worker.runs()
    assert assert_exact_copy(settings, plan, topic_name, 2) == 8_000
    log = worker.log.read_text()
    assert "first" not in log
    assert ":second" not in log
