"""Positions of Streams applications on real brokers: behind the copies of their changelogs, or not at all.

No application runs here: what one leaves on its cluster is written by the test. A real one moves in
`tests/cutover/spark/test_real_streams.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.replicator.real import applied, plan_for, settings_of, wait_copied, wait_decided, workers
from watershed.clusters.admin import Admin
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import SyncReport
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.sync.group_control_records import FlowsFollower
from watershed.replicator.sync.groups import GroupKind
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import GroupSync, SyncSettings

pytestmark = [pytest.mark.kafka, pytest.mark.soak]  # a worker of its own; the decisions are tested without brokers


def process(settings: ConnectionSettings, application: str, first: int, last: int) -> None:
    """As an application under exactly_once_v2: the changelog and the position in one transaction each."""
    writer = Producer(settings.librdkafka({"transactional.id": f"{application}-{first}", "linger.ms": 0}))
    writer.init_transactions()
    for number in range(first, last):
        writer.begin_transaction()
        writer.produce(f"{application}-counts-changelog", b"%d" % number, key=b"bucket", partition=0)
        writer.flush()
        writer.commit_transaction()
        with GroupOffsets(settings) as offsets:
            position = CommittedPosition(number + 1, "AgAAAaIfusjT")
            assert offsets.commit(application, {TopicPartition(application, 0): position}) == {}
    wait_decided(settings, f"{application}-counts-changelog")


def plan_of(settings: dict[str, ConnectionSettings], application: str, *topics: str) -> Plan:
    sync = SyncSettings(groups=GroupSync("continuous", interval_ms=3_600_000, streams=(application,)))
    plan = plan_for(settings, application, *topics, sync=sync)
    selected = TopicSelection(tuple(Selector("literal", topic) for topic in topics), allow_internal=True)
    return seal_plan(replace(plan, flows=(replace(plan.flows[0], topics=selected),)))


def keep(kind: GroupKind, settings: dict[str, ConnectionSettings], plan: Plan, application: str) -> SyncReport:
    """One round of a worker, done here."""
    flow = plan.flows[0]
    found = kind.keep(flow, SyncClusters(settings[flow.source], settings[flow.target]))
    return next(each for each in found if each.name == application)


def committed(settings: ConnectionSettings, application: str) -> dict[TopicPartition, int]:
    with GroupOffsets(settings) as offsets:
        return {place: each.offset for place, each in offsets.held([application])[application].positions.items()}


def test_positions_come_behind_their_state_or_not_at_all(kafka_pair: Any, topic_name: str, tmp_path: Path) -> None:
    settings, changelog = settings_of(kafka_pair), f"{topic_name}-counts-changelog"
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1)
        admin.create_topic(changelog, 1, configs={"cleanup.policy": "compact"})
    writer = Producer(settings["onprem"].librdkafka())
    for number in range(40):
        writer.produce(topic_name, b"%d" % number, partition=0)
    writer.flush()
    process(settings["onprem"], topic_name, 0, 10)

    refused = keep(GroupKind(), settings, plan_of(settings, topic_name, topic_name), topic_name)
    assert refused.state == "refused"
    assert f"uses {changelog}, which flow" in refused.why
    plan = applied(settings, plan_of(settings, topic_name, topic_name, changelog))
    waiting = keep(kind := GroupKind(), settings, plan, topic_name)
    assert waiting.state == "waiting"
    assert list(waiting.detail["streams"]["missing"]) == [f"{changelog}-0"]
    process(settings["onprem"], topic_name, 10, 20)  # what was read before is kept until its state has come
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
        wait_copied(settings, plan, changelog, 1)
    for state, at in (("carried", 10), ("carried", 20), ("equal", 20)):
        told = keep(kind, settings, plan, topic_name)
        assert (told.state, told.detail["streams"]["missing"]) == (state, {})
        assert committed(settings["cloud"], topic_name) == {TopicPartition(topic_name, 0): at}
    flows = FlowsFollower(settings["cloud"])
    flows.read()
    found = flows.state_ranges(plan.flows[0].id)[topic_name]
    assert found.least == found.most == {TopicPartition(changelog, 0): 40}  # 20 records, each with a marker
    assert found.texts == {TopicPartition(topic_name, 0): "AgAAAaIfusjT"}
    with Admin(settings["cloud"]) as admin:
        admin.alter_topic_configs(changelog, {"cleanup.policy": "delete"})
    spoiled = keep(GroupKind(), settings, plan, topic_name)
    assert spoiled.state == "refused"
    assert f"{changelog} has cleanup.policy=delete at cloud and compact at onprem" in spoiled.why
