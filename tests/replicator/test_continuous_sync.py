"""Who keeps metadata equal, when, and what is told of it, across workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watershed.clusters.budget_breaches import BudgetBreach
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import ClusterError, SecretMissing
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import SyncReport
from watershed.replicator.sync.continuous_sync import ContinuousSync, build_sync_reports
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.replicator.worker.worker import Worker
from watershed.topology.breach_policy import BreachAction
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import AclSync, SyncMode, SyncSettings

FLOW = PlanFlow(
    "a-to-b", "a", "b", TopicSelection((Selector("glob", "*"),)), sync=SyncSettings(acls=AclSync("continuous"))
)
TARGET = ConnectionSettings("b", ())


@dataclass
class Written:
    """What the keeper wrote: key → report, None for one that was taken back."""

    reports: dict[str, Any] = field(default_factory=dict)

    def put_nowait(self, topic: str, key: str, value: Any, partition: int) -> None:
        self.reports[key] = value


@dataclass
class Rights:
    """A kind that finds `differences`, and notes what it was asked for."""

    differences: list[FieldDrift] = field(default_factory=list)
    carried: list[FieldDrift] = field(default_factory=list)
    sources: list[ConnectionSettings] = field(default_factory=list)
    comparisons: int = 0
    name: str = "acls"

    def mode(self, flow: PlanFlow) -> SyncMode:
        return flow.sync.acls.mode

    def every_ms(self, flow: PlanFlow) -> int:
        return 0

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        self.sources.append(sides.source)
        self.comparisons += 1
        return list(self.differences)

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        self.carried += differences
        return [DifferenceOutcome(each) for each in differences]


def keeper(kind: Rights, *told: SyncReport) -> tuple[ContinuousSync, Written]:
    written = Written()
    made = ContinuousSync(
        TARGET,
        lambda alias: ConnectionSettings(alias, ()),
        "w",
        cast(ControlWriter, written),
        (kind,),
        reports=lambda settings: list(told),
    )
    return made, written


def flows(flow: PlanFlow = FLOW) -> dict[str, FlowRecord]:
    return {flow.id: FlowRecord(flow, "sha256:0", "t", 1, "running", 1, "id")}


def until(keeper: ContinuousSync, kind: Rights, comparisons: int) -> None:
    deadline = time.monotonic() + 180
    while kind.comparisons < comparisons:
        keeper.step([0], flows())
        assert time.monotonic() < deadline
        time.sleep(0.001)


def difference(name: str, *, applied: bool) -> FieldDrift:
    return FieldDrift("b", "acl", name, "x", None, "ALLOW", "safe" if applied else "unsafe", applied, "why")


def test_only_the_worker_of_slot_0_keeps() -> None:
    kind = Rights()
    one, written = keeper(kind)
    for _ in range(10):
        one.step([1, 2, 3], flows())
    one.close()
    assert (kind.comparisons, written.reports) == (0, {})


def test_what_can_be_applied_is_and_the_rest_is_told() -> None:
    kind = Rights([difference("topic a", applied=True), difference("topic b", applied=False)])
    one, written = keeper(kind)
    until(one, kind, 2)
    one.close()
    assert {each.name for each in kind.carried} == {"topic a"}
    assert {each["name"]: each["state"] for each in written.reports.values()} == {
        "topic a": "carried",
        "topic b": "different",
    }


def test_what_is_changed_is_logged_field_by_field(caplog: pytest.LogCaptureFixture) -> None:
    kind = Rights([difference("topic a", applied=True), difference("topic b", applied=False)])
    one, _ = keeper(kind)
    with caplog.at_level("INFO", "watershed.sync"):
        until(one, kind, 2)
        one.close()
    [line, *_] = [each.__dict__ for each in caplog.records if each.message == "carried over"]
    told = {key: line[key] for key in ("flow", "kind", "thing", "field", "was", "now")}
    assert told == {
        "flow": "a-to-b", "kind": "acls", "thing": "topic a", "field": "x", "was": None, "now": "ALLOW"
    }  # fmt: skip


def test_several_differences_of_one_thing_are_one_report() -> None:
    left = [difference("topic b", applied=False), difference("topic b", applied=False)]
    [report] = build_sync_reports("a-to-b", "acls", [DifferenceOutcome(difference("topic b", applied=True))], left)
    assert (report.state, report.why, report.detail) == ("different", "why (and 1 more)", {"differences": 2})


def test_what_an_earlier_worker_told_is_taken_back_once_it_is_over() -> None:
    over = SyncReport("a-to-b", "acls", "topic gone", "different", "why", worker="before")
    theirs = SyncReport("of-another-topology", "acls", "topic x", "different", "why")
    kind = Rights()
    one, written = keeper(kind, over, theirs)
    until(one, kind, 3)
    one.close()
    assert written.reports == {over.key: None}


def test_what_is_not_kept_any_more_is_not_told_any_more() -> None:
    over = SyncReport("a-to-b", "acls", "topic gone", "different", "why", worker="before")
    kind = Rights()
    one, written = keeper(kind, over)
    deadline = time.monotonic() + 180
    while not written.reports:
        one.step([0], flows(replace(FLOW, sync=SyncSettings())))
        assert time.monotonic() < deadline
    one.close()
    assert (written.reports, kind.comparisons) == ({over.key: None}, 0)


def test_the_source_is_the_cluster_that_the_flow_copies_from() -> None:
    kind = Rights()
    one, _ = keeper(kind)
    until(one, kind, 1)
    one.close()
    assert kind.sources[0].cluster_id == "id"


def test_reports_that_cannot_be_read_are_asked_for_again() -> None:
    kind = Rights()
    one, _ = keeper(kind)
    asked = []

    def refusing(settings: ConnectionSettings) -> list[SyncReport]:
        asked.append(settings)
        if len(asked) < 3:
            raise ClusterError("b does not answer")
        return []

    one.reports = refusing
    until(one, kind, 1)
    one.close()
    assert len(asked) == 3


def test_a_fault_of_our_own_is_told_and_the_next_round_comes() -> None:
    @dataclass
    class Broken(Rights):
        def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
            super().compare(flow, sides)
            raise ValueError("nobody thought of this")

    kind = Broken()
    one, written = keeper(kind)
    until(one, kind, 2)
    one.close()
    [told] = written.reports.values()
    assert (told["state"], told["name"]) == ("failed", "")
    assert "ValueError" in told["why"]


def test_a_stopped_flow_is_kept_only_by_a_kind_that_leaves_something_behind() -> None:
    """A worker that died behind a denial, while its flow was being stopped, leaves it to the next worker. Behind a
    failover the secrets of the source are gone."""

    def connect(alias: str) -> ConnectionSettings:
        raise SecretMissing(f"no secret for {alias}")

    @dataclass
    class Denials(Rights):
        stopped: int = 0

        def keep_stopped(self, flow: PlanFlow, target: ConnectionSettings) -> list[SyncReport]:
            assert target == TARGET
            self.stopped += 1
            return [SyncReport(flow.id, "acls", "topics", "equal", "protected: no topic")]

    rights, denials = Rights(), Denials()
    stopped = {name: record.with_state("stopped") for name, record in flows().items()}
    paused = {name: record.with_state("paused") for name, record in flows().items()}
    for kind in (rights, denials):
        one, written = keeper(kind)
        one.connect = connect
        deadline = time.monotonic() + 180
        while kind is denials and not written.reports:
            one.step([0], stopped)
            assert time.monotonic() < deadline
        for state in (stopped, paused):
            one.step([0], state)
        one.close()
        assert kind.comparisons == 0
    assert denials.stopped
    assert [each["why"] for each in written.reports.values()] == ["protected: no topic"]


@pytest.mark.parametrize("action", ["pause", "fail"])
def test_nothing_beside_records_is_kept_while_a_budget_holds_the_flow(action: BreachAction) -> None:
    """`topology flow prune` is refused then as well."""
    breach = BudgetBreach("a-to-b", 1, action, "slo.lag.max", 1_000, 40_000, "orders", 0, "w1", 0)
    worker: Any = SimpleNamespace(_desired=SimpleNamespace(breaches={breach.key: breach}, flows=flows()))
    worker.topology, worker.target, worker._transforms = "t", TARGET, None
    worker._find_breach = lambda record: Worker._find_breach(worker, record)
    served = Worker._select_flows(worker)
    assert {each.state for each in served.values()} == {"paused" if action == "pause" else "running"}
    assert {each.state for each in Worker._select_synced_flows(worker, served).values()} == {"paused"}
    answered = {name: replace(each, answered_breaches=1) for name, each in flows().items()}
    assert Worker._select_synced_flows(worker, answered) == answered
