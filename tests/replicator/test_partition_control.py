"""Orders about single partitions: what they make of a flow's record, who would not obey, and who serves what."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.control_topics import SLOT_COUNT, compute_slot
from watershed.clusters.errors import UnreadableControlRecord
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_orders import (
    PartitionMove,
    PartitionPause,
    describe_move,
    describe_pause,
    describe_topic_pauses,
    find_partition_order,
    index_partition_orders,
    is_chosen_worker,
)
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.replicator.partition_control import (
    MAX_ORDERS,
    PartitionOrder,
    apply_partition_order,
    drop_ended_moves,
    explain_impossible_order,
    find_workers_of_earlier_versions,
)
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.topic_mapping import MappedTopic
from watershed.replicator.worker.assignment import assign_partitions
from watershed.replicator.worker.partition_placement import (
    ChosenPlace,
    PartitionLoad,
    balance_partitions,
    place_chosen_partitions,
)
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.replicator.worker.placement_leader import list_chosen_places
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("glob", "shop.*"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop")
NOW = 1_750_000_000_000
OWNERS = {slot: "host-1-10" if slot < 8 else "host-2-20" for slot in range(SLOT_COUNT)}


def give(record: FlowRecord, kind: Any, topic: str = "shop.orders", partition: int | None = None, **more: str):
    return apply_partition_order(record, PartitionOrder(kind, topic, partition, **more), "ann", NOW)


def find_standing(record: FlowRecord, topic: str, partition: int) -> PartitionPause | None:
    return find_partition_order(index_partition_orders(record.pauses), topic, partition)


def test_a_pause_says_who_when_and_why_and_holds_for_its_partition_alone() -> None:
    record = give(RECORD, "pause", partition=3, reason="poison")
    found = find_standing(record, "shop.orders", 3)
    assert found is not None
    assert describe_pause(found) == "shop.orders-3 paused by ann since 2025-06-15 15:06:40 UTC: poison"
    assert find_standing(record, "shop.orders", 2) is find_standing(record, "shop.items", 3) is None
    assert give(record, "pause", partition=3, reason="another") is record, "who paused first is kept"
    assert give(record, "resume", partition=3) == RECORD
    assert describe_topic_pauses("a-to-b", record.pauses, "x y.yaml") == {
        "shop.orders": f"{describe_pause(found)}; `topology flow resume a-to-b 'x y.yaml' --topic shop.orders "
        "--partition 3` lets it go on"
    }


def test_a_whole_topic_takes_the_place_of_its_partitions() -> None:
    record = give(give(give(RECORD, "pause", partition=3), "pause", partition=1), "pause", "shop.items", 0)
    assert [(each.topic, each.partition) for each in record.pauses] == [
        ("shop.items", 0), ("shop.orders", 1), ("shop.orders", 3)
    ]  # fmt: skip
    whole = give(record, "pause")
    assert [(each.topic, each.partition) for each in whole.pauses] == [("shop.items", 0), ("shop.orders", None)]
    assert find_standing(whole, "shop.orders", 77) is not None, "also a partition that it gets later"
    assert give(whole, "pause", partition=3) is whole
    assert [each.topic for each in give(whole, "resume").pauses] == ["shop.items"]
    assert "paused as a whole" in explain_impossible_order(
        whole, PartitionOrder("resume", "shop.orders", 3), {0, 1, 2, 3}
    )


def test_earlier_versions_take_a_flow_with_pauses_for_a_paused_one() -> None:
    """They know no other keys than their own, and copy nothing of it."""
    for record in (RECORD, give(RECORD, "move", worker="w"), replace(give(RECORD, "pause"), state="stopped")):
        stored = record.to_json()
        assert (stored["state"], "state_beside_pauses" in stored) == (record.state, False)
        assert FlowRecord.from_json(stored, "a-to-b") == record
    paused = give(RECORD, "pause")
    stored = paused.to_json()
    assert (stored["schema"], stored["state"], stored["state_beside_pauses"]) == (1, "paused", "running")
    assert FlowRecord.from_json(stored, "a-to-b") == paused
    assert (paused.state, give(paused, "resume").to_json()["state"]) == ("running", "running")

    written_again = {
        key: value for key, value in stored.items() if key not in ("pauses", "moves", "state_beside_pauses")
    }
    assert FlowRecord.from_json(written_again).state == "paused", "by an earlier version: nothing is copied"
    with pytest.raises(UnreadableControlRecord, match="state"):
        FlowRecord.from_json(stored | {"state_beside_pauses": "flying"}, "a-to-b")


def test_workers_that_would_pause_more_are_named() -> None:
    told = [
        WorkerHeartbeat("old", 1, NOW),
        WorkerHeartbeat("new", 2, NOW, pauses_partitions=True),
        WorkerHeartbeat("gone", 3, NOW),
    ]
    assert find_workers_of_earlier_versions(told, {"old", "new", "just begun"}) == ["just begun", "old"]
    assert find_workers_of_earlier_versions(told, {"new"}) == []


@pytest.mark.parametrize(
    ("order", "record", "says"),
    [
        (PartitionOrder("pause", "other"), RECORD, "does not copy topic other"),
        (PartitionOrder("pause", "shop.orders"), RECORD.without(["shop.orders"]), "has let go of topic shop.orders"),
        (PartitionOrder("pause", "shop.orders", 9), RECORD, "has partitions 0 to 3, and no 9"),
        (PartitionOrder("pause", "shop.orders", 1, reason="x" * 501), RECORD, "at most 500"),
        (PartitionOrder("move", "shop.orders", 1), RECORD, "needs the name of a worker"),
        (
            PartitionOrder("move", "shop.orders", 1, "w"),
            replace(RECORD, flow=replace(FLOW, delivery="transactions")),
            "copies in transactions",
        ),
        (
            PartitionOrder("release", "shop.orders", 1),
            replace(RECORD, moves=(PartitionMove("shop.orders", None, "w", "ann", NOW),)),
            "moved as a whole",
        ),
        (
            PartitionOrder("pause", "shop.orders"),
            replace(RECORD, pauses=(PartitionPause("shop.x", 0, "ann", NOW),) * MAX_ORDERS),
            "stand already",
        ),
        (PartitionOrder("pause", "shop.orders", 3), replace(RECORD, state="paused"), ""),
        (PartitionOrder("move", "shop.orders", 3, "w"), RECORD, ""),
        (PartitionOrder("resume", "other"), RECORD, "does not copy topic other"),
        (PartitionOrder("resume", "gone"), replace(RECORD, pauses=(PartitionPause("gone", 0, "ann", NOW),)), ""),
    ],
)
def test_what_cannot_be_ordered(order: PartitionOrder, record: FlowRecord, says: str) -> None:
    told = explain_impossible_order(record, order, {0, 1, 2, 3})
    assert says in told
    assert bool(says) == bool(told)


def test_a_name_without_its_process_id_is_whoever_runs_in_that_place() -> None:
    assert is_chosen_worker("host-1-4711", "host-1-4711")
    assert is_chosen_worker("host-1-4711", "host-1")
    assert not is_chosen_worker("host-11-4711", "host-1")
    assert not is_chosen_worker("host-1-4711", "host-1-471")
    assert not is_chosen_worker("host-1-place-4711", "host-1")
    assert not is_chosen_worker("host-1", "host-1-4711")


def test_moves_to_workers_that_have_left_are_forgotten_with_the_next_move() -> None:
    """Only where another process runs in the same place: a worker may come back in one that is empty."""
    record = give(give(RECORD, "move", partition=0, worker="w-1"), "move", partition=1, worker="w-9")
    assert [each.worker for each in drop_ended_moves(record, ["w-1"]).moves] == ["w-1"]
    assert drop_ended_moves(record, ["w-1", "w-9"]) is record
    assert drop_ended_moves(record, ["x-1"]) is record
    place = give(RECORD, "move", partition=0, worker="host-2")
    assert drop_ended_moves(place, ["host-1-7", "host-3-8"]) is place
    assert "shop.orders-0 moved to worker w-1 by ann" in describe_move(record.moves[0])
    assert give(record, "release").moves == ()


def test_a_worker_knows_which_of_its_partitions_are_paused() -> None:
    record = give(RECORD, "pause", partition=1)
    topics = {"a-to-b": [MappedTopic("shop.orders", "shop.orders", 4, created=False, copied=4)]}
    found = assign_partitions({"a-to-b": record}, topics, range(SLOT_COUNT), {})
    assert {key.partition for key, each in found.items() if each.is_paused} == {1}


def test_a_paused_task_is_left_alone_and_says_so() -> None:
    task = PartitionTask(PartitionKey("a-to-b", "shop.orders", "shop.orders", 1), RECORD)
    assert task.is_ready_to_inspect(1.0)
    task.is_paused = True
    assert not task.is_ready_to_inspect(1.0)
    assert (task.report("w", 1).state, task.has_work_before(1e9)) == ("paused", False)
    task.completion = SimpleNamespace()  # type: ignore[assignment]
    assert task.report("w", 1).state == "complete", "there is nothing left to pause"


def test_a_moved_partition_goes_to_its_worker_and_stays_there() -> None:
    chosen = {"f|t|0": ChosenPlace(0, "host-2"), "f|t|1": ChosenPlace(9, "host-2"), "f|t|2": ChosenPlace(1, "nobody")}
    table, fixed = place_chosen_partitions(chosen, {"f|t|9": 8}, OWNERS)
    assert table == {"f|t|9": 8, "f|t|0": 9}, "into the least used slot of the worker; one that is there stays"
    assert fixed == {"f|t|0", "f|t|1"}, "whose worker is not there is placed like any other"
    assert place_chosen_partitions(chosen, table, OWNERS) == (table, fixed)
    loads = [PartitionLoad("f|t|0", 0, 50e6, movable=False), PartitionLoad("f|t|5", 9, 10e6)]
    assert balance_partitions(loads, table, OWNERS)["f|t|0"] == 9

    others = dict.fromkeys(range(SLOT_COUNT), "host-1-10")  # host-2 was killed
    assert place_chosen_partitions(chosen, table, others) == (table, frozenset()), "whoever has the slot serves it"
    assert place_chosen_partitions(chosen, table, dict(list(OWNERS.items())[:15])) == (table, frozenset())
    back = {slot: "host-2-99" if slot < 8 else "host-1-10" for slot in range(SLOT_COUNT)}
    assert place_chosen_partitions(chosen, table, back)[0] == {"f|t|9": 8, "f|t|1": 0}, "home, where that is its own"


def test_moves_of_topics_hold_for_all_of_their_partitions() -> None:
    record = give(give(RECORD, "move", worker="w"), "move", "shop.items", 1, worker="v")
    topics = {
        "a-to-b": [
            MappedTopic("shop.orders", "shop.orders", 2, created=False, copied=2),
            MappedTopic("shop.items", "shop.items", 2, created=False, copied=2),
        ]
    }
    found = list_chosen_places({"a-to-b": record}, topics)
    assert {key: place.worker for key, place in found.items()} == {
        "a-to-b|shop.orders|0": "w",
        "a-to-b|shop.orders|1": "w",
        "a-to-b|shop.items|1": "v",
    }
    assert found["a-to-b|shop.items|1"].home == compute_slot("a-to-b", "shop.items", 1)
    in_transactions = replace(record, flow=replace(FLOW, delivery="transactions"))
    assert list_chosen_places({"a-to-b": in_transactions}, topics) == {}


def test_anybodys_record_is_shown_without_a_fault() -> None:
    wild = PartitionPause("t", 0, "ann", 1 << 80)
    assert describe_pause(wild) == f"t-0 paused by ann since timestamp {1 << 80}"
    assert find_partition_order(index_partition_orders([replace(wild, partition=None), wild]), "t", 0) is wild, (
        "its own before that of the topic"
    )
