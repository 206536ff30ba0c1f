"""A whole rehearsal on real brokers, by somebody who has the rights that it asks for and no other: real workers both
ways, an acl fence, own producers and consumers, and nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.guarded import Guarded, await_rights, grant, guarded
from tests.replicator.real import applied, plan_for, producer, put, read_all, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_latest_values
from watershed.clusters.control_topics import FLOWS_TOPIC, LEDGER_TOPIC
from watershed.clusters.flow_records import read_flows
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import RequestProof
from watershed.cutover.drill.drill_abandonment import find_copies_left_behind
from watershed.cutover.drill.drill_plan import plan_drill
from watershed.cutover.drill.drill_preflight import Drill, inspect_originals, list_drill_rights
from watershed.cutover.drill.drill_report import build_drill_report
from watershed.cutover.drill.drill_sequence import run_drill
from watershed.cutover.drill.drill_session import DrillSession
from watershed.cutover.drill.drill_topology import DRILL_PREFIX, build_drill_topology
from watershed.cutover.driver import RunEvent
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.policy import WavePolicy
from watershed.lab.preload import create_lab_topics
from watershed.topology.application_controls import PlanApplication
from watershed.topology.inventory import InventoryAcl
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import RollbackPolicy, Wave, WaveFence
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan, seal_plan

if TYPE_CHECKING:
    from watershed.clusters.settings import ConnectionSettings

__all__ = ["guarded"]  # the fixture
pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 2
POLICY = WavePolicy(
    poll_ms=300, max_lag=5_000, hold_ms=300, hold_times=2, watch_ms=1_000, settle_ms=500, empty_times=2,
    consumer_lag=5_000, stall_ms=180_000, barrier_bound_ms=180_000, canary_bound_ms=180_000,
)  # fmt: skip


def shop_plan(settings: dict[str, ConnectionSettings], name: str) -> Plan:
    topic = f"{name}.orders"
    base = plan_for(settings, name, topic, routes=(("onprem", "cloud"), ("cloud", "onprem")))
    there = replace(base.flows[0], naming=Naming("prefix", before="dc."))
    back = replace(
        base.flows[1],
        topics=plan_for(settings, name, f"dc.{topic}").flows[0].topics,
        naming=Naming("map", map=((f"dc.{topic}", topic),)),
        state="paused",
        delivery="transactions",
        delivery_reason="a way back",
    )
    wave = Wave(
        "all",
        (topic,),
        (f"{name}.billing",),
        ("checkout",),
        rollback=RollbackPolicy(reverse=back.id),
        fence=WaveFence("acl"),
    )
    checkout = {"checkout": PlanApplication(principal="User:checkout")}
    migration = PlanMigration(there.id, "consumers_first", (wave,), checkout)
    return seal_plan(replace(base, flows=(there, back), migration=migration))


def prove(settings: dict[str, ConnectionSettings], drill: Drill, wanted: RequestProof) -> ProofOutcome:
    """Every record behind the copies' own beginning, read on both sides."""
    flow = drill.drill.flow(wanted.flow)
    proven = unproven = 0
    for topic in wanted.topics:
        there = read_all(settings[flow.target], flow.target_topic(topic), PARTITIONS)
        here = read_all(settings[flow.source], topic, PARTITIONS)
        for number in range(PARTITIONS):
            copied, original = [record for _, record in there[number]], [record for _, record in here[number]]
            same = copied == original if wanted.final else copied == original[: len(copied)]
            proven, unproven = proven + len(copied), unproven + (0 if same else 1)
    return ProofOutcome(0, "different" if unproven else "proven", unproven, {"proven": proven})


def acls_of(settings: dict[str, ConnectionSettings]) -> dict[str, set[InventoryAcl]]:
    found = {}
    for alias, each in settings.items():
        with open_connection(each) as inquiry:
            found[alias] = set(admin_reads.read_acls(inquiry) or ())
    return found


@pytest.mark.soak
def test_a_wave_is_rehearsed_there_and_back_and_leaves_nothing(
    guarded: Guarded, topic_name: str, tmp_path: Path
) -> None:
    settings = guarded.admin
    topic = f"{topic_name}.orders"
    create_lab_topics(settings["onprem"].bootstrap[0], [topic], PARTITIONS)
    into = producer(settings["onprem"])
    put(into, topic, 3_000)
    into.flush(60)
    plan = applied(settings, shop_plan(settings, topic_name))
    before = read_all(settings["onprem"], topic, PARTITIONS)
    events: list[RunEvent] = []
    run = f"drill-{topic_name}"
    drill = Drill(plan, "all", run, build_drill_topology(plan, "all", run), guarded.settings("apply"), records=1_000)
    assert any(f"READ on topic {topic} is missing" in each for each in inspect_originals(drill).problems)
    rights = tuple(
        dict.fromkeys(replace(each, why="", wider=False) for each in list_drill_rights(drill) if not each.optional)
    )
    grant(guarded, "apply", rights)
    await_rights(guarded, "apply", rights)
    given = acls_of(settings)
    with workers(plan, "cloud", tmp_path) as start, workers(plan, "onprem", tmp_path) as start_back:
        start()
        start_back()
        rehearsing = DrillSession(
            drill, tmp_path / "evidence", lambda _folder, wanted: prove(settings, drill, wanted), events.append, "ann"
        )
        reverse = drill.moved.rollback.reverse if drill.moved.rollback is not None else None
        with rehearsing:
            done = run_drill(
                drill.drill,
                run,
                rehearsing.opened,
                rehearsing.end,
                replace(POLICY, reverse=reverse, fence=WaveFence("acl")),
                replace(POLICY, fence=WaveFence("acl")),
            )
    assert (done.result.state, done.back and done.back.state) == ("done", "done"), done.result.reason
    chain = rehearsing.journal.refresh()
    document = build_drill_report(plan, "all", run, plan_drill(drill.drill), chain, done)
    assert document["lacking"], "rights for the real groups were not given, and that is told"
    assert not document["left"]
    denied = {entry.deed for entry in chain.entries if entry.deed.endswith("Fence")}
    assert denied == {"RaiseFence", "LowerFence"}
    assert acls_of(settings) == given
    assert document["counted"] == {"lost": 0, "again": 0, "out_of_order": 0}
    assert document["records"]["copied"] == 1_000
    assert document["without_writes"]["there"] > 0
    assert document["without_writes"]["back"] > 0
    assert chain.unfinished() == []
    assert find_copies_left_behind(chain) == {}
    ids = {flow.id for flow in drill.drill.flows}
    for alias, found in settings.items():
        with Admin(found) as admin:
            assert not [name for name in admin.topics() if name.startswith(DRILL_PREFIX)], alias
            assert admin.group(drill.moved.consumers[0]).state == "Dead"
        assert not ids & read_flows(found).keys()
        assert not [each for each in read_statuses(found) if each.flow in ids]
        for control in (FLOWS_TOPIC, LEDGER_TOPIC):
            assert not [key for key in read_latest_values(found, control) if ids & {*key.split("|")}]
    assert read_all(settings["onprem"], topic, PARTITIONS) == before, "the original was touched"
