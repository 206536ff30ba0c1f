"""Three waves of three strategies on real brokers, with live producers and consumers: their own records are the judge.

One flow carries all topics, one way back all that has moved. After the first wave the flow's worker is killed: what has
moved is nobody's to complain about, and what has not goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.faults import times
from tests.replicator.real import applied, plan_for, read_all, settings_of, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.flow_records import read_flows
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import RequestProof
from watershed.cutover.driver import RunDriver, RunEvent
from watershed.cutover.errors import WaveBlocked, WaveDone
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.run_opening import open_run
from watershed.cutover.run_plan import plan_migration
from watershed.cutover.wave_states import list_wave_states
from watershed.lab import sample_applications
from watershed.lab.account import build_account, find_applications
from watershed.lab.preload import create_lab_topics
from watershed.replicator.partition_states import REMEDIES
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import RollbackPolicy, Wave, WaveStrategy
from watershed.topology.plan import Plan, seal_plan

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.soak]

PARTITIONS = 2
WAVES: tuple[tuple[str, WaveStrategy], ...] = (
    ("one", "consumers_first"),
    ("two", "producers_first"),
    ("three", "fenced"),
)


@dataclass(frozen=True)
class Shop:
    """For each wave a topic, a producer of it and a group that reads it; all of it under unique names."""

    name: str
    home: Path
    settings: dict[str, ConnectionSettings]
    producers: dict[str, sample_applications.SampleApplication]
    consumers: dict[str, sample_applications.SampleApplication]

    def topic(self, wave: str) -> str:
        return f"{self.name}.{wave}"

    def group(self, wave: str) -> str:
        return f"{self.name}.group.{wave}"

    def plan(self) -> Plan:
        routes = (("onprem", "cloud"), ("cloud", "onprem"))
        base = plan_for(self.settings, self.name, *(self.topic(wave) for wave, _ in WAVES), routes=routes)
        forward, back = base.flows
        names = [wave for wave, _ in WAVES]
        waves = tuple(
            Wave(
                wave,
                (self.topic(wave),),
                (self.group(wave),),
                (self.producers[wave].name,),
                after=tuple(names[:at]),
                strategy=strategy,
                rollback=RollbackPolicy(until_ms=3_600_000, reverse=back.id),
            )
            for at, (wave, strategy) in enumerate(WAVES)
        )
        addresses = {app.name: PlanApplication(app.http) for app in self.producers.values()}
        addresses |= {self.group(wave): PlanApplication(app.http) for wave, app in self.consumers.items()}
        back = replace(back, state="paused", delivery="transactions")  # as the compiler has it for a flow back
        migration = PlanMigration(forward.id, "consumers_first", waves, addresses)
        return seal_plan(replace(base, flows=(forward, back), migration=migration))

    def prove(self, wanted: RequestProof) -> ProofOutcome:
        """Not Spark's: both sides are read and compared record by record."""
        proven = unproven = 0
        for topic in wanted.topics:
            there = read_all(self.settings["cloud"], topic, PARTITIONS)
            here = read_all(self.settings["onprem"], topic, PARTITIONS)
            for number in range(PARTITIONS):
                copied = [record for _, record in there[number]]
                original = [record for _, record in here[number]]
                same = copied == original if wanted.final else copied == original[: len(copied)]
                proven, unproven = proven + len(copied), unproven + (0 if same else 1)
        return ProofOutcome(0, "different" if unproven else "proven", unproven, {"proven": proven})

    def where(self, wave: str) -> set[tuple[str, str]]:
        seen = [sample_applications.ask_application(app) for app in (self.producers[wave], self.consumers[wave])]
        return {(found["state"], found["cluster"]) for found in seen}

    def migrate(self, plan: Plan, wave: str, evidence: Path, events: list[RunEvent]) -> RunDriver:
        declared = plan_migration(plan, wave)
        quick = replace(
            declared.policy, poll_ms=200, max_lag=5_000, hold_ms=200, hold_times=2, watch_ms=1_000, empty_times=2,
            after_ms=1_000, consumer_lag=5_000, stall_ms=180_000, barrier_bound_ms=180_000, canary_bound_ms=180_000,
        )  # fmt: skip
        going = plan_migration(plan, wave, quick)
        return open_run(plan, going, self.settings, prove=self.prove, say=events.append, evidence=evidence / wave)

    def lost(self) -> int:
        """By the applications' own records."""
        return sum(group.lost for group in build_account(find_applications(self.home)).groups)

    def loud(self, flow: str) -> dict[str, str]:
        """What partitions of the flow complain about."""
        reports = [each for alias in self.settings for each in read_statuses(self.settings[alias]) if each.flow == flow]
        return {f"{each.topic}-{each.partition}": each.state for each in reports if each.state in REMEDIES}

    def served(self, cluster: str, flow: str) -> set[str]:
        """Topics of the flow that a worker has reported."""
        reports = [each for each in read_statuses(self.settings[cluster]) if each.flow == flow]
        return {each.topic for each in reports if each.source_position > 0}


@pytest.fixture
def shop(kafka_pair: Lab, topic_name: str, tmp_path: Path) -> Iterator[Shop]:
    home, settings = tmp_path / "apps", settings_of(kafka_pair)
    here = kafka_pair.clusters["onprem"]
    found = Shop(topic_name, home, settings, {}, {})
    create_lab_topics(here.bootstrap, [found.topic(wave) for wave, _ in WAVES], PARTITIONS)
    at = ["--cluster", "onprem", "--bootstrap", here.bootstrap]

    def produce(wave: str) -> None:
        more = ["--transactional-id", f"{topic_name}.{wave}", "--transaction-records", "10"] if wave == "two" else []
        arguments = ["watershed.lab.orders_producer", "--topics", found.topic(wave), "--rate", "60", *more, *at]
        found.producers[wave] = sample_applications.start_application(home, f"orders-{wave}", arguments)

    def consume(wave: str) -> None:
        arguments = ["watershed.lab.billing_consumer", "--group", found.group(wave), "--topics", found.topic(wave), *at]
        found.consumers[wave] = sample_applications.start_application(home, f"billing-{wave}", arguments)

    try:
        with ThreadPoolExecutor(6) as pool:
            jobs = [pool.submit(job, wave) for wave, _ in WAVES for job in (produce, consume)]
            for job in jobs:
                job.result()
        yield found
    finally:
        sample_applications.stop_applications(home)


def _until(what: str, holds: object, seconds: float = 180) -> None:
    assert callable(holds)
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_three_waves_lose_and_repeat_nothing(shop: Shop, tmp_path: Path) -> None:
    plan = applied(shop.settings, shop.plan())
    forward, back = plan.flows
    topics = {wave: shop.topic(wave) for wave, _ in WAVES}
    events: list[RunEvent] = []
    with workers(plan, "cloud", tmp_path, times(session=3)) as start, workers(plan, "onprem", tmp_path) as start_back:
        worker = start()
        start_back()
        _until("the flow is served", lambda: shop.served("cloud", forward.id) == set(topics.values()))
        for wave, _ in WAVES:
            sample_applications.wait_for_count(shop.consumers[wave], "processed", 50, seconds=180)
        with pytest.raises(WaveBlocked, match="comes after one, two, which are not done"):
            shop.migrate(plan, "three", tmp_path, events).run()
        moved: set[str] = set()
        for wave, strategy in WAVES:
            result = shop.migrate(plan, wave, tmp_path, events).run()
            assert result.state == "done", (strategy, result)
            assert shop.where(wave) == {("running", "cloud")}
            moved.add(topics[wave])
            assert read_flows(shop.settings["cloud"])[forward.id].retired == frozenset(moved)
            if wave == "one":
                worker.kill()
                worker = start()  # it finds the applications' own writes, and takes them for nobody's
            acked = sample_applications.ask_application(shop.producers[wave])["acked"]
            sample_applications.wait_for_count(shop.producers[wave], "acked", acked + 30, seconds=180)
            with pytest.raises(WaveDone):
                shop.migrate(plan, wave, tmp_path, events).run()
        assert read_flows(shop.settings["cloud"])[forward.id].state == "stopped"
        assert applied(shop.settings, plan) == plan  # and what has moved stays moved
        assert read_flows(shop.settings["cloud"])[forward.id].retired == frozenset(moved)
        _until("the way back carries all that has moved", lambda: shop.served("onprem", back.id) == moved)
        assert shop.loud(forward.id) == {}
        assert shop.loud(back.id) == {}
        for app in shop.producers.values():
            sample_applications.stop_client(app)
        for app in shop.consumers.values():
            _until(
                "everything is read",
                lambda: not any(group.lost for group in build_account(find_applications(shop.home)).groups),
            )
            sample_applications.stop_client(app)
        _until("everything is carried back", lambda: all(_same(shop, topic) for topic in moved))
    found = build_account(find_applications(shop.home))
    assert len(found.groups) == len(WAVES)
    for group in found.groups:
        assert (group.lost, group.repeated, group.out_of_order_per_key) == (0, 0, 0), group
    assert {move.application for move in found.moves} >= {app.name for app in shop.producers.values()}
    chain = JournalChain(plan.topology)
    chain.follow(JournalTopicLog(shop.settings["cloud"]).read(0))
    assert [each.state for each in list_wave_states(plan, chain)] == ["done"] * 3
    assert {each.truth for each in list_wave_states(plan, chain)} == {"cloud"}


def _same(shop: Shop, topic: str) -> bool:
    """Whether the source holds every record of the target again, once and in its order."""
    here, there = (read_all(shop.settings[side], topic, PARTITIONS) for side in ("onprem", "cloud"))
    return {n: [r for _, r in here[n]] for n in here} == {n: [r for _, r in there[n]] for n in there}
