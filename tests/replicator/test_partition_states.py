"""Halt states: every one has a remedy that can be typed, a section in the manual, and nothing resets an offset."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from watershed.cli.main import topology
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator import partition_states
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import (
    REMEDIES,
    RETRY_FIRST_S,
    RETRY_LONGEST_S,
    Halt,
    OffsetSpan,
    Reinspect,
    pick_trouble,
)
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.topic_mapping import HoldReason
from watershed.replicator.worker import partition_task as seat_module
from watershed.replicator.worker.desired_state import DesiredState
from watershed.replicator.worker.partition_task import PartitionTask
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

ROOT = Path(__file__).parents[2]
DESIGN = {
    "source_expired", "source_recreated", "source_truncated", "source_gone", "target_gone", "target_foreign_write",
    "duplicated", "rejected", "unauthorised", "unsupported", "append_time", "failed",
    "ledger_invalid", "source_foreign_write", "start_missing", "untransformed", "over_budget",
}  # fmt: skip


def test_the_states_are_those_of_the_design() -> None:
    assert set(REMEDIES) == DESIGN
    assert (
        partition_states.SELF_HEALING_STATES
        | partition_states.GAP_ACCEPTABLE_STATES
        | partition_states.RESEEDABLE_STATES
        | {partition_states.COPY_FOREIGN_STATE}
        <= DESIGN
    )
    assert not partition_states.SELF_HEALING_STATES & (
        partition_states.GAP_ACCEPTABLE_STATES | partition_states.RESEEDABLE_STATES
    )


@pytest.mark.parametrize("state", sorted(DESIGN))
def test_every_command_of_a_remedy_exists(state: str) -> None:
    remedy = Halt(state, "seen").remedy_for("a-to-b", "orders", 3)
    assert "{" not in remedy.replace("{rejected: quarantine}", "")
    for words in [shlex.split(part) for part in remedy.split("`")[1::2] if part.startswith("topology ")]:
        command: click.Command | None = topology
        context = click.Context(topology)
        while isinstance(command, click.Group):
            words = words[1:]
            command = command.get_command(context, words[0])
        assert command is not None, remedy
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("state", sorted(DESIGN))
def test_every_state_has_its_section_in_the_manual(state: str) -> None:
    manual = (ROOT / "docs" / "states.md").read_text()
    (section,) = re.findall(rf"^## `{state}`\n(.*?)(?=^## |\Z)", manual, re.M | re.S)
    for part in ("**Means.**", "**Seen.**", "**Do.**"):
        assert part in section, part


def test_a_span_is_told_by_its_first_and_last() -> None:
    assert str(OffsetSpan(3, 8)) == "3 to 7"
    assert str(OffsetSpan(3, 3)) == "none (at 3)"


@pytest.mark.parametrize(
    ("first", "later", "counts"),
    [
        (None, Reinspect("cut"), Reinspect("cut")),
        (Reinspect("cut"), Reinspect("moved"), Reinspect("cut")),
        (Reinspect("cut"), Halt("rejected", "bad"), Halt("rejected", "bad")),
        (Halt("rejected", "bad"), Reinspect("cut"), Halt("rejected", "bad")),
        (Halt("rejected", "bad"), Halt("duplicated", "twice"), Halt("rejected", "bad")),
    ],
)
def test_the_first_trouble_counts_and_a_halt_replaces_a_reason_to_inspect_again(first, later, counts) -> None:
    assert pick_trouble(first, later) == counts


# -- one task ----------------------------------------------------------------------------------------------------

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("literal", "orders"),)))


def sitting() -> PartitionTask:
    return PartitionTask(
        PartitionKey("a-to-b", "orders", "orders", 3), FlowRecord(FLOW, "sha256:0", "shop", producer_id=7)
    )


def test_what_may_heal_is_tried_again_ever_more_slowly() -> None:
    task, now, waits = sitting(), 100.0, []
    for _ in range(8):
        task.record_trouble(Halt("unauthorised", "WRITE is missing"), now)
        assert not task.is_ready_to_inspect(now)
        waits.append(task.not_before - now)
        now = task.not_before
        assert task.is_ready_to_inspect(now)
    assert waits[:3] == [RETRY_FIRST_S, 2 * RETRY_FIRST_S, 4 * RETRY_FIRST_S]
    assert waits[-1] == RETRY_LONGEST_S


@pytest.mark.parametrize("state", sorted(DESIGN - partition_states.SELF_HEALING_STATES))
def test_what_needs_a_decision_is_left_alone_until_there_is_one(state: str) -> None:
    task = sitting()
    task.record_trouble(Halt(state, "seen", source=OffsetSpan(3, 8)), 100.0)
    assert not task.is_ready_to_inspect(1e9)
    report = task.report("w", 1)
    assert (report.state, report.error, report.seen["source"]) == (state, "seen", [3, 8])
    assert "FLOW" not in report.remedy
    order = OperatorDecision("reseed", "a-to-b", "orders", 3, state, 1, "ann", id="one")
    task.take_decision(order)
    assert task.is_ready_to_inspect(100.0)
    task.begin_inspection()
    task.end_inspection(decision_judged=True)
    task.record_trouble(Halt(state, "seen; refused"), 101.0)
    task.take_decision(order)
    assert not task.is_ready_to_inspect(1e9)  # judged: not again and again


def test_the_loop_hurries_only_where_something_is_to_be_done() -> None:
    task = sitting()
    assert task.has_work_before(100.0), "to be looked at"
    task.begin_inspection()
    assert task.has_work_before(100.0), "to be taken over"
    task.end_inspection(decision_judged=True)
    task.record_trouble(Halt("unauthorised", "WRITE is missing"), 100.0)
    assert not task.has_work_before(100.1)
    assert task.has_work_before(task.not_before)
    task.record_trouble(Halt("duplicated", "seen"), 100.0)
    assert not task.has_work_before(1e9)
    task.wanted = False
    assert task.has_work_before(100.0), "to be handed over"


def test_an_order_that_comes_while_a_look_is_under_way_is_judged_by_the_next() -> None:
    task = sitting()
    task.record_trouble(Halt("duplicated", "seen"), 100.0)
    task.take_decision(OperatorDecision("reseed", "a-to-b", "orders", 3, "duplicated", 1, "ann", id="one"))
    task.begin_inspection()
    task.take_decision(OperatorDecision("reseed", "a-to-b", "orders", 3, "duplicated", 1, "ann", id="two"))
    task.end_inspection(decision_judged=True)
    assert task.has_new_decision
    assert task.is_ready_to_inspect(100.0)


def test_a_halted_partition_of_a_flow_that_stands_still_keeps_its_own_remedy() -> None:
    """The budget has stopped all of the flow. What the halt needs is another thing, and is needed after the resume."""
    task, halt = sitting(), Halt("source_expired", "source offsets 3 to 7 are gone", source=OffsetSpan(3, 8))
    task.held = HoldReason("paused", "paused by slo.lag.max", "`topology flow resume a-to-b FILE`")
    report = task.report("w", 1)
    assert (report.state, report.error, report.remedy) == ("paused", task.held.error, task.held.remedy)
    task.record_trouble(halt, 100.0)
    report = task.report("w", 1)
    assert (report.state, report.error) == ("source_expired", halt.error)
    assert report.remedy == halt.remedy_for("a-to-b", "orders", 3)


def test_a_suspicion_becomes_loud_only_when_it_lasts() -> None:
    task, gone = sitting(), Reinspect("no topic orders", "source_gone")
    for at in (0.0, 1.0, 4.0):
        task.record_trouble(gone, at)
        assert task.stopped is None
    task.record_trouble(gone, seat_module.SAME_FOR_S)
    assert task.stopped is not None
    assert task.stopped.state == "source_gone"


# -- offsets are never reset ----------------------------------------------------------------------------------------


def test_nothing_in_the_tree_resets_an_offset() -> None:
    """Neither in what runs nor in what is started by it: `auto.offset.reset` is error (librdkafka) or none (Java)."""
    found = []
    tree = [path for room in ("clusters", "replicator", "cutover", "spark", "plugins", "dags", "cli", "topology")
            for path in (ROOT / room).rglob("*.py")]  # fmt: skip
    assert len(tree) > 100
    for path in tree:
        # `share.auto.offset.reset` is a group's own setting, which is compared and never written.
        for value in re.findall(r"(?<!share\.)auto[._]offset[._]reset[\"']?\s*[:=,]\s*[\"']?(\w+)", path.read_text()):
            found.append((path.relative_to(ROOT), value))
    assert found
    wrong = [each for each in found if each[1] not in ("none", "error")]
    # What reads another tool's configuration may name its default; nothing of it becomes a client of ours.
    assert [each for each in wrong if each[0].parts[:2] != ("topology", "interop")] == []


def test_every_consumer_says_so() -> None:
    """librdkafka's own default is to go on at the end."""
    for room in ("clusters", "replicator", "cutover", "spark", "plugins", "cli"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text()
            made = len(re.findall(r"(?<![A-Za-z_.])Consumer\(", text))
            assert text.count('"auto.offset.reset": "error"') >= made, path


def test_what_librdkafka_is_really_given(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ConnectionSettings("b", ("127.0.0.1:1",))
    built: list[dict] = []

    class Recorded:
        def __init__(self, configuration: dict, **_: object) -> None:
            built.append(configuration)

        def subscribe(self, *_: object, **__: object) -> None: ...

    from watershed.clusters import partition_consumer
    from watershed.replicator.worker import membership

    for module in (partition_consumer, membership):
        monkeypatch.setattr(module, "Consumer", Recorded)
    DesiredState(settings)
    membership.Membership(settings, "group", "client", lambda _: None)
    assert [each["auto.offset.reset"] for each in built] == ["error", "error"]
    assert "auto.offset.reset" not in settings.librdkafka()
