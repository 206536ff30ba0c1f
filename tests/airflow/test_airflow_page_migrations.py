"""What the page Replication says of migrations: waves, runs, and a run step by step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow import page_world
from tests.airflow.page_world import ADDRESS, NOW, asked
from tests.cutover.fake_log import FakeLog
from tests.cutover.late_world import AUDIT, REPORTS, late_plan, move, switched
from tests.cutover.world import POLICY, REVERSE, World, a_migration
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.clusters.control_follower import FollowedRecord
from watershed.clusters.control_topics import JOURNAL_TOPIC
from watershed.cutover.drill.drill_topology import build_drill_topology
from watershed.cutover.driver import approve_all
from watershed.cutover.journal.hash_chain import Journal
from watershed.cutover.journal.signing import SIGNED_HASH_PREFIX, Signing
from watershed.cutover.observations import ProofOutcome
from watershed.plugins.page.cluster_snapshots import ControlTopicsView
from watershed.plugins.page.migration_rows import build_migrations_view
from watershed.plugins.page.step_evidence import flatten_evidence
from watershed.topology.plan import Plan

pytestmark = pytest.mark.airflow
RUN = page_world.RUNS[1]


@pytest.fixture
def shop(tmp_path: Path) -> Plan:
    return page_world.plan_in(tmp_path, page_world.one(ADDRESS))


def journaled(plan: Plan, log: FakeLog, *, signed: bool = False) -> Any:
    view = ControlTopicsView()
    values = [json.dumps(value).encode() for value in log.records]
    view.take(FollowedRecord(JOURNAL_TOPIC, offset, "", value) for offset, value in enumerate(values))
    return view.snapshot(NOW).journals[plan.topology, signed]


def run(plan: Plan, log: FakeLog, name: str = RUN, **changes: Any) -> Any:
    world = World()
    arguments = {"wave": "orders", "actor": "airflow migrate__shop for ann", "run_id": f"migrate.{name}.orders"}
    arguments["journal"] = Journal(log, plan.topology, name, world.clock)
    arguments["approve"] = page_world.approved
    return a_migration(world, log, plan=plan, **(arguments | changes))


def test_a_run_under_way_shows_its_steps_its_next_and_the_point_of_no_return(shop: Plan) -> None:
    log = FakeLog()
    run(shop, log).run(until_step="tail_proof")
    told = build_migrations_view(shop, journaled(shop, log), lambda _hash: None, wanted=RUN)
    shown = told["run"]
    states = {step["name"]: step["state"] for step in shown["steps"]}
    assert (states["tail_proof"], states["point_of_no_return"]) == ("done", "planned")
    assert (shown["next"], shown["point_of_no_return"], shown["crossed"]) == (*["point_of_no_return"] * 2, False)
    assert (shown["dag"], shown["dag_run"], shown["state"]) == ("migrate__shop", RUN, "under_way")
    [decision] = shown["decisions"]
    assert (decision["by"], decision["granted"], decision["step"]) == ("ops", True, "approval")
    proof = dict(next(step["evidence"] for step in shown["steps"] if step["name"] == "tail_proof"))
    assert proof["verdict"] == "proven"
    assert [(wave["name"], wave["state"]) for wave in told["waves"]] == [
        ("orders", "under_way"),
        ("invoices", "blocked"),
    ]


def test_a_run_whose_process_died_in_a_step_says_so(shop: Plan) -> None:
    log = FakeLog()
    run(shop, log).run(until_step="drain")
    while log.records[-1]["kind"] != "intent":
        log.records.pop()  # it died before it wrote the end of the step
    journal, last_ms = journaled(shop, log), log.records[-1]["at_ms"]
    for later_ms, overdue in ((60_000, False), (86_400_000, True)):
        told = build_migrations_view(shop, journal, lambda _hash: None, RUN, last_ms + later_ms)["run"]
        assert (told["state"], told["overdue"]) == ("under_way", overdue)


def test_a_run_that_was_taken_back_says_why_and_what(shop: Plan) -> None:
    log, bad = FakeLog(), ProofOutcome(0, "different", 3, {"altered": 3}, "/proofs/tail.json", "root")
    good = ProofOutcome(0, "proven", 0, {"proven": 3}, "/proofs/history.json", "root")
    run(shop, log, prove=lambda wanted: bad if wanted.final else good).run()
    told = build_migrations_view(shop, journaled(shop, log), lambda _hash: None)
    shown = told["run"]
    states = {step["name"]: step["state"] for step in shown["steps"]}
    assert shown["state"] == "rolled_back"
    assert (states["tail_proof"], states["fence_producers"]) == ("refused", "taken_back")
    assert "3 unproven" in next(step["refused"] for step in shown["steps"] if step["name"] == "tail_proof")
    assert "undo_fence_producers" in [step["name"] for step in shown["undone"]]
    assert shown["next"] is None
    assert told["waves"][0]["truth"] == "onprem"


def test_a_finished_run_has_crossed(shop: Plan) -> None:
    log = FakeLog()
    run(shop, log).run()
    told = build_migrations_view(shop, journaled(shop, log), lambda _hash: None)
    assert (told["run"]["state"], told["run"]["crossed"], told["run"]["next"]) == ("done", True, None)
    assert (told["waves"][0]["state"], told["waves"][0]["truth"], told["waves"][1]["state"]) == (
        "done",
        "cloud",
        "not_begun",
    )


def test_groups_that_stay_longer_are_named_with_the_time_since_which_they_do() -> None:
    log, plan = FakeLog(), late_plan()
    world = switched(log)
    assert move(world, log, REPORTS, run_id="late").run().state == "done"
    told = build_migrations_view(plan, journaled(plan, log), lambda _hash: None, wanted="late")
    assert [(wave["name"], wave["at_source"]) for wave in told["waves"]] == [
        ("producers", []),
        (REPORTS, []),
        (AUDIT, [AUDIT]),
    ]
    assert isinstance(told["waves"][2]["since_ms"], int)
    assert told["run"]["state"] == "done"
    assert {step["state"] for step in told["run"]["steps"]} == {"done"}


def test_a_run_of_an_older_file_is_shown_by_its_own_plan_or_its_own_steps(shop: Plan, tmp_path: Path) -> None:
    log = FakeLog()
    run(shop, log).run(until_step="lag_gate")
    text = page_world.one(ADDRESS).replace("hold: 2s", "hold: 3s")
    newer = page_world.plan_in(tmp_path, text)
    kept = build_migrations_view(newer, journaled(newer, log), lambda _hash: shop)["run"]
    assert (kept["another_plan"], kept["plan_known"], kept["next"]) == (True, True, "history_proof")
    lost = build_migrations_view(newer, journaled(newer, log), lambda _hash: None)["run"]
    assert (lost["another_plan"], lost["plan_known"]) == (True, False)


def test_a_journal_that_was_changed_is_shown_as_far_as_it_is_whole(shop: Plan) -> None:
    log = FakeLog()
    run(shop, log).run(until_step="lag_gate")
    log.records[3]["observation"] = {"outcome": {"forged": True}, "refused": None}
    told = build_migrations_view(shop, journaled(shop, log), lambda _hash: None)
    assert "was changed after it was written" in told["journal"]["broken"]
    assert told["journal"]["entries"] == 3


def test_a_run_that_is_not_in_the_journal_is_not_replaced_by_another(shop: Plan) -> None:
    log = FakeLog()
    run(shop, log).run(until_step="lag_gate")
    assert build_migrations_view(shop, journaled(shop, log), lambda _hash: None, wanted="never")["run"] is None


def test_the_page_without_a_migration_says_so(page: TestClient) -> None:
    assert asked(page, "migrations", topology="sites")["declared"] is False
    assert asked(page, "migrations", topology="shop")["waves"][0]["name"] == "orders"


QUICK = replace(POLICY, reverse=REVERSE, consumer_lag=None, strategy="fenced")


@pytest.fixture
def there_and_back(tmp_path: Path) -> Plan:
    """The shop, with a flow back."""
    return page_world.plan_in(tmp_path, page_world.with_a_way_back(ADDRESS))


def test_a_wave_that_went_home_again_is_not_done() -> None:
    plan, log, world = back_plan(), FakeLog(), BackWorld()
    moved = a_migration(world, log, plan=plan, policy=QUICK, run_id="there", approve=approve_all).run()
    assert moved.state == "done"
    world.tick()
    assert a_rollback(world, log, plan=plan, approve=approve_all).run().state == "done"
    told = build_migrations_view(plan, journaled(plan, log), lambda _hash: None)
    assert [each["kind"] for each in told["runs"]] == ["rollback", "migrate"]
    assert (told["run"]["kind"], told["run"]["state"], told["run"]["crossed"]) == ("rollback", "done", True)
    wave = told["waves"][0]
    assert (wave["state"], wave["truth"], wave["kind"]) == ("rolled_back", "onprem", "rollback")


def test_a_rehearsal_is_told_from_a_move_and_a_failover_says_what_it_lost(there_and_back: Plan) -> None:
    plan, log = there_and_back, FakeLog()
    lost = page_world.rehearsed_and_lost(plan, log)
    told = build_migrations_view(plan, journaled(plan, log), lambda _hash: None)
    assert [each["kind"] for each in told["runs"]] == ["failover", "drill"]
    loss = told["run"]["loss"]
    assert loss["offsets"] >= lost > 0
    assert "are not copied" in loss["told"]
    assert "ops said yes" in loss["accepted"]
    wave = told["waves"][0]
    assert (wave["kind"], wave["rehearsed"]["run"], wave["truth"]) == ("failover", "drill-1", "cloud")
    drill = build_migrations_view(plan, journaled(plan, log), lambda _hash: None, wanted="drill-1")["run"]
    assert (drill["kind"], drill["loss"]) == ("drill", None)


def test_the_steps_of_a_rehearsal_are_known_before_they_begin(there_and_back: Plan) -> None:
    plan, log = there_and_back, FakeLog()
    own = build_drill_topology(plan, "orders", "drill-2")
    fields = {"actor": "ann", "plan_hash": own.hash, "wave": "orders"}
    Journal(log, plan.topology, "first", World().clock).append("drill-2", "run", "intent", {"kind": "drill"}, **fields)
    shown = build_migrations_view(plan, journaled(plan, log), lambda _hash: None)["run"]
    assert shown["another_plan"] is False
    assert (shown["next"], shown["steps"][-1]["name"]) == ("look_at_originals", "seal")


def test_gates_say_what_they_saw_in_a_line(shop: Plan) -> None:
    log = FakeLog()
    run(shop, log).run(until_step="tail_proof")
    steps = {
        step["name"]: step
        for step in build_migrations_view(shop, journaled(shop, log), lambda _hash: None)["run"]["steps"]
    }
    assert steps["lag_gate"]["brief"] == "lag records 0; snapshot behind 0"
    assert steps["tail_proof"]["brief"].startswith("proven; level L1; unproven 0; ")
    assert steps["approval"]["brief"] == "ops said yes"
    assert steps["standstill"]["brief"] == "watched 4.0 s"
    assert not steps["commit_offsets"]["gate"]


def test_times_are_told_as_times() -> None:
    told = flatten_evidence({"seen_ms": 1_795_323_596_620, "rpo_ms": 1_500, "offsets": 12_000, "granted": True})
    assert [what for _, what in told] == ["2026-11-22 04:59:56 UTC", "1.5 s", "12,000", "yes"]


def test_a_line_with_a_forged_signature_hides_nothing_where_no_key_is_named(shop: Plan) -> None:
    """Nobody who shows the page has keys; the file says whether there is one."""
    log = FakeLog()
    run(shop, log).run(until_step="lag_gate")
    whole = journaled(shop, log)
    last = log.records[-1]
    forged = last | {"hash": SIGNED_HASH_PREFIX + "0" * 64, "seq": last["seq"] + 1, "previous": last["hash"]}
    log.records.append(forged)
    after = Journal(log, shop.topology, "next")
    after.refresh()
    after.append("r2", "run", "intent", {}, actor="ann", plan_hash="", wave="paid")
    told = journaled(shop, log)
    assert told.entries[:-1] == whole.entries
    assert told.entries[-1].run == "r2"
    assert [(each.offset, each.why) for each in told.foreign] == [
        (len(log.records) - 2, "it is signed, and the file names no key (`migration.journal`)")
    ]


def test_entries_of_a_file_with_a_key_are_shown_as_not_verified(shop: Plan) -> None:
    log = FakeLog()
    journal = Journal(log, shop.topology, "me", signing=Signing((b"a key",)))
    journal.append("r1", "run", "intent", {}, actor="ann", plan_hash="", wave="orders")
    told = journaled(shop, log, signed=True)
    assert ([entry.run for entry in told.entries], told.unverified) == (["r1"], 1)
    assert build_migrations_view(shop, told, lambda _hash: None)["journal"]["unverified"] == 1
    assert journaled(shop, log).entries == ()
