"""The places of workers on a host in memory: pauses after deaths, who rests, who is stuck, who is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from tests import clocks
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.replicator.worker import worker_places
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX, WorkerObservation
from watershed.replicator.worker.worker_places import WorkerPlaces


class Host:
    """What it was told, in order, and what it will see next."""

    engine: Literal["spark", "process"] = "process"
    surge = True
    note = ""

    def __init__(self, *, hosts_whole_fleet: bool = False) -> None:
        self.hosts_whole_fleet = hosts_whole_fleet
        self.told: list[tuple[str, int]] = []
        self.seen: dict[int, WorkerObservation] = {}

    def start(self, place: int, epoch: int) -> None:
        self.told.append((f"start {epoch}", place))

    def end(self, place: int) -> None:
        self.told.append(("end", place))

    def kill(self, place: int) -> None:
        self.told.append(("kill", place))

    def observe(self) -> Mapping[int, WorkerObservation]:
        seen, self.seen = self.seen, {}
        return seen


class Scene:
    """Places on a host, a clock, and a group of workers. members: their names; None while the group is unsettled."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.host = Host()
        self.places = WorkerPlaces(self.host)
        self.members: set[str] | None = set()
        self.fails = False
        self.asked = 0

    def read_members(self, *_: Any) -> set[str] | None:
        self.asked += 1
        if self.fails:
            raise Unreachable("no answer", alias="b")
        return None if self.members is None else {f"{WORKER_CLIENT_PREFIX}{name}" for name in self.members}

    def ask(self) -> None:
        self.places.ask_members(None, "shop")  # type: ignore[arg-type]

    def name(self, **names: str) -> None:
        self.host.seen = {int(place[1:]): WorkerObservation(name) for place, name in names.items()}
        self.places.observe()

    def end_stuck(self) -> list[str]:
        found = self.places.find_stuck()
        for place in found:
            self.places.end_stuck(place)
        return list(found.values())

    def fail(self, place: int) -> float:
        self.host.seen = {place: WorkerObservation(ended="by SIGKILL", failed=True)}
        [ended] = self.places.observe()
        return ended.pause_s


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    found = Scene(clocks.stopped(monkeypatch, worker_places))
    monkeypatch.setattr(worker_places, "read_fleet_members", found.read_members)
    return found


def test_a_worker_that_dies_quickly_rests_longer_each_time_and_one_that_worked_does_not(scene: Scene) -> None:
    pauses = []
    for lived in (1.0, 1.0, 1.0, 100.0, 1.0):
        assert scene.places.can_start(0)
        scene.places.start(0, 0, 1)
        assert not scene.places.can_start(0)
        scene.clock[0] += lived
        pauses.append(scene.fail(0))
        assert not scene.places.can_start(0)
        assert scene.places.list_resting() == {0}
        scene.clock[0] += pauses[-1]
        assert scene.places.list_resting() == set()
    assert pauses == [1.0, 2.0, 4.0, 1.0, 2.0]
    scene.places.forget(0)
    scene.places.start(0, 0, 1)
    assert scene.fail(0) == 1.0


def test_an_end_says_whether_it_was_asked_for(scene: Scene) -> None:
    for place in (0, 1):
        scene.places.start(place, 0, 1)
    scene.places.end(1)
    scene.clock[0] += 3.0
    scene.host.seen = {place: WorkerObservation(ended="with exit code 0") for place in (0, 1)}
    assert [(each.place, each.asked, each.failed, each.lived_s) for each in scene.places.observe()] == [
        (0, False, False, 3.0),
        (1, True, False, 3.0),
    ]
    assert scene.places.list_running() == []


def test_all_but_some_end_and_nobody_is_told_twice(scene: Scene) -> None:
    for place in range(3):
        scene.places.start(place, 0, 1)
    scene.places.end_all(kept=2)
    scene.places.end_all()
    assert scene.host.told[3:] == [("end", 2), ("end", 0), ("end", 1)]


def test_a_worker_that_does_not_end_is_killed_once_in_a_while(scene: Scene) -> None:
    scene.places.start(0, 0, 1)
    scene.places.end(0)
    scene.clock[0] += 60.0
    assert scene.end_stuck() == []
    scene.clock[0] += 1.0
    assert scene.end_stuck() == ["worker 0 did not end within 60 s; it is killed"]
    assert scene.end_stuck() == []
    assert scene.host.told[-1] == ("kill", 0)


def test_a_worker_is_replaced_that_the_group_has_missed_for_long_whenever_it_was_asked(scene: Scene) -> None:
    for place in (0, 1):
        scene.places.start(place, 0, 1)
    scene.name(p0="a", p1="b")
    scene.members = {"a"}
    scene.ask()
    scene.clock[0] += 100.0
    scene.fails = True
    with pytest.raises(ClusterError):
        scene.ask()
    scene.fails = False
    scene.ask()  # from now on it is missing: before, nobody could tell
    scene.clock[0] += 119.0
    scene.ask()
    assert scene.end_stuck() == []
    scene.clock[0] += 2.0
    scene.ask()
    assert scene.end_stuck() == ["worker 1 was no member of the group for 120 s; it is replaced"]
    assert scene.host.told[-1] == ("end", 1)


def test_the_group_is_asked_often_until_all_are_members_and_at_once_after_a_change(scene: Scene) -> None:
    def asks(seconds: float) -> int:
        before = scene.asked
        for _ in range(round(seconds * 10)):
            scene.ask()
            scene.clock[0] += 0.1
        return scene.asked - before

    scene.places.start(0, 0, 1)
    scene.name(p0="a")
    assert asks(3.0) >= 5
    scene.members = None
    assert asks(3.0) >= 5
    assert [each.serving for each in scene.places.list_workers()] == [False]
    scene.members = {"a"}
    asks(1.0)
    assert [each.serving for each in scene.places.list_workers()] == [True]
    assert asks(20.0) <= 5
    scene.places.start(1, 0, 1)
    assert asks(0.1) == 1


def test_nobody_asks_the_group_for_a_program_that_hosts_the_whole_fleet(scene: Scene) -> None:
    scene.places = WorkerPlaces(Host(hosts_whole_fleet=True))
    scene.places.start(0, 0, 1)
    scene.ask()
    assert scene.asked == 0
    assert [each.serving for each in scene.places.list_workers()] == [True]


def test_only_room_is_missing_while_nobody_has_died_or_begun(scene: Scene) -> None:
    for place in range(3):
        scene.places.start(place, 0, 1)
    scene.name(p0="a")
    assert scene.places.is_only_room_missing([1, 2])
    assert not scene.places.is_only_room_missing([0, 1])
    scene.fail(2)
    assert not scene.places.is_only_room_missing([1])
