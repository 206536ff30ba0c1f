"""Two workers and a copy that is slowed down: its budget stops the flow once, a person lets it go on, and the same
lateness does not stop it again; nothing is lost or doubled."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replicator.brokers.test_real_partition_control import is_shared, traffic, until
from tests.replicator.real import applied, assert_exact_copy, end_of, plan_for, settings_of, wait_copied, workers
from tests.replicator.status_view import read_statuses
from watershed.cli.flow_record_text import describe_flow_record
from watershed.cli.status import _flows
from watershed.clusters.admin import Admin
from watershed.clusters.budget_breaches import explain_breach, pick_open_breach, read_budget_breaches
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.flow_records import read_flows
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.cutover.actions import ReadFlow, StartFlow
from watershed.cutover.live.action_handler import LiveActionHandler
from watershed.cutover.operations.flow_state import propose_flow_order
from watershed.plugins.operators import flow_status
from watershed.topology.breach_policy import BreachPolicy
from watershed.topology.plan import Plan

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

PARTITIONS = 4
LIMIT_MS = 3_000
HOLD_S = 2
SLOW = 1_000  # bytes a second, of all workers together
PRELUDE = f"from watershed.replicator.worker import breach_watch; breach_watch.BREACH_HOLD_S = {HOLD_S}"


class Scene:
    """One flow that declares `slo.lag.max` and an action."""

    def __init__(self, settings: Any, topic: str) -> None:
        self.settings, self.topic = settings, topic
        with Admin(settings["onprem"]) as admin:
            admin.create_topic(topic, PARTITIONS, 1)

    def apply(self, action: Any, quota: int | None = None) -> Plan:
        policy = BreachPolicy(action, LIMIT_MS)
        return applied(self.settings, plan_for(self.settings, self.topic, self.topic, quota=quota, breach=policy))

    @property
    def flow(self) -> str:
        return f"onprem-to-cloud-{self.topic}"

    def find_breach(self) -> Any:
        cloud = self.settings["cloud"]
        return pick_open_breach(read_flows(cloud).get(self.flow), read_budget_breaches(cloud))

    def explain(self) -> str:
        cloud = self.settings["cloud"]
        return explain_breach(read_flows(cloud).get(self.flow), read_budget_breaches(cloud), "shop.yaml")

    def list_lines(self) -> list[dict[str, Any]]:
        """What is written down for good of orders about the flow; a line that two workers wrote is one."""
        records = read_control_log(self.settings["cloud"], FLOWS_TOPIC, [0])
        found = {each.key: each.value for each in records if each.key.startswith(f"journaled|order/{self.flow}/")}
        return [each for each in found.values() if each is not None]

    def list_reports(self) -> list[PartitionStatus]:
        return [each for each in read_statuses(self.settings["cloud"]) if each.flow == self.flow]

    def is_in(self, *states: str) -> bool:
        reports = self.list_reports()
        return len(reports) == PARTITIONS and {each.state for each in reports} <= set(states)

    def is_caught_up(self) -> bool:
        return self.is_in("running") and all(
            each.lag_ms is not None and each.lag_ms <= LIMIT_MS for each in self.list_reports()
        )

    def count_copied(self) -> int:
        return sum(end_of(self.settings["cloud"], self.topic, number) for number in range(PARTITIONS))

    def order(self, plan: Plan, kind: Any) -> list[str]:
        return [*propose_flow_order(plan, self.settings.__getitem__, self.flow, kind).carry_out("ann")]


def test_a_budget_pauses_a_slow_flow_once(kafka_pair, topic_name, tmp_path, monkeypatch):
    scene = Scene(settings_of(kafka_pair), topic_name)
    plan = scene.apply("pause")
    with workers(plan, "cloud", tmp_path, PRELUDE) as start:
        start(), start()
        until(lambda: is_shared(scene.settings, plan, 2))
        with traffic(scene.settings, topic_name):
            until(scene.is_caught_up)
            time.sleep(2)  # each worker looks at its budgets once a second
            assert scene.find_breach() is None
            plan = scene.apply("pause", SLOW)
            took = until(lambda: scene.find_breach() is not None)
            until(lambda: scene.is_in("paused"))
            print(f"\npaused after {took:.1f} s (limit {LIMIT_MS} ms, hold {HOLD_S} s): {scene.explain()}")
            breach = scene.find_breach()
            assert (breach.number, breach.action, breach.budget) == (1, "pause", "slo.lag.max")
            assert breach.lag_ms > LIMIT_MS
            stood = scene.count_copied()
            time.sleep(3)
            assert scene.count_copied() == stood, "a paused flow copies nothing"
            assert read_flows(scene.settings["cloud"])[scene.flow].state == "running", "the order of persons is kept"
            report = scene.list_reports()[0]
            assert "paused by slo.lag.max" in (report.error or "")
            assert "topology flow resume" in (report.remedy or "")

            [row] = _flows(plan, {"cloud": scene.settings["cloud"]}, Path("shop.yaml"))
            assert (row["state"], row["desired"], row["breach"]["number"]) == ("paused", "paused", 1)
            [line] = [each for each in describe_flow_record(row) if "paused by slo.lag.max" in each]
            assert line.endswith("lets it go on")
            monkeypatch.setattr(flow_status, "find_frozen_plan", lambda _hash: SimpleNamespace(read=lambda: plan))
            monkeypatch.setattr(
                "watershed.clusters.settings.resolve_connection_settings", lambda each: scene.settings[each.alias]
            )
            assert flow_status.read_expected_partitions(plan.hash)["standing"] == {scene.flow: "paused by slo.lag.max"}

            # a migration does not begin, and one that runs is refused with what to do
            flow = plan.flows[0]
            handler = LiveActionHandler(plan, flow, scene.settings, SimpleNamespace(), time.time)  # type: ignore[arg-type]
            seen: Any = handler.answer(ReadFlow())
            assert "topology flow resume" in seen.paused_topics[topic_name]
            seen = handler.answer(StartFlow(scene.flow, answers_breach=False))  # a failover that was refused
            assert seen.paused_topics
            assert scene.find_breach() == breach

            told = scene.order(plan, "resume")
            assert "that is answered now" in told[0]
            until(lambda: scene.count_copied() > stood)
            time.sleep(LIMIT_MS / 1000 + 3 * HOLD_S)
            assert max(each.lag_ms or 0 for each in scene.list_reports()) > LIMIT_MS, "it is still as slow"
            assert scene.find_breach() is None
            assert not scene.is_in("paused"), "the same breach does not stop it again"
            print(f"resumed; {max(e.lag_ms or 0 for e in scene.list_reports()) / 1000:.1f} s behind, and not paused")

            plan = scene.apply("pause")
            until(scene.is_caught_up)
            time.sleep(2)
            plan = scene.apply("pause", SLOW)
            took = until(lambda: scene.find_breach() is not None)
            assert scene.find_breach().number == 2
            print(f"within the budget again, slow again: breach 2 after {took:.1f} s")
            plan = scene.apply("pause")
        started: Any = handler.answer(StartFlow(scene.flow, {}))
        assert (started.state, dict(started.paused_topics)) == ("running", {}), "a run that starts a flow answers it"
        wait_copied(scene.settings, plan, topic_name, PARTITIONS)
    cloud = scene.settings["cloud"]
    assert read_budget_breaches(cloud)[scene.flow].answered
    with ControlWriter(cloud, "a test") as writer:  # a breach that nobody answers, and a tombstone for the flow
        writer.put(FLOWS_TOPIC, breach.key, replace(breach, number=3).to_json(), 0)
        assert scene.find_breach().number == 3
        writer.put(FLOWS_TOPIC, scene.flow, None, 0)
    scene.apply("pause")
    assert scene.find_breach() is None, "the flow begins anew"
    kinds = [line["id"] if line["kind"] == "pause" else line["kind"] for line in scene.list_lines()]
    assert kinds == ["breach-1", "resume", "breach-2"]
    print(f"{assert_exact_copy(scene.settings, plan, topic_name, PARTITIONS)} records, each once")


def test_a_budget_that_fails_halts_every_partition(kafka_pair, topic_name, tmp_path):
    scene = Scene(settings_of(kafka_pair), topic_name)
    plan = scene.apply("fail")
    with workers(plan, "cloud", tmp_path, PRELUDE) as start:
        start()
        with traffic(scene.settings, topic_name):
            until(scene.is_caught_up)
            time.sleep(2)
            plan = scene.apply("fail", SLOW)
            took = until(lambda: scene.is_in("over_budget"))
            report = scene.list_reports()[0]
            print(f"\nhalted after {took:.1f} s: {report.error}")
            assert "stopped by slo.lag.max" in (report.error or "")
            assert f"topology flow resume {scene.flow}" in (report.remedy or "")
            plan = scene.apply("fail")
            assert scene.is_in("over_budget"), "to apply is no answer"
        with workers(plan, "cloud", tmp_path, PRELUDE) as again:
            second = again()
            until(lambda: is_shared(scene.settings, plan, 2))
            until(lambda: any(each.pid == second.pid for each in scene.list_reports()))
            assert scene.is_in("over_budget"), "nor is another worker"
            scene.order(plan, "restart")
            wait_copied(scene.settings, plan, topic_name, PARTITIONS)
    assert [line["kind"] for line in scene.list_lines()] == ["fail", "restart"]
    print(f"{assert_exact_copy(scene.settings, plan, topic_name, PARTITIONS)} records, each once")
