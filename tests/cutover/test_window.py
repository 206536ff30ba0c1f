"""A wave's window: it waits until it opens, is refused behind its end, and applications are not stopped outside of it
because somebody approved late."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.judging import assert_moved, where
from tests.cutover.world import POLICY, World, a_migration
from watershed.cutover.actions import AskApproval
from watershed.cutover.observations import ApprovalAnswer
from watershed.cutover.policy import WavePolicy
from watershed.topology.migration_waves import WaveWindow

MINUTES = 60


def with_window(world: World, opens_in_s: float, length_s: float) -> WavePolicy:
    opens = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(world.wall + world.now + opens_in_s)) + "+00:00"
    return replace(POLICY, window=WaveWindow(opens, int(length_s * 1000)))


def test_it_is_waited_for_and_used() -> None:
    world = World()
    result = a_migration(world, FakeLog(), policy=with_window(world, 10, 20 * MINUTES)).run()
    assert_moved(world, result)


@pytest.mark.parametrize("later_s", [0, 30 * MINUTES], ids=["in time", "when it is over"])
def test_an_approval_moves_nobody_when_the_window_has_closed(later_s: float) -> None:
    world = World()

    def late(_ask: AskApproval) -> ApprovalAnswer:
        world.now += later_s
        return ApprovalAnswer(0, granted=True, by="ann")

    result = a_migration(world, FakeLog(), policy=with_window(world, 0, 20 * MINUTES), approve=late).run()
    if not later_s:
        assert_moved(world, result)
        return
    assert (result.state, result.step) == ("refused", "approval")
    assert "the window of wave all closed 10 min ago" in result.reason
    assert where(world) == {("source", True)}


def test_a_window_over_midnight_and_in_another_zone_is_one_instant() -> None:
    world = World()
    policy = with_window(world, 0, 20 * MINUTES)
    assert policy.window is not None
    there: Any = time.gmtime(world.wall + world.now + 14 * 3600)
    opens = time.strftime("%Y-%m-%dT%H:%M:%S", there) + "+14:00"
    result = a_migration(world, FakeLog(), policy=replace(policy, window=replace(policy.window, opens=opens))).run()
    assert_moved(world, result)
