"""What a version after this one may write, and what this one says to it: nothing is passed over that counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from tests.clusters.test_control_values import SETTINGS
from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.moved import stopped as stand_still
from tests.cutover.test_giving_up import abandoned, left_by_a_dead_run
from tests.cutover.world import World, a_migration
from tests.cutover.world_back import a_rollback
from tests.upgrade.two_version_runs import name_evidence_only
from watershed.clusters.control_topics import encode_control_value
from watershed.clusters.errors import UnreadableControlRecord
from watershed.clusters.flow_records import FlowRecord, read_flow_to_change
from watershed.cutover.errors import BrokenChain, NewerEntry, PlanChanged
from watershed.cutover.journal.hash_chain import JournalChain, JournalEntry
from watershed.cutover.journal.signing import SIGNED_HASH_PREFIX, Signing, hash_entry
from watershed.cutover.operations.flow_state import give_flow_order
from watershed.replicator.apply_refusals import CannotApply, refuse_newer_record
from watershed.replicator.worker.desired_state import DesiredState
from watershed.topology.errors import UnreadablePlan
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, decode_plan, encode_plan, seal_plan
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
RECORD = FlowRecord(FLOW, "sha256:0", "shop").to_json()
KEY = b"k" * 32


def read_failure(value: dict[str, Any]) -> UnreadableControlRecord:
    with pytest.raises(UnreadableControlRecord) as refused:
        FlowRecord.from_json(value, "a-to-b")
    return refused.value


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value | {"schema": 2},
        lambda value: value | {"flow": value["flow"] | {"leaves_out": "fridays"}},
        lambda value: value | {"flow": value["flow"] | {"topics": value["flow"]["topics"] | {"leaves_out": "fridays"}}},
    ],
    ids=["another schema", "another key of a flow", "another key inside"],
)
def test_a_flow_of_a_newer_version_is_not_written_over(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    error = read_failure(change(RECORD))
    assert error.is_newer
    with pytest.raises(CannotApply, match="a newer version of Watershed has written its record at b"):
        refuse_newer_record(FLOW, error)


@pytest.mark.parametrize("change", [{"schema": "x"}, {"schema": 0}, {"flow": 5}, {"generation": "one"}], ids=repr)
def test_what_no_version_wrote_is_written_over(change: dict[str, Any]) -> None:
    error = read_failure(RECORD | change)
    assert not error.is_newer
    refuse_newer_record(FLOW, error)
    refuse_newer_record(FLOW, None)


NEWER_RECORD = RECORD | {"flow": RECORD["flow"] | {"leaves_out": "fridays"}}


def test_nobody_changes_the_copy_before_a_record_of_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_latest(*_arguments: Any, unreadable: dict[str, ValueError] | None = None) -> dict[str, FlowRecord]:
        if unreadable is not None:
            unreadable["a-to-b"] = read_failure(NEWER_RECORD)
        return {"a-to-b": FlowRecord.from_json(RECORD)}

    monkeypatch.setattr("watershed.clusters.flow_records.read_latest_records", read_latest)
    told = "keys unknown here: leaves_out.*Use the version of Watershed that wrote it.*delete it with a tombstone"
    with pytest.raises(UnreadableControlRecord, match=told):
        read_flow_to_change(SETTINGS, "a-to-b")
    with pytest.raises(UnreadableControlRecord, match=told):
        list(give_flow_order(SETTINGS, "a-to-b", "pause", "ann"))
    assert read_flow_to_change(SETTINGS, "another") is None


def test_a_worker_copies_nothing_by_the_record_before_a_newer_one(caplog: pytest.LogCaptureFixture) -> None:
    desired = DesiredState(SETTINGS)
    try:
        desired._take("a-to-b", encode_control_value(RECORD), 0)
        desired._take("a-to-b", encode_control_value(NEWER_RECORD), 1)
        assert desired.flows["a-to-b"].state == "paused"
        [told] = [each for each in caplog.records if each.message == "record unreadable"]
        assert "start workers of the version that wrote it" in vars(told)["remedy"]
        desired._take("a-to-b", encode_control_value(RECORD), 2)
        assert desired.flows["a-to-b"].state == "running"
    finally:
        desired.close()


def test_a_field_beside_the_flow_is_passed_over() -> None:
    assert FlowRecord.from_json(RECORD | {"of_a_newer_version": 1}) == FlowRecord.from_json(RECORD)


def test_a_plan_of_a_newer_version_names_the_keys() -> None:
    plan = seal_plan(Plan("shop", (PlanCluster("a", ("a:1",)), PlanCluster("b", ("b:1",))), (FLOW,)))
    document = json.loads(encode_plan(plan))
    document["flows"][0]["leaves_out"] = "fridays"
    with pytest.raises(UnreadablePlan, match=r"unknown here: leaves_out; compile again with this version"):
        decode_plan(json.dumps(document))


def build_entry(signing: Signing | None, previous: str, seq: int, **fields: Any) -> dict[str, Any]:
    """An entry of a version that has more fields, with its own hash."""
    entry = JournalEntry("shop", "r1", seq, "run", "intent", "", "ann", "h", "p", "all", 1, {}, previous)
    value = entry.to_json() | fields
    body = json.dumps({k: v for k, v in value.items() if k != "hash"}, sort_keys=True, separators=(",", ":")).encode()
    return value | {"hash": hash_entry(body) if signing is None else signing.seal(body)}


def test_an_entry_of_a_newer_version_stops_whoever_cannot_read_it() -> None:
    chain = JournalChain("shop")
    chain.follow([(0, build_entry(None, chain.root, 0))])
    newer = build_entry(None, chain.root, 1, region="north")
    with pytest.raises(
        NewerEntry, match=r"journal offset 1 .* newer version of Watershed, with fields unknown here: reg"
    ):
        chain.follow([(1, newer)])
    with pytest.raises(NewerEntry):  # who asks again is stopped again
        chain.follow([(offset, newer) for offset in (1,) if offset >= chain.next_offset])
    assert issubclass(NewerEntry, BrokenChain), "whoever stops at a broken chain stops here"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: entry | {"hash": "sha256:" + "1" * 64},
        lambda entry: entry | {"previous": "sha256:" + "2" * 64},
        lambda entry: entry | {"region": "\ud800"},
    ],
    ids=["without its hash", "behind nothing", "no text"],
)
def test_what_only_looks_like_one_stops_nobody(spoil: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    chain = JournalChain("shop")
    chain.follow([(0, spoil(build_entry(None, chain.root, 0, region="north")))])
    assert not chain.entries
    assert len(chain.foreign) == 1


def test_with_a_key_only_an_entry_of_its_holder_stops_anybody() -> None:
    signing = Signing((KEY,))
    chain = JournalChain("shop", signing=signing)
    chain.follow([(0, build_entry(None, chain.root, 0, region="north"))])
    assert [each.foreign for each in chain.void] == [True]
    newer = build_entry(signing, chain.root, 0, region="north")
    assert newer["hash"].startswith(SIGNED_HASH_PREFIX)
    with pytest.raises(NewerEntry):
        chain.follow([(1, newer)])


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> tuple[World, FakeLog]:
    """A migration whose process has died in the middle."""
    monkeypatch.setattr("watershed.cutover.driver.write_run_evidence", name_evidence_only)
    world, log = World(), FakeLog(crash_at=12)
    with pytest.raises(Crash):
        a_migration(world, log, run_id="r1").run()
    return world, log


def begin_with(log: FakeLog, steps: list[str] | None, rename: Mapping[str, str] = MappingProxyType({})) -> FakeLog:
    """The same journal, begun by a version that has these steps, or says none. Its entries have their hashes. rename:
    what that version calls steps of ours."""
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    found = FakeLog()
    previous = chain.entries[0].previous
    for entry in chain.entries:
        observation = {name: each for name, each in entry.observation.items() if name != "steps"}
        if entry.seq == 0 and steps is not None:
            observation["steps"] = steps
        kept = replace(entry, previous=previous, observation=observation if entry.seq == 0 else entry.observation)
        kept = replace(kept, step=rename.get(kept.step, kept.step))
        previous = kept.sealed().hash
        found.records.append(kept.sealed().to_json())
    return found


def test_a_run_that_was_begun_with_other_steps_goes_on_with_its_own_version(stopped: tuple[World, FakeLog]) -> None:
    world, log = stopped
    steps = log.records[0]["observation"]["steps"]
    assert steps[0] == "preflight"
    other = begin_with(log, ["preflight", "weigh_records", *steps[1:]])
    with pytest.raises(PlanChanged, match=r"with other steps \(preflight, weigh_records, .* version that began it"):
        a_migration(world, other, "second", run_id="r1").run()
    same = begin_with(log, steps)
    assert a_migration(world, same, "second", run_id="r1").run().state == "done"


def test_a_run_of_the_first_release_says_no_steps_and_goes_on(stopped: tuple[World, FakeLog]) -> None:
    world, log = stopped
    assert a_migration(world, begin_with(log, None), "second", run_id="r1").run().state == "done"


@pytest.mark.parametrize("force", [False, True])
def test_a_run_whose_steps_nobody_here_can_undo_is_not_given_up(force: bool) -> None:
    world, log = left_by_a_dead_run("drain")
    steps = log.records[0]["observation"]["steps"]
    newer = {"fence_producers": "fence_by_region"}
    other = begin_with(log, [newer.get(each, each) for each in steps], newer)
    before = list(other.records)
    with pytest.raises(PlanChanged, match=r"run \S+ began fence_by_region, .* with the version that did it"):
        abandoned(world, other, force=force)
    assert other.records == before, "nothing is declared, and the lock is not freed"


def test_a_run_whose_other_steps_had_not_begun_is_given_up() -> None:
    world, log = left_by_a_dead_run("drain")
    other = begin_with(log, [*log.records[0]["observation"]["steps"], "weigh_records"])
    assert abandoned(world, other).state == "rolled_back"


def test_a_run_with_unknown_steps_is_not_rolled_back_behind_its_point_of_no_return() -> None:
    log = FakeLog()
    world = stand_still(log, "canary")
    newer = {"lag_gate": "lag_by_region"}
    other = begin_with(log, None, newer)
    with pytest.raises(PlanChanged, match="began lag_by_region, which this version of Watershed does not know"):
        a_rollback(world, other).run()
    assert len(other.records) == len(log.records)


def test_every_kind_of_run_says_its_steps() -> None:
    log = FakeLog()
    world = stand_still(log, "canary")
    world.tick()
    back = a_rollback(world, log)
    back.run("lag_gate")
    begun = [each["observation"] for each in log.records if each["observation"].get("kind") == "rollback"]
    assert [each["steps"] for each in begun] == [[step.name for step in back.steps]]
