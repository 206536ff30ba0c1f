"""What a supervisor does next, from facts alone: sizes, restarts, deaths; and a world that follows its actions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from watershed.clusters.fleet import FleetRecord
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.replicator.worker.fleet_decisions import (
    LONGEST_PAUSE_S,
    EndWorker,
    FleetFacts,
    HostedWorker,
    StartWorker,
    compute_restart_pause,
    decide_fleet_actions,
    find_unserved_partitions,
    is_at_size,
)
from watershed.replicator.worker.fleet_orders import FleetOrderRefused, change_fleet

NOW = 1_750_000_000_000
RECORD = FleetRecord("shop", "cloud", "running", "sha256:0", workers=2, planned=2)


def at(place: int, restarts: int = 0, **more: bool) -> HostedWorker:
    return HostedWorker(place, restarts, **{"serving": True, **more})


def test_workers_are_started_and_ended_at_once() -> None:
    assert decide_fleet_actions(FleetFacts(3, 0, (at(1),))) == [StartWorker(0), StartWorker(2)]
    assert decide_fleet_actions(FleetFacts(1, 0, (at(0), at(1), at(2)))) == [EndWorker(2), EndWorker(1)]
    assert decide_fleet_actions(FleetFacts(0, 0, (at(0),))) == [EndWorker(0)]
    assert decide_fleet_actions(FleetFacts(1, 0, (at(0), at(1, ending=True)))) == []


def test_a_place_that_rests_after_a_death_is_not_given_to_another_worker() -> None:
    assert decide_fleet_actions(FleetFacts(2, 0, (at(0),), resting=frozenset({1}))) == []
    assert decide_fleet_actions(FleetFacts(3, 0, (at(0),), resting=frozenset({1}))) == [StartWorker(2)]
    assert decide_fleet_actions(FleetFacts(2, 0, (at(0),))) == [StartWorker(1)]


def test_a_restart_waits_until_all_partitions_are_served() -> None:
    rolling = FleetFacts(1, 1, (at(0), at(1, 1)))
    assert decide_fleet_actions(rolling) == []
    assert decide_fleet_actions(replace(rolling, all_served=True)) == [EndWorker(0)]
    starting = replace(rolling, workers=(at(0), at(1, 1, serving=False)), all_served=True)
    assert decide_fleet_actions(starting) == []


def test_a_restart_does_not_wait_for_a_worker_that_waits_for_room() -> None:
    waiting = at(2, serving=False, waits=True)
    rolling = FleetFacts(3, 1, (at(0), at(1), waiting), all_served=True, surge=False)
    assert decide_fleet_actions(rolling) == [EndWorker(2)]  # which costs nothing
    rolling = replace(rolling, workers=(at(0), at(1), replace(waiting, restarts=1)))
    assert decide_fleet_actions(rolling) == [EndWorker(0)]
    now = at(0, 1, serving=False, waits=True), at(1), at(2, 1, serving=False)  # 2 has taken its core, and begins
    assert decide_fleet_actions(replace(rolling, workers=now)) == []
    now = at(0, 1, serving=False, waits=True), at(1), at(2, 1)
    assert decide_fleet_actions(replace(rolling, workers=now)) == [EndWorker(1)]
    assert not is_at_size(replace(rolling, workers=now))


@dataclass
class World:
    """Workers that begin to serve one round after their start and are gone one round after they were told to end."""

    facts: FleetFacts
    least: int = field(default=99)
    most: int = field(default=0)

    def step(self) -> bool:
        """One round; whether anything happened."""
        actions = decide_fleet_actions(self.facts)
        workers = [replace(each, serving=True) for each in self.facts.workers if not each.ending]
        moved = len(workers) != len(self.facts.workers) or any(not each.serving for each in self.facts.workers)
        for action in actions:
            if isinstance(action, StartWorker):
                assert action.place not in {each.place for each in self.facts.workers}
                workers.append(HostedWorker(action.place, self.facts.restarts))
            else:
                workers = [replace(w, ending=True) if w.place == action.place else w for w in workers]
        served = not any(w.ending for w in workers)
        moved = moved or served != self.facts.all_served
        self.facts = replace(self.facts, workers=tuple(workers), all_served=served)
        serving = sum(each.serving and not each.ending for each in workers)
        self.least, self.most = min(self.least, serving), max(self.most, len(workers))
        return bool(actions) or moved

    def settle(self) -> None:
        rounds = 0
        while self.step():
            rounds += 1
            assert rounds < 200
        assert is_at_size(self.facts)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("surge", [True, False])
def test_a_restart_replaces_all_workers_and_keeps_enough_of_them(size: int, surge: bool) -> None:
    world = World(FleetFacts(size, 3, tuple(at(place) for place in range(size)), surge=surge))
    assert not is_at_size(world.facts)
    world.settle()
    assert {each.restarts for each in world.facts.workers} == {3}
    assert world.least >= (size if surge else size - 1)
    assert world.most <= size + 1 + surge


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (3, 0), (0, 2)])
def test_a_fleet_of_any_size_comes_to_any_other_also_during_a_restart(before: int, after: int) -> None:
    world = World(FleetFacts(before, 0, tuple(at(place) for place in range(before))))
    world.facts = replace(world.facts, restarts=1)
    world.step()
    world.facts = replace(world.facts, wanted=after)
    world.settle()


def test_pauses_grow_and_end_growing() -> None:
    assert [compute_restart_pause(deaths) for deaths in (1, 2, 3)] == [1, 2, 4]
    assert compute_restart_pause(1_000) == LONGEST_PAUSE_S


def test_partitions_are_served_by_those_that_are_there() -> None:
    report = PartitionStatus("f", "t", "t", 0, "running", worker="a", at_ms=NOW)
    assert find_unserved_partitions([report], {"a"}, NOW) == []
    assert (
        find_unserved_partitions([replace(report, state="source_gone")], {"a"}, NOW) == []
    )  # halted: nobody serves it better
    for bad in (replace(report, worker="b"), replace(report, state="starting"), replace(report, at_ms=NOW - 16_000)):
        assert find_unserved_partitions([report, bad], {"a"}, NOW) == [bad]


def test_orders_change_a_record_once() -> None:
    stopped = change_fleet(RECORD, "stop", None, 0)
    assert (stopped.state, stopped.wanted, stopped.workers) == ("stopped", 0, 2)
    assert change_fleet(stopped, "stop", None, 0) == stopped
    assert change_fleet(stopped, "start", 5, 0) == replace(RECORD, workers=5)
    assert change_fleet(stopped, "scale", 4, 0) == replace(stopped, workers=4)
    restarted = change_fleet(RECORD, "restart", None, 0)
    assert restarted.restarts == 1
    assert change_fleet(restarted, "restart", None, restarted=0) == restarted  # it goes on still
    assert change_fleet(restarted, "restart", None, restarted=1).restarts == 2


def test_orders_that_make_no_sense_are_refused() -> None:
    for order, workers, why in (
        ("scale", None, "needs the number"),
        ("scale", 0, "from 1 to"),
        ("start", 999, "from 1"),
    ):
        with pytest.raises(FleetOrderRefused, match=why):
            change_fleet(RECORD, order, workers, 0)  # type: ignore[arg-type]
    with pytest.raises(FleetOrderRefused, match="is stopped"):
        change_fleet(replace(RECORD, state="stopped"), "restart", None, 0)
