"""The parts of `bench.estate` that need no measurement."""

from __future__ import annotations

from typing import Any

import pytest

from watershed.bench import estate
from watershed.bench.estate import (
    Estate,
    find_first_limits,
    place_fleets,
    share_slots,
    simulate_restarts,
    simulate_running,
)
from watershed.bench.estate_costs import (
    LEDGER_RECORDS,
    PartitionCosts,
    compute_stored_report_bytes,
    measure_partition_costs,
)
from watershed.bench.goals import build_estate_goals
from watershed.clusters import control_topics
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.replicator.worker import fleet_decisions, partition_task
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import TopicSelection

COSTS = PartitionCosts(
    report_bytes=500,
    quiet_us=0.5,
    report_us=25,
    read_us=40,
    ledger_bytes=300,
    ledger_us=40,
    ledger_key_us=1,
    begin_us=60,
    kib=6,
    fetch_bytes=35,
    listing_us=0.5,
)


def rows_of(subject: Estate) -> dict[str, Any]:
    fleet = place_fleets(subject)
    return simulate_running(subject, fleet, COSTS) | simulate_restarts(subject, fleet, COSTS)


def count_moved(before: dict[int, int], after: dict[int, int]) -> int:
    return sum(before[slot] != owner for slot, owner in after.items())


def test_slots_are_shared_evenly_and_as_few_as_possible_move() -> None:
    four = share_slots({}, range(4))
    assert sorted(four) == list(range(SLOT_COUNT))
    assert [list(four.values()).count(worker) for worker in range(4)] == [4, 4, 4, 4]
    three = share_slots(four, [0, 1, 3])
    assert count_moved(four, three) == 4  # those of the worker that has left
    assert sorted(list(three.values()).count(worker) for worker in (0, 1, 3)) == [5, 5, 6]
    five = share_slots(four, range(5))
    assert count_moved(four, five) == 3
    assert share_slots(five, range(5)) == five


def test_more_workers_than_slots_stand_by() -> None:
    fleet = place_fleets(Estate(2_000, 1, 1, 40))
    assert fleet.serving == SLOT_COUNT
    assert sum(fleet.sizes) == 2_000
    assert fleet.heaviest == max(fleet.sizes)
    row = rows_of(Estate(2_000, 1, 1, 40))
    assert find_first_limits(Estate(2_000, 1, 1, 40), row)["breaks"].startswith("slots 2.5")


def test_a_restart_with_standbys_moves_each_slot_once_and_without_them_more_often() -> None:
    full, small = Estate(2_000, 1, 1, SLOT_COUNT), Estate(2_000, 1, 1, 4)
    assert rows_of(full)["restart_inspects"] == 2_000  # the new worker waits for the slot of the one that ends
    assert rows_of(small)["restart_inspects"] > 2_000


def test_a_killed_worker_costs_its_session_and_the_inspection_of_what_it_had() -> None:
    alone, one_of_four = rows_of(Estate(2_000, 1, 1, 1)), rows_of(Estate(2_000, 1, 1, 4))
    assert alone["killed_inspects"] == 2_000
    assert 400 < one_of_four["killed_inspects"] < 600
    assert 10 < one_of_four["killed_s"] < alone["killed_s"]
    assert alone["ledger_records"] == 2_000 * LEDGER_RECORDS


def test_what_one_target_holds_is_what_a_start_and_a_status_cost() -> None:
    one, ten = rows_of(Estate(20_000, 1, 1, 16)), rows_of(Estate(20_000, 10, 10, 160))
    assert one["start_s"] == pytest.approx(10 * ten["start_s"], rel=0.1)
    beats = one["serving"]  # of each target's workers, one a second
    assert one["reports_s"] - beats == pytest.approx(10 * (ten["reports_s"] - beats), abs=10)
    topologies = rows_of(Estate(20_000, 1, 1, 160, topologies=10))
    others = one["ledger_records"] * 0.9  # another topology's ledger is read, too, but not decoded
    assert topologies["start_s"] == pytest.approx(one["start_s"] - others * (40 - 1) / 1e6, abs=0.1)
    assert topologies["heaviest"] < one["heaviest"]


def test_all_flows_share_one_reading_of_the_ledger() -> None:
    one, many = rows_of(Estate(20_000, 1, 1, 4)), rows_of(Estate(20_000, 1, 1, 4, flows=50))
    assert (one["start_s"], one["killed_s"]) == (many["start_s"], many["killed_s"])


def test_limits_are_named_with_the_worst_first() -> None:
    row = {
        "serving": 4, "mib": 512, "idle_cpu_percent": 20.0, "sessions": 10, "reports_s": 100,
        "status_s": 1.0, "killed_s": 45.0, "standing_s": 3.0,
    }  # fmt: skip
    found = find_first_limits(Estate(10_000, 1, 1, 4), row)
    assert found["breaks"] == "a killed worker 3.0, worker's memory 2.0"
    assert found["nearest"] == 3.0
    calm = find_first_limits(Estate(10, 1, 1, 4, recommended=True), row | {"mib": 80, "killed_s": 11.0})
    assert (calm["breaks"], calm["recommended"]) == ("none", "yes")


def test_only_recommended_fleets_have_goals() -> None:
    rows = [
        {"partitions": 10, "recommended": "yes", "nearest": 0.4},
        {"partitions": 20, "recommended": "", "nearest": 9.0},
        {"partitions": 30, "recommended": "yes", "nearest": 1.1},
    ]
    assert [(goal.value, goal.holds) for goal in build_estate_goals(rows)] == [(0.4, True), (1.1, False)]


def test_what_the_simulation_knows_of_the_code_is_what_the_code_says() -> None:
    for configs in (control_topics._TOPICS[topic][1] for topic in (control_topics.STATUS_TOPIC,)):
        assert int(configs["segment.bytes"]) == estate.SEGMENT_BYTES
        assert int(configs["segment.ms"]) == estate.SEGMENT_S * 1000
    flow = PlanFlow("a-to-b", "a", "b", TopicSelection(()))
    assert flow.discovery_ms == estate.LISTED_EVERY_S * 1000
    assert estate.REPORT_S == partition_task.UNCHANGED_S + partition_task._SPREAD_S / 2
    assert estate.STARTED_AGAIN_S == fleet_decisions.FIRST_PAUSE_S


def test_a_partition_is_measured_with_the_code_of_a_worker() -> None:
    costs = measure_partition_costs(20)
    assert 300 < costs.report_bytes < 1_000
    assert 200 < costs.ledger_bytes < 500
    assert 25 < costs.fetch_bytes < 60
    assert compute_stored_report_bytes(50) < compute_stored_report_bytes(1) / 3
