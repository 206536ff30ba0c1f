"""Partitions that a person paused: how they are ordered, and that no migration waits for them in vain."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import assert_back
from tests.cutover.world import POLICY, REVERSE, World, a_migration, a_plan
from watershed.cli.flow_record_text import describe_flow_record
from watershed.cli.journal_decisions import is_unchanged_decision, render_decision
from watershed.clusters.flow_records import FlowRecord, describe_partition_orders
from watershed.clusters.partition_orders import PartitionMove, PartitionPause
from watershed.clusters.partition_status_records import PartitionStatus, StatusReports
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.cutover.actions import Action, ReadFlow
from watershed.cutover.observations import Observation
from watershed.cutover.operations import partition_control
from watershed.cutover.operations.backfill import explain_paused_topics
from watershed.cutover.operations.catalogue import OperationRequest, propose_operation
from watershed.cutover.operations.proposal import NoAnswerYet, OperationRefused, carry_out_approved
from watershed.replicator.partition_control import PartitionOrder
from watershed.spark.judging.flow_observation import describe_paused_partitions
from watershed.topology.drift import find_drift
from watershed.topology.inventory import Inventory, InventoryCluster, InventoryFlow

PLAN = a_plan()
FLOW = PLAN.flows[0]
NOW = 1_750_000_000_000
SAID = "orders-3 paused by ann since 2025-06-15 15:06:40 UTC: poison"
PAUSED = FlowRecord(FLOW, "sha256:1", "shop", pauses=(PartitionPause("orders", 3, "ann", NOW, "poison"),))
NOWHERE = ConnectionSettings(alias="target", bootstrap=("127.0.0.1:1",))


def test_a_migration_of_a_paused_partition_does_not_begin() -> None:
    policy = replace(POLICY, reverse=REVERSE)
    for flow, topic, says in ((None, "orders", SAID), (REVERSE, "dc.orders", f"on the way back, {SAID}")):
        world = World()
        world.paused[flow] = {topic: SAID}
        result = a_migration(world, FakeLog(), policy=policy).run()
        assert (result.state, result.step) == ("refused", "preflight")
        assert says in str(result)


@pytest.mark.parametrize(
    ("step", "ends"), [("lag_gate", "lag_gate"), ("soak", "fence_producers"), ("fence_producers", "drain")]
)
def test_what_is_paused_while_a_run_waits_for_it_ends_the_run(step: str, ends: str) -> None:
    """The others go on, so that no position says it. Before the fence, no producer is stopped for it."""
    world = World()
    began: list[float] = []

    def pause(action: Action) -> Observation | None:
        now = next((line for line in reversed(world.said) if ": begin" in line), "")
        if now.startswith(f"{step}: ") and not isinstance(action, ReadFlow) and not began:
            for place in world.places("source", ("orders",)):
                world.write("source", place)  # not copied yet when it is paused
            world.paused[None] = {"orders": SAID}
            began.append(world.now)
        return None

    world.hook = pause
    result = a_migration(world, FakeLog()).run()
    assert (result.step, SAID in result.reason) == (ends, True), result
    assert world.now - began[0] < 60
    world.paused[None] = {}
    assert_back(world, result, result.state)


class _Writer:
    written: list[tuple[str, Any]] = []  # noqa: RUF012 (one list for all, as a topic is)

    def __init__(self, _settings: ConnectionSettings, **_more: Any) -> None:
        pass

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def put(self, _topic: str, key: str, value: Any, _partition: int = 0) -> int:
        self.written.append((key, value))
        return len(self.written)


class _Admin:
    waits = False  # a third worker, for which no slot is left

    def __init__(self, _settings: ConnectionSettings) -> None:
        pass

    def __enter__(self) -> _Admin:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def group_assignment(self, group: str) -> dict[str, list[Any]] | None:
        return {
            "watershed-w-1": ["slots"],
            "watershed-v-2": ["slots"],
            **({"watershed-new-3": []} if self.waits else {}),
        }


def put_in_place(monkeypatch: pytest.MonkeyPatch, record: FlowRecord, *, able: bool = True) -> list[tuple[str, Any]]:
    """Two workers, of which w-1 serves both partitions."""
    reports = [PartitionStatus(str(FLOW.id), "orders", "dc.orders", n, "running", worker="w-1") for n in (3, 4)]
    heartbeats = [
        WorkerHeartbeat("w-1", 1, NOW, pauses_partitions=True),
        WorkerHeartbeat("v-2", 2, NOW, pauses_partitions=able),
    ]
    monkeypatch.setattr(_Writer, "written", [])
    monkeypatch.setattr(partition_control, "ControlWriter", _Writer)
    monkeypatch.setattr(partition_control, "Admin", _Admin)
    monkeypatch.setattr(
        partition_control, "read_flow_to_change", lambda _target, name: {str(FLOW.id): record}.get(name)
    )
    monkeypatch.setattr(
        partition_control, "read_status_reports", lambda _target: StatusReports(reports, [], heartbeats)
    )
    for name in ("_MEMBERS_WAIT_S", "_ASK_AGAIN_S"):
        monkeypatch.setattr(partition_control, name, 0.0)
    return _Writer.written


def propose(order: PartitionOrder) -> Any:
    return partition_control.propose_partition_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), order, wait_s=0.0)


def test_a_pause_is_shown_written_down_and_journaled(monkeypatch: pytest.MonkeyPatch) -> None:
    written = put_in_place(monkeypatch, replace(PAUSED, pauses=()))
    proposal = propose(PartitionOrder("pause", "orders", 3, reason="poison"))
    assert proposal.question == f"pause partition orders-3 of flow {FLOW.id}?"
    assert "  orders-3 is running, served by w-1, an unknown number of records not copied as last reported" in (
        proposal.lines
    )
    assert any("a migration of orders is refused" in note for note in proposal.notes)
    [told] = carry_out_approved(proposal, proposal.basis, "ann")
    assert told == f"orders-3 of {FLOW.id}: paused; workers follow within a second"
    (_, line), (key, value) = written
    assert (key, value["state"]) == (str(FLOW.id), "paused"), "as earlier versions read it"
    assert FlowRecord.from_json(value).state == "running"
    [pause] = value["pauses"]
    assert (pause["topic"], pause["partition"], pause["actor"], pause["reason"]) == ("orders", 3, "ann", "poison")
    assert is_unchanged_decision(line)
    assert render_decision(line).endswith(f"ann: pause {FLOW.id} orders-3: poison")


def test_nothing_is_ordered_while_a_worker_would_pause_more(monkeypatch: pytest.MonkeyPatch) -> None:
    written = put_in_place(monkeypatch, PAUSED, able=False)
    with pytest.raises(OperationRefused, match=r"workers v-2 are of a version that knows no pauses .*fleet restart"):
        propose(PartitionOrder("pause", "orders"))
    assert written == []
    assert propose(PartitionOrder("resume", "orders")).is_needed, "what lets go on needs nobody's version"


def test_a_resume_of_what_runs_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    written = put_in_place(monkeypatch, PAUSED)
    proposal = propose(PartitionOrder("resume", "orders", 4))
    assert not proposal.is_needed
    assert [*proposal.carry_out("ann")] == [f"orders-4 of {FLOW.id}: nothing to do, it is not paused"]
    assert written == []
    assert [*propose(PartitionOrder("resume", "orders", 3)).carry_out("ann")]
    assert written[-1][1]["pauses"] == []


def test_a_move_names_a_worker_that_is_there_and_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written = put_in_place(monkeypatch, replace(PAUSED, moves=(PartitionMove("x", 0, "w-7", "ann", NOW),)))
    with pytest.raises(OperationRefused, match=r"no worker u serves anything of .* there are: v-2, w-1"):
        propose(PartitionOrder("move", "orders", 3, "u"))
    monkeypatch.setattr(_Admin, "waits", True)
    with pytest.raises(OperationRefused, match="no worker new-3 serves anything"):
        propose(PartitionOrder("move", "orders", 3, "new-3"))
    with pytest.raises(OperationRefused, match="workers new-3 are of a version"):
        propose(PartitionOrder("pause", "orders", 3 + 1))
    [first, second] = propose(PartitionOrder("move", "orders", 3, "w")).carry_out("ann")
    assert first.endswith("moves to worker w")
    assert second == "orders-3 is served by worker w-1"
    moves = [each["worker"] for each in written[-1][1]["moves"]]
    assert moves == ["w"], "a process that another one has replaced is forgotten"
    assert render_decision(written[0][1]).endswith(f"ann: move {FLOW.id} orders-3, to worker w")
    with pytest.raises(NoAnswerYet, match="orders-3: worker v-2 has not reported it yet; the order stands"):
        [*propose(PartitionOrder("move", "orders", 3, "v-2")).carry_out("ann")]


def test_airflow_orders_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, PAUSED)
    for params, says in (
        ({"operation": "pause", "topic": "orders", "partition": 4}, "pause partition orders-4"),
        ({"operation": "resume", "topic": "orders"}, "resume topic orders"),
        ({"operation": "move", "topic": "orders", "worker": "v-2"}, "move topic orders"),
        ({"operation": "release", "topic": "orders", "worker": "left over"}, "release topic orders"),
    ):
        request = OperationRequest.from_params({"flow": str(FLOW.id), **params}, "shop.yaml")
        assert propose_operation(PLAN, lambda _alias: NOWHERE, request).question.startswith(says)
    for params, says in (
        ({"operation": "pause", "partition": 4}, "pause needs topic"),
        ({"operation": "move", "topic": "orders"}, "move needs worker"),
    ):
        request = OperationRequest.from_params({"flow": str(FLOW.id), **params}, "shop.yaml")
        with pytest.raises(OperationRefused, match=says):
            propose_operation(PLAN, lambda _alias: NOWHERE, request)


def test_status_plan_proof_and_backfill_tell_of_it() -> None:
    record = replace(PAUSED, moves=(PartitionMove("orders", 4, "w-1", "bob", NOW),))
    row = {
        "desired": "running",
        "paused": [asdict(each) for each in record.pauses],
        "moved": [asdict(each) for each in record.moves],
        "partitions": [
            {"topic": "orders", "partition": n, "worker": f"v-{n}", "state": state}
            for n, state in ((3, "paused"), (4, "running"))
        ],
    }
    moved = "orders-4 moved to worker w-1 by bob since 2025-06-15 15:06:40 UTC"
    assert describe_flow_record(row) == [SAID, f"{moved}; served by v-4, until worker w-1 is there"]
    row["partitions"][1] |= {"worker": "w-1", "state": "paused"}  # type: ignore[index]
    [first, more, last] = describe_flow_record(row)
    assert (first, last) == (SAID, moved)
    assert more.startswith("1 more partitions stand still (orders-4): their workers are of a version")

    known = InventoryFlow(PLAN.topology, PLAN.hash, "running", describe_partition_orders(record))
    there = InventoryCluster(FLOW.target, "id", NOW, flows={str(FLOW.id): known})
    drift = [each for each in find_drift(PLAN, Inventory({FLOW.target: there}), ()) if each.field == "partitions"]
    assert [(each.live, each.applied) for each in drift if each.kind == "flow"] == [(SAID, False), (moved, False)]

    [note] = describe_paused_partitions(record, {"orders"})
    assert SAID in note
    assert "is pending" in note
    assert describe_paused_partitions(record, {"clicks"}) == describe_paused_partitions(None, {"orders"}) == []

    told = explain_paused_topics(record, ["clicks", "orders"], "shop.yaml")
    assert told == f"{SAID}; `topology flow resume {FLOW.id} shop.yaml --topic orders --partition 3` lets it go on"
    assert explain_paused_topics(record, ["clicks"], "f") == explain_paused_topics(None, ["orders"], "f") == ""
