"""What an import makes of a foreign file copies, on real brokers: under the names that the other tool gives, and not
for a pair that is switched off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.replicator.real import applied, producer, put, read_all, settings_of, wait_progress, workers
from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.interop.import_formats import import_path
from watershed.topology.interop.topology_writer import render_topology_file
from watershed.topology.loader import parse_topology
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.plan_builder import build_plan

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

PARTITIONS, RECORDS = 2, 2_000


def imported_plan(place: Path, name: str) -> Plan:
    """The plan of the imported topology; flows have ids of this test's own, as all tests share the clusters."""
    loaded = parse_topology(render_topology_file(import_path(place)))
    assert loaded.problems == ()
    assert loaded.topology is not None
    plan = build_plan(loaded.topology, {})
    flows = (replace(each, id=f"{each.id}-{name}", engine="process", discovery_ms=1_000) for each in plan.flows)
    return seal_plan(replace(plan, topology=name, flows=tuple(flows)))


def copy_records(settings: dict[str, ConnectionSettings], plan: Plan, topic: str, name: str, place: Path) -> None:
    """Until all records of `topic` are at the target, where it is called `name`."""
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic, PARTITIONS, 1)
    sending = producer(settings["onprem"])
    put(sending, topic, RECORDS)
    sending.flush()
    with workers(applied(settings, plan), "cloud", place) as start:
        start()
        wait_progress(settings, plan, name, PARTITIONS, RECORDS)


def records(settings: ConnectionSettings, topic: str) -> list[list[tuple[bytes | None, bytes | None]]]:
    """Keys and values by partition, in their order."""
    found = read_all(settings, topic, PARTITIONS)
    return [[record[:2] for _, record in found[each]] for each in range(PARTITIONS)]


def test_an_empty_alias_copies_under_the_same_name_and_the_pair_that_is_off_copies_nothing(
    kafka_pair, topic_name, tmp_path
):
    settings = settings_of(kafka_pair)
    servers = "".join(f"{alias}.bootstrap.servers = {','.join(each.bootstrap)}\n" for alias, each in settings.items())
    (tmp_path / "mm2.properties").write_text(
        f"clusters = onprem, cloud\n{servers}onprem->cloud.enabled = true\ncloud->onprem.enabled = false\n"
        f"cloud->onprem.groups = .*\ntopics = {topic_name}\nreplication.factor = 1\nsync.topic.acls.enabled = false\n"
        "replication.policy.separator =\nsource.cluster.alias =\ntarget.cluster.alias =\n"
    )
    plan = imported_plan(tmp_path / "mm2.properties", topic_name)
    assert [(flow.source, flow.target) for flow in plan.flows] == [("onprem", "cloud")]
    copy_records(settings, plan, topic_name, topic_name, tmp_path)
    assert records(settings["cloud"], topic_name) == records(settings["onprem"], topic_name)
    with Admin(settings["cloud"]) as admin:
        assert [each for each in admin.topics() if topic_name in each] == [topic_name]


def test_a_mapping_of_ureplicator_copies_from_the_earliest_record_under_the_new_name(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    files = tmp_path / "ureplicator"
    files.mkdir()
    (files / "clusters.properties").write_text(
        "".join(
            f"kafka.cluster.zkStr.{alias}=localhost:2181/{alias}\nkafka.cluster.servers.{alias}={each.bootstrap[0]}\n"
            for alias, each in settings.items()
        )
    )
    (files / "consumer.properties").write_text(
        "zookeeper.connect=localhost:2181/onprem\ngroup.id=mirror\nauto.offset.reset=smallest\n"
    )
    (files / "producer.properties").write_text(f"bootstrap.servers={settings['cloud'].bootstrap[0]}\nacks=-1\n")
    (files / "mapping.properties").write_text(f"{topic_name} {topic_name}.copy\n")
    plan = imported_plan(files, topic_name)
    copy_records(settings, plan, topic_name, f"{topic_name}.copy", tmp_path)
    assert records(settings["cloud"], f"{topic_name}.copy") == records(settings["onprem"], topic_name)
    assert sum(map(len, records(settings["cloud"], f"{topic_name}.copy"))) == RECORDS
