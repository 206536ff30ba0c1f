"""Fences and stragglers in the small world: raised once, lowered by what stood there, wherever the driver dies; and
whoever writes where nobody should has a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_back, assert_moved
from tests.cutover.spoils import failing, straggle, upon
from tests.cutover.world import POLICY, PRODUCER, REVERSE, World, a_migration, a_plan
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import (
    Action,
    CallHook,
    FindWriters,
    LowerFence,
    RaiseFence,
    ReadFence,
    ReadLogs,
    StopApplication,
)
from watershed.cutover.errors import Refused
from watershed.cutover.fences.journaled_fence import find_standing_fence
from watershed.cutover.fences.stragglers import describe_writer, refuse_stranded_records, require_only_markers
from watershed.cutover.journal.hash_chain import JournalChain
from watershed.cutover.observations import (
    ActionFailed,
    HookAnswer,
    Observation,
    ObservedFence,
    ObservedLogs,
    ObservedWriter,
    ObservedWriters,
)
from watershed.cutover.policy import WavePolicy
from watershed.cutover.step_runner import RunResult
from watershed.topology.migration_waves import WaveFence

PLACE = TopicPartition("orders", 1)
FENCES = [WaveFence("acl"), WaveFence("quota", rate=10), WaveFence("external", "gate")]
by_kind = pytest.mark.parametrize("fence", FENCES, ids=[fence.kind for fence in FENCES])


def policy(fence: WaveFence, **more: Any) -> WavePolicy:
    return replace(POLICY, strategy="fenced", fence=fence, watch_ms=1_000, **more)


def run(world: World, log: FakeLog, fence: WaveFence, holder: str = "first", **more: Any) -> RunResult:
    plan = a_plan(strategy="fenced")
    return a_migration(world, log, holder, plan=plan, policy=policy(fence, **more), run_id="r1").run()


def deeds(log: FakeLog, *names: str) -> list[dict[str, Any]]:
    return [r["observation"] for r in log.records if r["deed"] in names and r["kind"] == "intent"]


def called(world: World) -> list[str]:
    return [point for name, point, _key in world.called if name == "gate"]


def chain_of(log: FakeLog) -> JournalChain:
    chain = JournalChain("shop")
    chain.follow(log.read(0))
    return chain


def stands(world: World, fence: WaveFence) -> bool:
    """As the world sees it: a hook that was called to raise it last, or the brokers."""
    return called(world)[-1:] == ["raise"] if fence.kind == "external" else world.fenced is not None


@pytest.mark.parametrize(("kind", "state"), [("acl", "done"), ("quota", "refused")])
def test_a_flow_of_another_file_that_would_carry_the_fence_is_named(kind: Any, state: str) -> None:
    """A denial would have another topic's name there; a quota is the user's wherever he writes."""
    world, log = World(), FakeLog()
    world.carriers = ("dc-to-cloud of billing",)
    result = run(world, log, WaveFence(kind))
    assert result.state == state, result
    told = "flow dc-to-cloud of billing, of another file, carries"
    assert told in result.reason or any(told in line for line in world.said)


@by_kind
def test_a_fence_stays_up_after_a_success(fence: WaveFence) -> None:
    world, log = World(), FakeLog()
    assert_moved(world, run(world, log, fence))
    assert stands(world, fence)
    deed = find_standing_fence(chain_of(log).entries)
    assert deed is not None
    assert deed == deeds(log, "RaiseFence", "CallHook")[0]


@by_kind
@pytest.mark.parametrize("stored", [True, False], ids=["after", "before"])
def test_a_crash_around_it_leaves_no_half_fence(fence: WaveFence, stored: bool) -> None:
    """At every entry about the fence, on the way there, and on the way back from a straggler at the last look. (Crashes
    at all other entries: test_crash_matrix.)"""
    for straggler in (False, True):

        def begun(straggler: bool = straggler) -> World:
            world = World()
            if straggler:
                upon(ReadLogs, straggle, step="point_of_no_return")(world)
            return world

        def judge(world: World, log: FakeLog, result: RunResult) -> None:
            if result.state == "done":
                assert_moved(world, result)
                assert stands(world, fence)
            else:
                assert_back(world, result)
                assert not stands(world, fence)
                assert find_standing_fence(chain_of(log).entries) is None
            snapshots = [deed["snapshot"] for deed in deeds(log, "RaiseFence", "LowerFence")]
            assert all(each == snapshots[0] for each in snapshots), "lowered by what stood there when it was raised"

        world, log = begun(), FakeLog()
        judge(world, log, run(world, log, fence))
        about = [n for n, record in enumerate(log.records) if record["step"].endswith("fence_producers")]
        assert len(about) >= (8 if straggler else 4)
        for at in about:
            world, log = begun(), FakeLog(crash_at=at, stored=stored)
            with pytest.raises(Crash):
                run(world, log, fence)
            judge(world, log, run(world, log, fence, "second"))


@by_kind
def test_a_fence_that_cannot_be_raised_is_found_before_anything_is_stopped(fence: WaveFence) -> None:
    world, log = World(), FakeLog()
    failing(ReadFence, "preflight", "no authorizer")(world)
    if fence.kind == "external":
        fence = WaveFence("external")
    result = run(world, log, fence)
    assert (result.state, result.step) == ("refused", "preflight")
    assert ("no authorizer" in result.reason) or "no hook for it" in result.reason
    assert not [r for r in log.records if r["deed"]]


@by_kind
def test_a_fence_that_is_not_in_force_takes_everything_back(fence: WaveFence) -> None:
    world, log = World(), FakeLog()

    def hook(action: Action) -> Observation | None:
        if isinstance(action, RaiseFence):
            world.fenced = action.snapshot
            return ObservedFence(0, False, action.snapshot, "one broker shows nothing")
        return None

    world.hook = hook
    world.refusing_hooks.add("gate")
    result = run(world, log, fence)
    if fence.kind == "external":  # a hook that says no to everything is not said to have lowered anything
        assert (result.state, result.step) == ("rollback_incomplete", "fence_producers"), result
        world.refusing_hooks.clear()
        result = run(world, log, fence, "second")
    assert result.step == "fence_producers"
    assert_back(world, result)
    assert not stands(world, fence)


@by_kind
def test_a_refused_lowering_is_no_lowering(fence: WaveFence, tmp_path: Path) -> None:
    """Journal and evidence say that the fence stands, until a lowering that the brokers or the hook confirm."""
    world, log = World(), FakeLog()
    upon(ReadLogs, straggle, step="point_of_no_return")(world)
    spoil = world.hook

    def hook(action: Action) -> Observation | None:
        if isinstance(action, LowerFence):
            return ObservedFence(0, True, dict(action.snapshot), "somebody else denies them too")
        if isinstance(action, CallHook) and action.point == "lower":
            return HookAnswer(0, False, "not now")
        return spoil(action)

    world.hook = hook
    kept: dict[str, Any] = {"plan": a_plan(strategy="fenced"), "policy": policy(fence), "run_id": "r1"}
    result = a_migration(world, log, evidence=tmp_path, **kept).run()
    assert result.state == "rollback_incomplete", result
    assert find_standing_fence(chain_of(log).entries) == deeds(log, "RaiseFence", "CallHook")[0]
    assert json.loads((tmp_path / "evidence.json").read_text())["fence"]["stands"] is True
    world.hook = lambda _action: None
    assert_back(world, a_migration(world, log, "second", **kept).run())
    assert find_standing_fence(chain_of(log).entries) is None


def test_a_fence_that_does_not_come_down_leaves_the_run_unfinished() -> None:
    world, log = World(), FakeLog()
    upon(ReadLogs, straggle, step="point_of_no_return")(world)
    spoil, refusing = world.hook, True

    def hook(action: Action) -> Observation | None:
        if isinstance(action, LowerFence) and refusing:
            return ActionFailed(0, "broker 3 does not show the change", transient=False)
        return spoil(action)

    world.hook = hook
    result = run(world, log, FENCES[0])
    assert result.state == "rollback_incomplete"
    assert "broker 3 does not show the change" in result.reason
    assert not world.apps[PRODUCER].running, "producers start only when nothing keeps them out"
    refusing = False
    assert_back(world, run(world, log, FENCES[0], "second"))


# -- stragglers -----------------------------------------------------------------------------------------------------


def naming(
    *writers: ObservedWriter, allowed: tuple[str, ...] = (), unnamed: str = ""
) -> Callable[[Action], Observation | None]:
    def hook(action: Action) -> Observation | None:
        if isinstance(action, FindWriters):
            return ObservedWriters(0, writers, {}, allowed, unnamed)
        return None

    return hook


ROGUE = ObservedWriter(PLACE, 4711, 2, 1_800_000_000_000, "legacy-tx", 41, 12, 14, 3)


@pytest.mark.parametrize(
    ("step", "fence"), [("standstill", WaveFence()), ("barrier", WaveFence()), ("tail_proof", WaveFence("quota"))]
)
def test_a_straggler_is_named(step: str, fence: WaveFence) -> None:
    world, log = World(), FakeLog()
    upon(ReadLogs, straggle, nth=8 if step == "standstill" else 1, step=step)(world)
    straggling = world.hook
    names = naming(ROGUE, allowed=("User:checkout", "User:legacy"))
    world.hook = lambda action: names(action) or straggling(action)
    result = run(world, log, fence)
    assert_back(world, result)
    assert result.step == step
    assert (
        "Written by producer id 4711 (epoch 2, transactional id legacy-tx): 3 records at orders-1 offsets 12 to 14"
        in (result.reason)
    )
    assert "last at 2027-01-15T08:00:00Z" in result.reason
    assert "the wave's producers are checkout; ACLs let User:checkout, User:legacy write there" in result.reason
    (outcome,) = [
        r["observation"]["outcome"] for r in log.records if (r["step"], r["kind"], r["deed"]) == (step, "outcome", "")
    ]
    assert outcome["writers"][0]["last_write"] == "2027-01-15T08:00:00Z"


def test_a_straggler_at_an_old_cluster_has_no_transactional_id_and_it_is_said() -> None:
    world, log = World(), FakeLog()
    upon(ReadLogs, straggle, nth=1, step="barrier")(world)
    straggling = world.hook
    why = "transactional ids are unknown: cluster onprem is older than Kafka 3.0"
    names = naming(replace(ROGUE, who=""), unnamed=why)
    world.hook = lambda action: names(action) or straggling(action)
    result = run(world, log, WaveFence())
    assert "producer id 4711 (epoch 2): 3 records" in result.reason
    assert f"the wave's producers are checkout; {why})" in result.reason


def test_a_straggler_whom_the_brokers_do_not_tell_is_one_all_the_same() -> None:
    world = World()
    upon(ReadLogs, straggle, step="barrier")(world)
    straggling = world.hook
    world.hook = lambda action: (
        ActionFailed(0, "DescribeProducers is not known") if isinstance(action, FindWriters) else straggling(action)
    )
    result = run(world, FakeLog(), WaveFence())
    assert_back(world, result)
    assert "orders-1 by +1 (the brokers do not tell who it was)" in result.reason


@pytest.mark.parametrize(
    ("writer", "text"),
    [
        (ROGUE, "producer id 4711 (epoch 2, transactional id legacy-tx): 3 records at orders-1 offsets 12 to 14, last"),
        (
            ObservedWriter(PLACE, -1, -1, -1, first=5, last=5, records=1),
            "a producer without idempotence: 1 record at orders-1",
        ),
        (replace(ROGUE, flow="edge-to-onprem"), "flow edge-to-onprem of Watershed, producer id 4711"),
        (
            replace(ROGUE, marker=True, last=12),
            "producer id 4711 (epoch 2, transactional id legacy-tx): the end of a tr",
        ),
    ],
)
def test_words_for_writers(writer: ObservedWriter, text: str) -> None:
    assert describe_writer(writer).startswith(text)


@pytest.mark.parametrize("step", ["standstill", "barrier"])
def test_a_transaction_that_ends_behind_the_fence_is_no_straggler(step: str) -> None:
    world = World()

    def marker(into: World) -> None:
        into.logs["source"][PLACE].append(None)

    upon(ReadLogs, marker, nth=8 if step == "standstill" else 1, step=step)(world)
    assert_moved(world, run(world, FakeLog(), WaveFence()))


def test_what_was_under_way_when_the_fence_rose_may_arrive() -> None:
    world, fenced = World(), []

    def hook(action: Action) -> Observation | None:
        if isinstance(action, StopApplication) and action.name == PRODUCER:
            fenced.append(1)
        if isinstance(action, ReadLogs) and action.side == "source" and 1 <= len(fenced) <= 3:
            fenced.append(1)
            straggle(world)
        return None

    world.hook = hook
    assert_moved(world, run(world, FakeLog(), WaveFence()))
    assert len(fenced) == 4


# -- after the switch -----------------------------------------------------------------------------------------------


def test_what_the_way_back_brings_is_not_stranded() -> None:
    world, log = World(), FakeLog()
    assert_moved(world, run(world, log, FENCES[0], reverse=REVERSE, after_ms=5_000))
    assert world.came_back
    assert "straggler_watch" in {record["step"] for record in log.records}


def unseen(moved: str) -> Callable[[ObservedWriters], ObservedWriters]:
    """Makes of what was seen that of a reader whom a broker did not answer. moved: what is not covered."""

    def change(seen: ObservedWriters) -> ObservedWriters:
        if moved == "writers":
            return replace(seen, writers=())
        if moved == "a place":
            return replace(seen, writers=tuple(each for each in seen.writers if each.place != PLACE))
        if moved == "an end":
            return replace(seen, upto={**seen.upto, PLACE: seen.upto[PLACE] - 1})
        return replace(seen, upto={place: end for place, end in seen.upto.items() if place != PLACE})

    return change


@pytest.mark.parametrize("reverse", [None, REVERSE])
@pytest.mark.parametrize("moved", ["writers", "a place", "an end", "upto"])
def test_records_of_nobody_are_not_the_flows(moved: str, reverse: str | None) -> None:
    """Of no writer at all it is true, too, that all of them are the reverse flow, or wrote nothing but markers."""
    here, other = PLACE, TopicPartition("orders", 0)
    ours = [
        ObservedWriter(each, 7, 0, 0, first=5, last=5, records=1, flow=REVERSE, marker=True) for each in (other, here)
    ]
    seen = ObservedWriters(0, tuple(ours), {other: 6, here: 6})
    ends, now = {other: 5, here: 5}, ObservedLogs(0, {}, {}, {other: 6, here: 6})
    look = refuse_stranded_records if reverse else require_only_markers
    context = SimpleNamespace(policy=policy(FENCES[0], reverse=reverse), wave=SimpleNamespace(name="w"), producers=())

    def drive(answer: ObservedWriters) -> dict[TopicPartition, int]:
        looking = look(context, ends, now)  # type: ignore[arg-type]
        next(looking)
        try:
            looking.send(answer)
        except StopIteration as done:
            return dict(done.value)
        raise AssertionError("one question is enough")

    assert drive(seen) == now.ends
    with pytest.raises(Refused, match="stranded" if reverse else "straggler"):
        drive(unseen(moved)(seen))


@pytest.mark.parametrize("reverse", [None, REVERSE])
def test_whoever_writes_to_the_source_after_the_switch_is_named(reverse: str | None) -> None:
    world, log = World(), FakeLog()
    upon(ReadLogs, straggle, nth=3, step="straggler_watch")(world)
    result = run(world, log, FENCES[0], reverse=reverse, after_ms=5_000)
    assert (result.state, result.step) == ("stopped", "straggler_watch"), result
    assert "stranded: records were written to the source after the switch: " in result.reason
    assert "Written by producer id 7 (epoch 0): 1 record at orders-1" in result.reason
    assert world.fenced is not None, "behind the point of no return the fence stays"
