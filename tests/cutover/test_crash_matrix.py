"""A driver that dies anywhere is followed by one that finishes: every strategy, every journal entry (stored or not),
every deed (before and after its effect), on the way forward and on every way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_back, assert_moved, assert_whole
from tests.cutover.spoils import straggle, upon
from tests.cutover.world import A_RIGHT, POLICY, REVERSE, World, a_migration, a_plan, holding_back
from watershed.cutover.actions import Action, Deed, ReadLogs
from watershed.cutover.migration_step_order import STRATEGY_STEPS, list_strategy_steps, name_undo_step
from watershed.cutover.observations import Observation
from watershed.cutover.policy import WavePolicy
from watershed.cutover.step_runner import RunResult
from watershed.topology.migration_waves import WaveFence, WaveHooks, WaveStrategy

STRATEGIES: tuple[WaveStrategy, ...] = ("consumers_first", "producers_first", "fenced")
OTHER_RIGHT = {**A_RIGHT, "principal": "User:before"}  # somebody gave it at the target
SOONER = {"watch_ms": 1_000, "after_ms": 1_000, "hold_ms": 500, "empty_times": 2, "hold_times": 2}


def everything(strategy: WaveStrategy) -> WavePolicy:
    """A policy that asks for every step that there is."""
    hooks = WaveHooks(before=("ticket",), fenced=("dns",), switched=("told",), rolled_back=("told",))
    return replace(
        POLICY,
        **SOONER,
        strategy=strategy,
        fence=WaveFence("acl"),
        reverse=REVERSE,
        hooks=hooks,
        checks_before=("ready",),
        checks_after=("well",),
        hold_before_ms=500,
        hold_after_ms=500,
    )


@dataclass(frozen=True)
class Story:
    """What happens besides the crash. over: what must be true at the end."""

    strategy: WaveStrategy
    spoil: Callable[[World], None]
    over: Callable[[World, RunResult], None]

    def world(self) -> World:
        world = World()
        world.withheld, world.given, world.protected = (A_RIGHT, OTHER_RIGHT), [OTHER_RIGHT], set(world.topics)
        self.spoil(world)
        return world

    def run(self, world: World, log: FakeLog, holder: str = "first") -> RunResult:
        plan = holding_back(a_plan(strategy=self.strategy))
        return a_migration(world, log, holder, plan=plan, policy=everything(self.strategy), run_id="r1").run()

    def follow(self, world: World, log: FakeLog) -> None:
        """Another process goes on after a crash, in a world that did not wait."""
        for _ in range(3):
            world.tick()
        result = self.run(world, log, "second")
        self.over(world, result)
        assert_whole(log)


def moved(world: World, result: RunResult) -> None:
    assert_moved(world, result)
    assert world.fenced is not None, "the fence is never taken down after a success"
    assert world.reverse_state == "running"
    assert world.flow_state == "stopped"
    assert world.given == [OTHER_RIGHT, A_RIGHT]
    assert not world.protected
    assert world.unwritten == 0


def back(world: World, result: RunResult) -> None:
    """What happened came before the straggler, or everything was taken back: never something between."""
    if result.state == "done":
        moved(world, result)
        return
    assert_back(world, result)
    assert world.reverse_state == "paused"
    assert world.flow_state == "running"
    assert world.protected == set(world.topics)
    assert world.given == [OTHER_RIGHT], "rights are taken away again, and those that stood there stay"


def clean(_world: World) -> None:
    pass


STORIES = [Story(strategy, clean, moved) for strategy in STRATEGIES]
# The straggler comes at the very last look, so that everything that can be undone is.
STORIES += [Story(strategy, upon(ReadLogs, straggle, step="point_of_no_return"), back) for strategy in STRATEGIES]
NAMES = [f"{story.strategy}-{'forward' if story.over is moved else 'and back'}" for story in STORIES]


@pytest.fixture(autouse=True)
def _no_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in an evidence pack has its own tests; two thousand of them take as long as all else."""
    monkeypatch.setattr(
        "watershed.cutover.driver.write_run_evidence", lambda directory, *_rest: directory / "evidence.json"
    )


@pytest.fixture(params=STORIES, ids=NAMES)
def story(request: pytest.FixtureRequest) -> Story:
    found: Story = request.param
    return found


def test_without_a_crash_every_step_is_in_the_story(story: Story) -> None:
    world, log = story.world(), FakeLog()
    result = story.run(world, log)
    story.over(world, result)
    assert_whole(log)
    begun = {record["step"] for record in log.records}
    policy = everything(story.strategy)
    assert {*STRATEGY_STEPS[story.strategy]} - {"window"} == {
        step.name for step in list_strategy_steps(policy, rights=True, protected=True)
    }
    if story.over is moved:
        assert {step.name for step in list_strategy_steps(policy, rights=True, protected=True)} <= begun
    else:
        assert result.state == "rolled_back"
        held = "hold_reverse" if story.strategy == "producers_first" else "stop_consumers"
        assert {name_undo_step(name) for name in ("lift_protection", "write_rights", "fence_producers", held)} <= begun


def test_a_crash_at_every_journal_entry(story: Story) -> None:
    """Of what an earlier story has in the same direction only every fourth: `make soak` has them all."""
    earlier = STORIES[: STORIES.index(story)]
    told = {sort_of(entry) for other in earlier if other.over is story.over for entry in journal_of(other)}
    for at, entry in enumerate(journal_of(story)):
        if sort_of(entry) not in told or at % 4 == 0:
            die_at_entry(story, at, stored=True)


@pytest.mark.soak
def test_a_crash_at_every_journal_entry_of_every_story(story: Story) -> None:
    for at in range(len(journal_of(story))):
        die_at_entry(story, at, stored=True)


def sort_of(entry: dict[str, Any]) -> tuple[str, str, object]:
    """Entries of one sort are written by the same code at the same place."""
    return entry["kind"], entry["step"], entry.get("deed")


def test_a_crash_before_an_entry_that_tells_of_a_change(story: Story) -> None:
    """Before any other entry the world and the journal are what they were after the entry before that."""
    told = [
        at
        for at, entry in enumerate(journal_of(story))
        if entry["kind"] == "outcome" and (entry["deed"] or entry["step"] == "point_of_no_return")
    ]
    assert len(told) > 8
    for at in (0, *told):
        die_at_entry(story, at, stored=False)


@pytest.mark.soak
def test_a_crash_before_every_journal_entry(story: Story) -> None:
    for at in range(len(journal_of(story))):
        die_at_entry(story, at, stored=False)


def journal_of(story: Story) -> list[dict[str, Any]]:
    whole = FakeLog()
    story.run(story.world(), whole)
    return whole.records


def die_at_entry(story: Story, at: int, *, stored: bool) -> None:
    world, log = story.world(), FakeLog(crash_at=at, stored=stored)
    with pytest.raises(Crash):
        story.run(world, log)
    story.follow(world, log)


@pytest.mark.parametrize("effect", [True, False], ids=["done", "not done"])
def test_a_crash_in_the_middle_of_every_deed(story: Story, effect: bool) -> None:
    at = 0
    while True:
        world, log = story.world(), FakeLog()
        die_in_deed(world, at, effect=effect)
        try:
            story.run(world, log)
            break  # there is no such deed any more
        except Crash:
            story.follow(world, log)
        at += 1
    assert at > 8


class Several(Story):
    """Two groups and two producers: a step does several deeds, and a process may end between any two of them."""

    def world(self) -> World:
        writes, reads = (
            {"checkout": ("orders",), "tracker": ("clicks",)},
            {"billing": ("orders",), "audit": ("clicks",)},
        )
        world = World({"orders": 2, "clicks": 1}, writes, reads)
        world.withheld, world.given, world.protected = (A_RIGHT, OTHER_RIGHT), [OTHER_RIGHT], set(world.topics)
        self.spoil(world)
        return world

    def run(self, world: World, log: FakeLog, holder: str = "first") -> RunResult:
        plan = a_plan(strategy=self.strategy, consumers=("billing", "audit"), producers=("checkout", "tracker"))
        policy = everything(self.strategy)
        return a_migration(world, log, holder, plan=holding_back(plan), policy=policy, run_id="r1").run()


def test_a_crash_between_the_deeds_of_a_step(story: Story) -> None:
    several, at = Several(story.strategy, story.spoil, story.over), 0
    while True:
        world, log = several.world(), FakeLog()
        die_in_deed(world, at, effect=True)
        try:
            several.run(world, log)
            break
        except Crash:
            several.follow(world, log)
        at += 1
    assert at > 12


def die_in_deed(world: World, nth: int, *, effect: bool) -> None:
    """The process ends in the n-th deed, right before the world changes or right after."""
    spoilt, count = world.hook, 0

    def hook(action: Action) -> Observation | None:
        nonlocal count
        if isinstance(action, Deed):
            count += 1
            if count == nth + 1:
                world.hook = spoilt
                if effect:
                    world.answer(action)
                raise Crash
        return spoilt(action)

    world.hook = hook


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_that_dies_again_and_again(strategy: WaveStrategy) -> None:
    """No process lives for more than eleven entries; the world goes on meanwhile."""
    story = Story(strategy, clean, moved)
    world, log = story.world(), FakeLog()
    result, lives = None, 0
    while result is None:
        lives += 1
        log.crash_at = len(log.records) + 3 + lives % 9
        try:
            result = story.run(world, log, f"life {lives}")
        except Crash:
            world.tick()
    moved(world, result)
    assert lives > 10
    assert_whole(log)
