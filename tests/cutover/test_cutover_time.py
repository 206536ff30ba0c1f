"""Times that a step lets pass do not begin anew with whoever takes the run over: they count from the journal's entry
of its beginning. A wall clock that was set meanwhile makes such a time at most whole again, or over (C31)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.judging import assert_moved
from tests.cutover.world import POLICY, World, a_migration
from watershed.cutover.driver import RunDriver
from watershed.cutover.journal.hash_chain import Journal

HOLD_S, DIES_S, AWAY_S = 20.0, 5.0, 7.0
LETS_PASS = {
    "hold_before": {"hold_before_ms": int(HOLD_S * 1000)},
    "hold_after": {"hold_after_ms": int(HOLD_S * 1000)},
    "straggler_watch": {"after_ms": int(HOLD_S * 1000)},
}


class Timed:
    """Drivers of one run over a world, each with a wall clock that may have been set."""

    def __init__(self, step: str) -> None:
        self.world, self.log, self.step = World(), FakeLog(), step
        self.policy = replace(POLICY, **LETS_PASS[step])  # type: ignore[arg-type]

    def driver(self, holder: str, set_s: float = 0.0, **more: Any) -> RunDriver:
        journal = Journal(self.log, "shop", holder, lambda: self.world.clock() + set_s)
        return a_migration(self.world, self.log, holder, policy=self.policy, journal=journal, **more)

    def began(self) -> float:
        """When the step was begun, and by the first driver."""
        return float(next(r["at_ms"] for r in self.log.records if r["step"] == self.step)) / 1000

    def dies_in_it(self) -> None:
        """The process ends DIES_S after the beginning of the step; AWAY_S later somebody goes on."""
        with pytest.raises(Crash):
            self.driver("first", sleep=self._until_it_dies, run_id="r1").run()
        self.world.sleep(AWAY_S)

    def _until_it_dies(self, seconds: float) -> None:
        self.world.sleep(seconds)
        if any(r["step"] == self.step for r in self.log.records) and self.world.now - self.began() >= DIES_S:
            raise Crash

    def lasted(self) -> float:
        ended = next(r for r in self.log.records if r["step"] == self.step and r["kind"] == "outcome")
        return float(ended["at_ms"]) / 1000 - self.began()


@pytest.mark.parametrize("step", LETS_PASS)
def test_whoever_goes_on_waits_for_what_is_left(step: str) -> None:
    run = Timed(step)
    run.dies_in_it()
    assert_moved(run.world, run.driver("second", resume=True).run())
    assert HOLD_S <= run.lasted() < HOLD_S + DIES_S


@pytest.mark.parametrize("step", LETS_PASS)
def test_one_that_is_over_meanwhile_is_looked_at_once_more(step: str) -> None:
    run = Timed(step)
    run.dies_in_it()
    run.world.sleep(10 * HOLD_S)
    resumed = run.world.now
    run.driver("second", resume=True).run(until_step=step)
    assert run.world.now - resumed < 3


@pytest.mark.parametrize("step", LETS_PASS)
def test_many_drivers_one_after_the_other_prolong_nothing(step: str) -> None:
    """A triggerer that is restarted again and again."""
    run = Timed(step)
    with pytest.raises(Crash):
        run.driver("first", sleep=run._until_it_dies, run_id="r1").run()
    for number in range(20):
        left = 2

        def sleep(seconds: float) -> None:
            nonlocal left
            run.world.sleep(seconds)
            left -= 1
            if not left:
                raise Crash

        try:
            run.driver(f"again {number}", resume=True, sleep=sleep).run(until_step=step)
        except Crash:
            continue
        break
    run.driver("last", resume=True).run(until_step=step)
    assert HOLD_S <= run.lasted() < HOLD_S + DIES_S


@pytest.mark.parametrize("step", LETS_PASS)
@pytest.mark.parametrize(
    ("set_s", "remains"),
    [(-86_400.0, lambda left: HOLD_S <= left < HOLD_S + DIES_S), (86_400.0, lambda left: left < 3)],
    ids=["back", "forward"],
)
def test_a_wall_clock_that_was_set_prolongs_it_to_the_whole_at_most(
    step: str, set_s: float, remains: Callable[[float], bool]
) -> None:
    run = Timed(step)
    run.dies_in_it()
    resumed = run.world.now
    run.driver("second", set_s, resume=True).run(until_step=step)
    assert remains(run.world.now - resumed)
