"""What a person does beside runs: what is shown, and that only what was shown is done."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import PRODUCER, World, a_migration, a_plan
from watershed.cli.journal_decisions import is_unchanged_decision, render_decision, select_decisions
from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.errors import Unauthorised
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.driver import RunDriver
from watershed.cutover.errors import NothingToResume
from watershed.cutover.journal.hash_chain import Journal, JournalChain
from watershed.cutover.operations import abandonment, catalogue, flow_state, partition_decisions
from watershed.cutover.operations.catalogue import DECIDE, OPERATE, OperationRequest, propose_operation
from watershed.cutover.operations.partition_decisions import (
    FlowScene,
    propose_foreign_copy,
    propose_gap_acceptance,
)
from watershed.cutover.operations.proposal import (
    NoAnswerYet,
    OperationRefused,
    Proposal,
    WorkersRefused,
    carry_out_approved,
)
from watershed.replicator.ledger.ledger import DecisionBasis
from watershed.replicator.partition_key import PartitionKey

PLAN = a_plan()
FLOW = PLAN.flows[0]
KEY = PartitionKey(str(FLOW.id), "orders", "dc.orders", 0)
NOWHERE = ConnectionSettings(alias="target", bootstrap=("127.0.0.1:1",))


class Writer:
    """A `ControlWriter` that keeps what is written."""

    written: list[tuple[str, str, Any]] = []  # noqa: RUF012 (one list for all, as a topic is)

    def __init__(self, _settings: ConnectionSettings, **_more: Any) -> None:
        pass

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def put(self, topic: str, key: str, value: Any, _partition: int = 0) -> int:
        self.written.append((topic, key, value))
        return len(self.written)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    monkeypatch.setattr(Writer, "written", [])
    for module in (flow_state, partition_decisions):
        monkeypatch.setattr(module, "ControlWriter", Writer)
    monkeypatch.setattr(flow_state, "read_budget_breaches", lambda _target: {})
    return Writer.written


def report(state: str, **more: Any) -> PartitionStatus:
    told = {"flow": str(FLOW.id), "topic": "orders", "target_topic": "dc.orders", "partition": 0, "state": state}
    fresh = int(time.time() * 1000) + 3_600_000  # however long the tests before take
    return PartitionStatus(**(told | {"at_ms": fresh} | more))


def scene(*reports: PartitionStatus, generation: int = 7) -> FlowScene:
    basis = DecisionBasis(generation, "", uuid.UUID(int=1))
    places = {(each.topic, each.partition): each for each in reports}
    return FlowScene(FLOW, "shop", lambda: NOWHERE, NOWHERE, places, {KEY: basis}, "shop.yaml", wait_s=0.0)


EXPIRED = report("source_expired", seen={"source": [10, 25]})


def test_a_gap_is_shown_in_offsets_and_written_in_the_name_of_who_decides(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = propose_gap_acceptance(scene(EXPIRED), "orders", 0)
    assert "source offsets 10 to 24, at most 15 records" in "\n".join(proposal.lines)
    assert proposal.question == "give up source offsets 10 to 24 of orders-0?"
    monkeypatch.setattr(partition_decisions, "read_partition_statuses", lambda _target: [])
    with pytest.raises(NoAnswerYet, match="no worker has answered yet"):
        list(proposal.carry_out("ann"))
    assert {topic for topic, _, _ in written} == {"watershed.journal", "watershed.flows"}
    decision = written[0][2]
    assert (decision["actor"], decision["kind"], decision["lost"]) == ("ann", "accept-gap", [10, 25])


def test_what_has_changed_since_it_was_approved_is_refused() -> None:
    shown = propose_gap_acceptance(scene(EXPIRED), "orders", 0)
    more = propose_gap_acceptance(scene(replace(EXPIRED, seen={"source": [10, 30]})), "orders", 0)
    again = propose_gap_acceptance(scene(EXPIRED, generation=8), "orders", 0)
    for now in (more, again):
        with pytest.raises(OperationRefused, match="not what was shown and approved, so nothing was changed"):
            carry_out_approved(now, shown.basis, "ann")


def test_a_gap_that_grows_within_what_was_approved_is_accepted(written: list[tuple[str, str, Any]]) -> None:
    shown = propose_gap_acceptance(scene(EXPIRED), "orders", 0, 40)
    more = propose_gap_acceptance(scene(replace(EXPIRED, seen={"source": [10, 30]})), "orders", 0, 40)
    given = iter(carry_out_approved(more, shown.basis, "ann"))
    assert next(given).startswith("ordered and written to watershed.journal")
    assert (written[0][2]["lost"], written[0][2]["through"]) == ([10, 30], 41)
    for now in (
        propose_gap_acceptance(scene(replace(EXPIRED, seen={"source": [11, 30]})), "orders", 0, 40),
        propose_gap_acceptance(scene(EXPIRED), "orders", 0, 41),
        propose_gap_acceptance(scene(EXPIRED), "orders", 0),
    ):
        with pytest.raises(OperationRefused, match="not what was shown"):
            carry_out_approved(now, shown.basis, "ann")


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (report("running"), "is running; accept-gap answers"),
        (replace(EXPIRED, at_ms=1), "no worker serves orders-0"),
        (replace(EXPIRED, partition=1), "nobody has reported on orders-0"),
    ],
)
def test_a_decision_needs_a_partition_that_waits_for_it(seen: PartitionStatus, says: str) -> None:
    with pytest.raises(OperationRefused, match=says):
        propose_gap_acceptance(scene(seen), "orders", 0)


def test_less_than_what_is_there_cannot_be_decided() -> None:
    with pytest.raises(OperationRefused, match="through 3 is less than what is lost already"):
        propose_gap_acceptance(scene(EXPIRED), "orders", 0, 3)
    foreign = report("source_foreign_write", seen={"source": [10, 25]})
    with pytest.raises(OperationRefused, match="through 3 is less than what stands there already"):
        propose_foreign_copy(scene(foreign), "orders", 0, 3)


@pytest.mark.parametrize(("obeyed", "error"), [(True, None), (False, WorkersRefused)])
def test_workers_answer_a_decision(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch, obeyed: bool, error: type[Exception] | None
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)

    class Ledger:
        def standing(self) -> dict[PartitionKey, DecisionBasis]:
            order = written[0][2]["id"] if obeyed else ""
            return {KEY: DecisionBasis(8, order, uuid.UUID(int=1))}

    def refusal(_target: ConnectionSettings) -> list[PartitionStatus]:
        return [replace(EXPIRED, error=f"accept-gap {written[0][2]['id']} is refused: more has expired")]

    monkeypatch.setattr(partition_decisions, "read_ledger", lambda _target, flow: Ledger())
    monkeypatch.setattr(partition_decisions, "read_partition_statuses", refusal)
    proposal = propose_gap_acceptance(replace(scene(EXPIRED), wait_s=60.0), "orders", 0)
    if error is None:
        assert "were given up on" in list(proposal.carry_out("ann"))[-1]
    else:
        with pytest.raises(error, match="more has expired"):
            list(proposal.carry_out("ann"))


@pytest.mark.parametrize(
    ("order", "before", "after", "generation"),
    [
        ("pause", "running", "paused", 1),
        ("resume", "stopped", "running", 1),
        ("stop", "paused", "stopped", 1),
        ("restart", "running", "running", 2),
    ],
)
def test_an_order_to_a_flow_is_kept_with_who_gave_it(
    written: list[tuple[str, str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    order: Any,
    before: Any,
    after: str,
    generation: int,
) -> None:
    record = FlowRecord(FLOW, "sha256:1", "shop", state=before)
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, name: {str(FLOW.id): record}.get(name))
    monkeypatch.setattr(flow_state, "read_partition_statuses", lambda _target: [report("running", lag_records=12)])
    monkeypatch.setattr(flow_state, "describe_moved_applications", lambda *_: ["wave w: its applications are there"])
    proposal = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), order)
    assert "records not copied yet, as last reported: 12" in proposal.lines
    assert proposal.notes == (("wave w: its applications are there",) if after == "running" else ())
    [said] = proposal.carry_out("ann")
    assert said.startswith(f"{FLOW.id}: {before} -> {after}")
    (_, _, line), (_, key, value) = written
    assert (key, value["state"], value["generation"]) == (str(FLOW.id), after, generation)
    assert is_unchanged_decision(line)
    assert select_decisions([line], frozenset({str(FLOW.id)})) == [line]
    assert render_decision(line).endswith(f"ann: {order} {FLOW.id}, {before} -> {after}")


def test_an_order_is_applied_to_the_record_as_it_is_when_it_is_written(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration retires topics between the look and the order."""
    records = {str(FLOW.id): FlowRecord(FLOW, "sha256:1", "shop")}
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, name: records.get(name))
    monkeypatch.setattr(flow_state, "read_partition_statuses", lambda _target: [])
    proposal = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), "pause")
    records[str(FLOW.id)] = replace(records[str(FLOW.id)].without(["orders"]), plan_hash="sha256:2")
    assert len(list(proposal.carry_out("ann"))) == 1
    _, (_, _, value) = written
    assert (value["state"], value["retired"], value["plan_hash"]) == ("paused", ["orders"], "sha256:2")


@pytest.mark.parametrize("now", [{"state": "stopped"}, {"generation": 2}])
def test_a_flow_that_was_ordered_otherwise_meanwhile_is_left_alone(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch, now: Any
) -> None:
    records = {str(FLOW.id): FlowRecord(FLOW, "sha256:1", "shop")}
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, name: records.get(name))
    monkeypatch.setattr(flow_state, "read_partition_statuses", lambda _target: [])
    proposal = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), "pause")
    records[str(FLOW.id)] = replace(records[str(FLOW.id)], **now)
    with pytest.raises(OperationRefused, match=r"was changed meanwhile, so nothing was ordered\. Shown: running"):
        list(proposal.carry_out("ann"))
    assert written == []


def test_evidence_that_cannot_be_read_stops_no_order(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_asked: Any) -> list[Any]:
        raise Unauthorised("no right to read watershed.status")

    record = FlowRecord(FLOW, "sha256:1", "shop", state="paused")
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, name: {str(FLOW.id): record}.get(name))
    for name in ("read_partition_statuses", "describe_moved_applications"):
        monkeypatch.setattr(flow_state, name, fail)
    proposal = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), "resume")
    assert "not known, how its partitions are: no right to read watershed.status" in proposal.lines
    [note] = proposal.notes
    assert note == "not known, whether applications of this flow have moved: no right to read watershed.status"
    assert list(proposal.carry_out("ann")) == [f"{FLOW.id}: paused -> running"]
    assert len(written) == 2


def test_a_flow_that_is_as_wanted_is_left_alone(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = FlowRecord(FLOW, "sha256:1", "shop", state="paused")
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, name: {str(FLOW.id): record}.get(name))
    monkeypatch.setattr(flow_state, "read_partition_statuses", lambda _target: [])
    proposal = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), "pause")
    assert not proposal.is_needed
    assert list(proposal.carry_out("ann")) == [f"{FLOW.id} is paused already"]
    assert written == []


@pytest.mark.parametrize("order", ["resume", "restart"])
def test_a_budget_that_stopped_a_flow_is_answered(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    records = {str(FLOW.id): FlowRecord(FLOW, "sha256:1", "shop")}
    breach = BudgetBreach(str(FLOW.id), 2, "pause", "slo.lag.max", 60_000, 91_000, "orders", 0, "w1", 0)
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, name: records.get(name))
    monkeypatch.setattr(flow_state, "read_partition_statuses", lambda _target: [])
    monkeypatch.setattr(flow_state, "describe_moved_applications", lambda *_: [])
    monkeypatch.setattr(flow_state, "read_budget_breaches", lambda _target: {str(FLOW.id): breach})
    proposal = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), order)
    assert proposal.is_needed
    assert any("paused by slo.lag.max (1m): orders-0 was 91.0 s behind" in line for line in proposal.lines)
    said = list(proposal.carry_out("ann"))
    assert said[0].endswith("that is answered now")
    _, (_, key, mark), (_, _, value) = written
    assert (key, mark["number"], mark["answered"]) == (breach.key, 2, True), "first: then may come breach 3"
    assert (value["state"], value["answered_breaches"]) == ("running", 2)
    records[str(FLOW.id)] = replace(records[str(FLOW.id)], answered_breaches=2)  # and another one opened meanwhile
    with pytest.raises(OperationRefused, match="Now: running, generation 1, breach 2 answered"):
        list(proposal.carry_out("bob"))


def test_an_order_answers_no_breach_that_nobody_was_shown(
    written: list[tuple[str, str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = FlowRecord(FLOW, "sha256:1", "shop")
    breach = BudgetBreach(str(FLOW.id), 1, "pause", "slo.lag.max", 60_000, 91_000, "orders", 0, "w1", 0)
    known: dict[str, BudgetBreach] = {}
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, _name: record)
    monkeypatch.setattr(flow_state, "read_partition_statuses", lambda _target: [])
    monkeypatch.setattr(flow_state, "describe_moved_applications", lambda *_: [])
    monkeypatch.setattr(flow_state, "read_budget_breaches", lambda _target: known)
    restart = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), "restart")
    pause = flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), "pause")
    known[str(FLOW.id)] = breach  # while the question is open
    with pytest.raises(OperationRefused, match="generation 1, breach 1 open"):
        list(restart.carry_out("ann"))
    assert written == []
    assert list(pause.carry_out("ann")) == [f"{FLOW.id}: running -> paused"], "a pause answers nothing"


def test_a_flow_that_was_never_applied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_state, "read_flow_to_change", lambda _target, _name: None)
    with pytest.raises(OperationRefused, match="never applied"):
        flow_state.propose_flow_order(PLAN, lambda _alias: NOWHERE, str(FLOW.id), "stop")


@pytest.mark.parametrize("operation", [*OPERATE, *DECIDE])
def test_every_operation_says_what_it_needs_to_be_told(operation: str) -> None:
    with pytest.raises(OperationRefused, match=rf"{operation} needs flow \(the flow that it is about\)"):
        propose_operation(PLAN, lambda _alias: NOWHERE, OperationRequest(operation))
    needs = {"accept-gap": "topic", "copy-foreign": "topic", "reseed": "topic", "reset-group": "group"}
    if operation in needs:
        with pytest.raises(OperationRefused, match=f"{operation} needs {needs[operation]}"):
            propose_operation(PLAN, lambda _alias: NOWHERE, OperationRequest(operation, flow=str(FLOW.id)))


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(OperationRefused, match="there is no operation worker; there are pause, resume"):
        propose_operation(PLAN, lambda _alias: NOWHERE, OperationRequest("worker", flow=str(FLOW.id)))


def test_a_form_becomes_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[OperationRequest] = []

    def propose(_plan: Any, _connect: Any, wanted: OperationRequest) -> Proposal:
        asked.append(wanted)
        return Proposal("?", (), "", lambda _actor: iter(()))

    monkeypatch.setattr(catalogue, "DECIDE", {"accept-gap": propose})
    params = {"operation": "accept-gap", "flow": "f", "topic": "t", "partition": 0, "through": None, "accept": []}
    propose_operation(PLAN, lambda _alias: NOWHERE, OperationRequest.from_params(params, "shop.yaml"))
    assert asked == [OperationRequest("accept-gap", "f", "t", 0, file="shop.yaml")]


def test_nothing_is_done_before_the_lines_are_taken() -> None:
    done: list[str] = []

    def carry_out(actor: str) -> Iterator[str]:
        done.append(actor)
        yield "done"

    proposal = Proposal("?", (), "basis", carry_out)
    with pytest.raises(OperationRefused):
        carry_out_approved(proposal, "other", "ann")
    assert done == []
    assert list(carry_out_approved(proposal, "basis", "ann")) == ["done"]


class Abandoned:
    """A migration that somebody left, and `abandon` over it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until_step: str) -> None:
        self.world, self.log = World(), FakeLog()
        a_migration(self.world, self.log, run_id="r1").run(until_step=until_step)
        monkeypatch.setattr(abandonment, "read_journal_chain", lambda *_: self.read())

        def opened(_plan: Any, _run_plan: Any, _settings: Any, **hooks: Any) -> RunDriver:
            self.actor = hooks["actor"]
            return a_migration(self.world, self.log, "giver", **hooks)

        monkeypatch.setattr(abandonment, "open_run", opened)

    def read(self) -> JournalChain:
        return Journal(self.log, "shop", "reader", self.world.clock).refresh()

    def propose(self, *, force: bool = False) -> Proposal:
        return abandonment.propose_abandonment(PLAN, lambda _alias: NOWHERE, force=force)


def test_a_run_that_is_given_up_is_shown_with_its_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Abandoned(monkeypatch, "commit_offsets")
    proposal = left.propose()
    assert proposal.question == "give run r1 up, and take back what it did?"
    assert proposal.lines[0].startswith("run r1, begun by ann at")
    names = [line.partition(":")[0] for line in proposal.lines[1:]]
    assert names == ["commit_offsets", "stop_consumers"]
    assert list(proposal.carry_out("bob"))[-1].startswith("rolled_back: ")
    assert left.actor == "bob"
    assert {(app.side, app.running) for app in left.world.apps.values()} == {("source", True)}
    with pytest.raises(NothingToResume, match="no unfinished run"):
        left.propose()


def test_a_run_that_went_on_meanwhile_is_not_what_was_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Abandoned(monkeypatch, "commit_offsets")
    shown = left.propose()
    a_migration(left.world, left.log, run_id="r1", resume=True).run(until_step="landing_test")
    with pytest.raises(OperationRefused, match="not what was shown"):
        carry_out_approved(left.propose(), shown.basis, "bob")
    assert left.propose(force=True).basis.endswith(", force")


def test_behind_the_point_of_no_return_it_says_that_nothing_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Abandoned(monkeypatch, "canary")
    proposal = left.propose()
    assert "the point of no return (point_of_no_return) is passed" in proposal.lines[1]
    assert len(proposal.lines) == 2
    with pytest.raises(abandonment.NotAllTakenBack, match="behind the point of no return"):
        list(proposal.carry_out("bob"))
    assert left.world.apps[PRODUCER].side == "target"
