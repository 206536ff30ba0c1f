"""Kafka's own connect-mirror-client and kafka-consumer-groups read what a worker writes beside its copy."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replicator.brokers.test_real_copy import transactions
from tests.replicator.faults import Feeding, times
from tests.replicator.mirror_client import describe_group, look, read_formatted
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
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.errors import TopicMissing
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.sync_reports import read_sync_reports
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.ledger import read_ledger
from watershed.replicator.ledger.ledger_follower import LedgerFollower
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.naming import build_prefix_naming
from watershed.topology.plan import Plan

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

PARTITIONS = 2
EVERYTHING = MirrorCompatibility(
    "onprem", "cloud", heartbeats=True, checkpoints=True, offset_syncs="source", heartbeat_interval_ms=500,
    checkpoint_interval_ms=1_000, source_group="mirror-lag",
)  # fmt: skip
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def create(settings: Any, topic: str) -> None:
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic, PARTITIONS, 1, {})


def wait_reports(settings: Any, plan: Plan, *kinds: str) -> None:
    """Until the worker has told of each kind that it is fine."""
    flow, deadline = plan.flows[0], time.monotonic() + 120
    while True:
        found = [each for each in read_sync_reports(settings["cloud"]) if each.flow == flow.id]
        if {each.kind for each in found if each.state == "equal"} >= set(kinds):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.3)


def commit(settings: Any, group: str, positions: dict[TopicPartition, int]) -> None:
    with GroupOffsets(settings["onprem"]) as groups:
        assert groups.commit(group, {place: CommittedPosition(at) for place, at in positions.items()}) == {}


def translate(settings: Any, plan: Plan, positions: dict[TopicPartition, int]) -> dict[str, int]:
    """By our exact map: `<target topic>-<partition>` → offset."""
    flow = plan.flows[0]
    ledger = read_ledger(settings["cloud"], flow=flow.id)
    found = {}
    with Admin(settings["cloud"]) as admin:
        for place, at in positions.items():
            there = TopicPartition(flow.target_topic(place.topic), place.partition)
            end = admin.offsets([there], "read_uncommitted")[there].end
            found[f"{there.topic}-{there.partition}"] = ledger.map(flow.id, *place).to_target(at, end)
    return found


@pytest.mark.parametrize("naming", ["prefix", "identity"])
def test_the_mirror_client_sees_us_as_a_mirrormaker(own_pair, topic_name: str, tmp_path: Path, naming: str) -> None:
    """A transactional topic with aborted records, so that offsets differ; groups in the middle, at markers, at the end.
    RemoteClusterUtils.translateOffsets gives our exact positions."""
    settings = settings_of(own_pair)
    create(settings, topic_name)
    transactions(settings["onprem"], topic_name, 40)
    prefixed = {"naming": build_prefix_naming("onprem")} if naming == "prefix" else {}
    names = replace(EVERYTHING, source_alias=f"onprem-{naming}", source_group=f"lag-{topic_name}")
    if naming == "prefix":
        names = replace(names, source_alias="onprem")
    plan = applied(settings, plan_for(settings, topic_name, topic_name, compatibility=names, **prefixed))
    policy = (
        {} if naming == "prefix" else {"replication_policy_class": IDENTITY, "source_cluster_alias": "onprem-identity"}
    )
    with Admin(settings["onprem"]) as admin:  # what a MirrorMaker from `far` leaves there
        admin.create_topic("far.heartbeats", 1, 1, {})
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, PARTITIONS)
        with Admin(settings["onprem"]) as admin:
            ends = admin.offsets([TopicPartition(topic_name, number) for number in range(PARTITIONS)])
        wanted = {
            f"{topic_name}-{part}": {place: max(0, int(span.end * part)) for place, span in ends.items()}
            for part in (0, 0.1, 0.33, 0.5, 0.77, 1)
        }
        for group, positions in wanted.items():
            commit(settings, group, positions)
        wait_reports(settings, plan, "heartbeats", "checkpoints", "positions")
        time.sleep(4)  # a round of checkpoints that began behind the commits, and a few heartbeats
        for group, positions in wanted.items():
            seen = look(tmp_path, settings["cloud"], names.source_alias, group, **policy)
            translated = {name.removeprefix("translated "): int(at) for name, at in seen.items() if " " in name}
            assert translated == translate(settings, plan, positions), group
        assert seen["replicationHops"] == "1"
        assert look(tmp_path, settings["cloud"], "far", "-", **policy)["replicationHops"] == "2"
        assert names.source_alias in seen["upstreamClusters"].split(",")
        assert names.checkpoints_topic in seen["checkpointTopics"].split(",")
        assert names.name_mirror("heartbeats") in seen["heartbeatTopics"].split(",")
        assert plan.flows[0].target_topic(topic_name) in seen["remoteTopics"].split(",")
        heartbeats = read_formatted(tmp_path, settings["cloud"], names.name_mirror("heartbeats"), "HeartbeatFormatter")
        told = [line for line in heartbeats if f"sourceClusterAlias={names.source_alias}" in line]
        at = [int(line.partition("timestamp=")[2].rstrip("}")) for line in told]
        print(f"{len(at)} heartbeats, {(at[-1] - at[0]) / (len(at) - 1):.0f} ms apart")
        assert len(at) > 3
        assert at == sorted(at)
        assert time.time() * 1000 - at[-1] < 30_000
        syncs = read_formatted(tmp_path, settings["onprem"], "mm2-offset-syncs.cloud.internal", "OffsetSyncFormatter")
        ours = [line for line in syncs if f"topicPartition={topic_name}-" in line]
        assert len(ours) >= PARTITIONS
        for line in ours:
            [number, upstream, downstream] = map(
                int, re.findall(r"topicPartition=.*-(\d+), upstreamOffset=(\d+), downstreamOffset=(\d+)", line)[0]
            )
            place = TopicPartition(topic_name, number)
            [exact] = translate(settings, plan, {place: upstream}).values()
            assert exact == downstream, line
        shown = describe_group(tmp_path, settings["onprem"], f"lag-{topic_name}")
        assert shown == {tuple(place): (span.end, span.end, 0) for place, span in ends.items()}
    assert_exact_copy(settings, plan, topic_name, PARTITIONS)


def test_the_lag_that_tools_show_is_the_real_one(own_pair, topic_name: str, tmp_path: Path) -> None:
    """While nothing copies, records pile up: the lag is their number. Afterwards it is zero again."""
    settings = settings_of(own_pair)
    create(settings, topic_name)
    into = producer(settings["onprem"])
    put(into, topic_name, 1_000)
    into.flush()
    names = MirrorCompatibility("onprem", "cloud", source_group=f"lag-{topic_name}")
    plan = applied(settings, plan_for(settings, topic_name, topic_name, compatibility=names))
    with workers(plan, "cloud", tmp_path) as start:
        worker = start()
        wait_copied(settings, plan, topic_name, PARTITIONS)
        wait_lag(tmp_path, settings, f"lag-{topic_name}", 0)
        worker.kill()
        put(into, topic_name, 500, start=1_000)
        into.flush()
        assert sum(lag for *_, lag in describe_group(tmp_path, settings["onprem"], f"lag-{topic_name}").values()) == 500
        start()
        wait_lag(tmp_path, settings, f"lag-{topic_name}", 0)
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == 1_500


def wait_lag(home: Path, settings: Any, group: str, records: int) -> None:
    deadline, shown = time.monotonic() + 120, {}
    while time.monotonic() < deadline:
        shown = describe_group(home, settings["onprem"], group)
        if len(shown) == PARTITIONS and sum(lag for *_, lag in shown.values()) == records:
            return
        time.sleep(1)
    raise AssertionError(f"never a lag of {records}: {shown}")


@pytest.mark.parametrize("delivery", ["sequence", "transactions"])
def test_no_position_is_ahead_of_what_is_durable(own_pair, topic_name: str, tmp_path: Path, delivery: str) -> None:
    """The worker is killed with -9 five times under load. Whoever reads the position at the source, and then the
    target, finds at the target everything that is in front of it."""
    settings = settings_of(own_pair)
    create(settings, topic_name)
    group = f"lag-{topic_name}"
    names = MirrorCompatibility("onprem", "cloud", source_group=group)
    more = {"delivery": "transactions", "merge": True} if delivery == "transactions" else {}
    plan = applied(settings, plan_for(settings, topic_name, topic_name, compatibility=names, **more))
    into = producer(settings["onprem"])
    quick = times(session=3) + "\nimport watershed.replicator.sync.copied_positions as _p; _p._EVERY_MS = 50\n"
    stop, checks, faults = threading.Event(), [0], []
    watch = threading.Thread(target=watch_positions, args=(settings, plan, topic_name, group, stop, checks, faults))
    with (
        workers(plan, "cloud", tmp_path, quick) as start,
        Feeding(lambda count, start: put(into, topic_name, count, start=start), 2_000) as fed,
    ):
        worker = start()
        watch.start()
        for round_ in range(5):
            wait_progress(settings, plan, topic_name, PARTITIONS, 3_000 * (round_ + 1))
            worker.kill()
            worker = start()
        records = fed.end()
        into.flush()
        wait_copied(settings, plan, topic_name, PARTITIONS)
        wait_lag(tmp_path, settings, group, 0)
        stop.set()
        watch.join(60)
    print(f"{checks[0]} positions compared, {records} records")
    assert faults == []
    assert checks[0] > 30
    assert assert_exact_copy(settings, plan, topic_name, PARTITIONS) == records


def watch_positions(
    settings: Any, plan: Plan, topic: str, group: str, stop: threading.Event, checks: list[int], faults: list[str]
) -> None:
    flow = plan.flows[0]
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ledger = LedgerFollower(settings["cloud"], flow.id, range(SLOT_COUNT))
    while not stop.is_set():
        try:
            with GroupOffsets(settings["onprem"]) as source, GroupOffsets(settings["cloud"]) as target:
                told = source.held([group])[group].positions
                logs = target.logs(places)
            known = ledger.read()
        except TopicMissing:
            continue
        for place, position in told.items():
            durable = known.map(flow.id, *place).source_position(logs[place].stable)
            checks[0] += 1
            if position.offset > durable:
                faults.append(f"{place}: {position.offset} told, {durable} durable")
