"""The flow back of a migration: it begins at the cut, and Spark proves it from there."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.replicator.brokers.test_real_adoption import QUICK
from tests.replicator.real import applied, plan_for, producer, put, read_all, settings_of, wait_copied, workers
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.flow_records import read_flows, write_flow
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import Rejoin, RetireTopics, ServeTopics, StartFlow, StopFlow
from watershed.cutover.live.action_handler import LiveActionHandler
from watershed.cutover.live.application_control import NO_APPLICATIONS
from watershed.cutover.observations import ObservedFlow
from watershed.cutover.offsets import encode_offsets
from watershed.lab.preload import create_lab_topics
from watershed.replicator.ledger.ledger import read_ledger
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.plan import seal_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3


@pytest.fixture
def settings(kafka_pair: Lab) -> dict[str, Any]:
    return settings_of(kafka_pair)


def test_the_flow_back_begins_at_the_cut_and_reads_nothing_below_it(
    settings: dict[str, Any], kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """What the target had before anybody copied stays there, and what was copied need not be read again: with the
    guard alone, both would be looked at, and the former would be carried to a source that never had it."""
    create_lab_topics(kafka_pair.clusters["onprem"].bootstrap, [topic_name], 1)
    create_lab_topics(kafka_pair.clusters["cloud"].bootstrap, [topic_name], 1)
    with_company = {"delivery": "transactions", "merge": True}
    there = plan_for(settings, topic_name, topic_name, **with_company)
    back = plan_for(settings, topic_name, topic_name, routes=(("cloud", "onprem"),), state="paused", **with_company)
    plan = seal_plan(replace(there, flows=(there.flows[0], back.flows[0])))
    place = TopicPartition(topic_name, 0)
    away, here = producer(settings["cloud"]), producer(settings["onprem"])
    put(away, topic_name, 50)  # foreign, and older than the flow
    put(here, topic_name, 500, start=1_000)
    away.flush(), here.flush()
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path) as start, workers(plan, "onprem", tmp_path) as start_back:
        start()
        start_back()
        wait_copied(settings, plan, topic_name, 1)
        with Admin(settings["cloud"]) as admin:
            cut = {place: admin.offsets([place])[place].end}
        put(away, topic_name, 300, start=2_000)
        away.flush()
        world = LiveActionHandler(plan, back.flows[0], settings, NO_APPLICATIONS, time.monotonic)
        seen = world.answer(StartFlow(back.flows[0].id, encode_offsets(cut)))
        assert isinstance(seen, ObservedFlow)
        assert seen.state == "running"
        wait_copied(settings, replace(plan, flows=back.flows), topic_name, 1)
        request = ProofRequest(flows=(back.flows[0].id,), topics=(topic_name,), final=True, wait=30.0)
        proof = prove_flows(plan, request, tmp_path / "proof", session=lambda: spark)
        assert (proof["verdict"], proof["unproven"], proof["proven"]) == ("proven", 0, 300), proof
    home = [record for _, record in read_all(settings["onprem"], topic_name, 1)[0]]
    written = [record for _, record in read_all(settings["cloud"], topic_name, 1)[0]]
    assert len(home) == 800
    assert home[500:] == written[-300:]
    known = next(k for key, k in read_ledger(settings["onprem"], flow=back.flows[0].id).positions.items())
    assert known.position.begin.source == cut[place]
    applied(settings, plan)  # the same file again changes nothing of it
    record = read_flows(settings["onprem"])[back.flows[0].id]
    assert (record.state, record.begins) == ("running", {topic_name: {0: cut[place]}})
    with ControlWriter(settings["onprem"], "test") as writer:
        write_flow(writer, record.with_state("stopped"))


@pytest.mark.soak
def test_a_flow_that_goes_on_behind_what_came_back_is_proven(
    settings: dict[str, Any], kafka_pair: Lab, topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Its copies count; what applications wrote at the target, and the flow back has brought home, are none of them."""
    create_lab_topics(kafka_pair.clusters["onprem"].bootstrap, [topic_name], PARTITIONS)
    there = plan_for(settings, topic_name, topic_name)
    back = plan_for(
        settings, topic_name, topic_name, routes=(("cloud", "onprem"),), state="paused", delivery="transactions"
    )
    forward, flow_back = there.flows[0], back.flows[0]
    plan = seal_plan(replace(there, flows=(forward, flow_back)))
    here = producer(settings["onprem"])
    put(here, topic_name, 500)
    here.flush()
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path, QUICK) as start, workers(plan, "onprem", tmp_path, QUICK) as start_back:
        start()
        start_back()
        wait_copied(settings, there, topic_name, PARTITIONS)
        world = LiveActionHandler(plan, flow_back, settings, NO_APPLICATIONS, time.monotonic)
        world.answer(RetireTopics((topic_name,), forward.id))
        cut, copied = ends_of(settings["cloud"], topic_name), ends_of(settings["onprem"], topic_name)
        away = producer(settings["cloud"])
        put(away, topic_name, 300, start=2_000)
        away.flush()
        world.answer(StartFlow(flow_back.id, encode_offsets(cut)))
        wait_copied(settings, replace(plan, flows=back.flows), topic_name, PARTITIONS)
        world.answer(RetireTopics((topic_name,), flow_back.id))
        base, position = ends_of(settings["cloud"], topic_name), ends_of(settings["onprem"], topic_name)
        returns = {str(p.partition): [cut[p], copied[p], base[p], position[p]] for p in cut}
        seen = world.answer(Rejoin(forward.id, flow_back.id, "rejoin-x", {topic_name: returns}))
        assert (seen.ordered, seen.left) == ((topic_name,), {})
        world.answer(ServeTopics((topic_name,), forward.id))
        put(here, topic_name, 200, start=3_000)
        here.flush()
        wait_copied(settings, there, topic_name, PARTITIONS)
        request = ProofRequest(flows=(forward.id,), topics=(topic_name,), final=True, wait=30.0)
        proof = prove_flows(plan, request, tmp_path / "proof", session=lambda: spark)
        assert (proof["verdict"], proof["unproven"], proof["proven"]) == ("proven", 0, 700), proof
        world.answer(StopFlow(forward.id))
    home, written = (read_all(settings[alias], topic_name, PARTITIONS) for alias in ("onprem", "cloud"))
    ledger, ends = read_ledger(settings["cloud"], flow=forward.id), ends_of(settings["cloud"], topic_name)
    assert sum(map(len, home.values())) == 1_000
    for place, end in ends.items():
        one, other = home[place.partition], written[place.partition]
        assert [record for _, record in one] == [record for _, record in other]
        found = ledger.map(forward.id, topic_name, place.partition)
        assert [found.to_target(at, end) for at, _ in one] == [at for at, _ in other]


def ends_of(settings: Any, topic: str) -> dict[TopicPartition, int]:
    with Admin(settings) as admin:
        found = admin.offsets([TopicPartition(topic, number) for number in range(PARTITIONS)], "read_uncommitted")
        return {place: span.end for place, span in found.items()}
