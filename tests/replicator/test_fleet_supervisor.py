"""The supervisor's steps in a world in memory: lease, epochs, deaths, a restart. Real ones: test_real_supervisor.py"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.errors import ClusterError, Unreachable
from watershed.clusters.fleet import FleetRecord, SupervisorRecord, build_fleet_key, build_supervisor_key
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.worker import fleet_lease, fleet_supervisor, rolling_restart, worker_places
from watershed.replicator.worker.fleet_lease import FleetLease
from watershed.replicator.worker.fleet_supervisor import FleetSupervisor
from watershed.replicator.worker.transform_places import TransformPlaces
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX, WorkerObservation
from watershed.topology.record_transform import RecordTransform

SETTINGS = ConnectionSettings("b", ("b:1",))
FLEET, SUPERVISOR = build_fleet_key("shop", "b"), build_supervisor_key("shop", "b")


@dataclass
class Host:
    """Workers that serve at once, and end as soon as they are told to. dying: they fail at once instead. idle: they
    wait for a core, and have no name yet. deaf: those that do not end as they are told. waiting: what the host starts
    later."""

    world: World
    engine: Any = "process"
    surge: bool = True
    hosts_whole_fleet: bool = False
    note: str = ""
    running: dict[int, str] = field(default_factory=dict)
    ended: dict[int, WorkerObservation] = field(default_factory=dict)
    dying: bool = False
    idle: bool = False
    deaf: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)

    def start(self, place: int, epoch: int) -> None:
        assert place not in self.running
        name = f"w{next(self.world.numbers)}.{epoch}"
        self.running[place] = name
        if self.dying:
            self.fail(place)

    def end(self, place: int) -> None:
        if place not in self.deaf:
            self.ended[place] = WorkerObservation(self.running.pop(place), "with exit code 0")

    def kill(self, place: int) -> None:
        self.deaf.remove(place)
        self.fail(place)

    def fail(self, place: int) -> None:
        self.ended[place] = WorkerObservation(self.running.pop(place), "by SIGKILL", failed=True)

    def observe(self) -> Mapping[int, WorkerObservation]:
        names = {place: "" if self.idle else name for place, name in self.running.items()}
        found = {place: WorkerObservation(name) for place, name in names.items()} | self.ended
        found |= {place: WorkerObservation(waits=True) for place in self.waiting & set(self.running)}
        self.ended = {}
        return found


@dataclass
class World:
    """The target's control topics and groups. leads: whether the lease is ours. unwritable: why nothing can be written.
    lost: workers that the group does not know."""

    fleets: dict[str, FleetRecord] = field(default_factory=dict)
    supervisors: dict[str, SupervisorRecord] = field(default_factory=dict)
    flows: dict[str, Any] = field(default_factory=dict)
    overtaken: set[str] = field(default_factory=set)
    leads: bool = True
    unwritable: ClusterError | None = None
    lost: set[str] = field(default_factory=set)
    states: dict[int, str] = field(default_factory=dict)  # of partitions, by their numbers
    numbers: Any = field(default_factory=itertools.count)
    hosts: dict[str, Host] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    there = True

    @property
    def slots(self) -> set[int]:
        return {0} if self.leads else set()

    def names(self) -> list[str]:
        hosts = self.hosts.values()
        return [name for host in hosts for place, name in host.running.items() if place not in host.waiting]

    def members(self) -> set[str]:
        idle = {name for host in self.hosts.values() if host.idle for name in host.running.values()}
        return {f"{WORKER_CLIENT_PREFIX}{name}" for name in self.names() if name not in self.lost | idle}

    def report(self) -> list[PartitionStatus]:
        worker = self.names()[0] if self.names() else ""
        return [
            PartitionStatus("f", "t", "t", partition, state, worker=worker, at_ms=time.time_ns() // 1_000_000)  # type: ignore[arg-type]
            for partition, state in self.states.items()
        ]

    def make(self, engine: str) -> Host:
        return self.hosts.setdefault(engine, Host(self, engine))

    def nothing(self, *_args: Any, **_more: Any) -> None:
        pass

    poll = follow = catch_up = close = flush = check_identity = nothing


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World({FLEET: FleetRecord("shop", "b", "running", "sha256:0", workers=2)})
    monkeypatch.setattr(fleet_supervisor, "Admin", lambda *_args, **_more: found)
    for name in ("DesiredState", "ControlWriter", "Membership"):
        monkeypatch.setattr(fleet_lease, name, lambda *_args, **_more: found)
    for module, name in (
        (fleet_lease, "_PACE_S"),
        (fleet_lease, "_NOTE_S"),
        (rolling_restart, "_AWAITED_S"),
        (rolling_restart, "_SETTLED_S"),
        (rolling_restart, "_SERVED_S"),
        (worker_places, "_MEMBERS_S"),
        (worker_places, "_MEMBERS_SOON_S"),
    ):
        monkeypatch.setattr(module, name, 0.0)

    def write(_writer: Any, record: SupervisorRecord) -> int:
        if found.unwritable is not None:
            raise found.unwritable
        found.overtaken.discard(record.key)
        found.supervisors[record.key] = record
        return 0

    def owners(*_: Any) -> dict[int, str]:
        names = [f"{WORKER_CLIENT_PREFIX}{name}" for name in found.names()]
        return {slot: names[slot % len(names)] for slot in range(SLOT_COUNT)} if names else {}

    monkeypatch.setattr(fleet_lease, "write_supervisor", write)
    monkeypatch.setattr(worker_places, "read_fleet_members", lambda *_: found.members())
    monkeypatch.setattr(rolling_restart, "read_slot_owners", owners)
    monkeypatch.setattr(rolling_restart, "read_partition_statuses", lambda _settings: found.report())
    monkeypatch.setattr(worker_places, "compute_restart_pause", lambda _deaths: 0.0)
    return found


@pytest.fixture
def supervisor(world: World) -> FleetSupervisor:
    return FleetSupervisor(FleetLease(SETTINGS, "shop", "us"), world.make, say=world.said.append)


def steps(supervisor: FleetSupervisor, count: int = 12) -> None:
    for _ in range(count):
        supervisor.step()


def test_the_fleet_comes_to_its_size_and_is_ready(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    assert world.names() == ["w0.1", "w1.1"]
    record = world.supervisors[SUPERVISOR]
    assert (record.epoch, record.holder, record.ready, record.note) == (1, "us", True, "")
    world.fleets[FLEET] = replace(world.fleets[FLEET], workers=3)
    steps(supervisor)
    assert len(world.names()) == 3
    world.fleets[FLEET] = replace(world.fleets[FLEET], state="stopped")
    steps(supervisor)
    assert world.names() == []


def test_who_does_not_hold_the_lease_stands_by(world: World, supervisor: FleetSupervisor) -> None:
    world.leads = False
    steps(supervisor)
    assert world.names() == []
    assert world.supervisors == {}
    world.supervisors[SUPERVISOR] = SupervisorRecord("shop", "b", 7, "another", ready=True, restarted=2)
    world.leads = True
    steps(supervisor)
    record = world.supervisors[SUPERVISOR]
    assert (record.epoch, record.holder) == (8, "us")
    assert {name.rpartition(".")[2] for name in world.names()} == {"8"}


def test_a_supervisor_that_loses_the_lease_does_nothing_and_begins_anew(
    world: World, supervisor: FleetSupervisor
) -> None:
    steps(supervisor)
    world.leads = False
    world.fleets[FLEET] = replace(world.fleets[FLEET], workers=5)
    steps(supervisor)
    assert len(world.names()) == 2  # they go on until another one is ready
    world.supervisors[SUPERVISOR] = SupervisorRecord("shop", "b", 2, "another", ready=True)
    world.leads = True
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].epoch == 3
    assert [name.rpartition(".")[2] for name in world.names()] == ["3"] * 5


def test_a_short_loss_of_the_lease_changes_nothing(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    before = world.names()
    world.leads = False
    steps(supervisor)
    world.leads = True
    steps(supervisor)
    assert world.names() == before
    assert world.supervisors[SUPERVISOR].epoch == 1


def test_a_worker_that_dies_is_started_again_and_told(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    host = world.hosts["process"]
    host.fail(1)
    steps(supervisor)
    assert host.running == {0: "w0.1", 1: "w2.1"}
    assert any("worker 1 ended after" in each and "by SIGKILL" in each for each in world.said)
    host.dying = True
    host.fail(0)
    steps(supervisor)
    assert "by SIGKILL" in world.supervisors[SUPERVISOR].note
    host.dying = False
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].note == ""


def test_a_restart_replaces_every_worker_and_never_has_fewer(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    before = set(world.names())
    world.fleets[FLEET] = replace(world.fleets[FLEET], restarts=1)
    for _ in range(30):
        supervisor.step()
        assert len(world.names()) in (2, 3)
    assert len(world.names()) == 2
    assert not before & set(world.names())
    assert world.supervisors[SUPERVISOR].restarted == 1


def test_a_restart_waits_for_partitions_but_not_for_those_that_nobody_could_serve_before(
    world: World, supervisor: FleetSupervisor
) -> None:
    inner = SimpleNamespace(target="b", transform=None)
    flow = SimpleNamespace(topology="shop", state="running", flow=inner, selects=bool)
    world.flows["f"] = flow
    world.states = {0: "running", 1: "retrying"}  # its source is down
    steps(supervisor)
    world.fleets[FLEET] = replace(world.fleets[FLEET], restarts=1)
    steps(supervisor, 30)
    assert world.supervisors[SUPERVISOR].restarted == 1
    world.states = {0: "starting", 1: "retrying"}
    world.fleets[FLEET] = replace(world.fleets[FLEET], restarts=2)
    before = set(world.names())
    steps(supervisor, 30)
    assert before < set(world.names())  # the new one is there, none of the old ones has ended
    note = "restarting: 1 of 2 workers are new; waiting until f t-0 (starting) is served"
    assert world.supervisors[SUPERVISOR].note == note
    world.states[0] = "running"
    while before & set(world.names()):
        world.states[1] = "starting" if world.states[1] == "retrying" else "retrying"
        supervisor.step()
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].restarted == 2


def test_another_engine_takes_over_when_the_first_ones_workers_have_ended(
    world: World, supervisor: FleetSupervisor
) -> None:
    steps(supervisor)
    world.make("spark").hosts_whole_fleet = True
    world.fleets[FLEET] = replace(world.fleets[FLEET], engine="spark")
    steps(supervisor)
    assert world.hosts["process"].running == {}
    assert len(world.hosts["spark"].running) == 1  # the driver, whatever the number of workers


def test_a_fleet_that_was_never_applied_is_waited_for(world: World, supervisor: FleetSupervisor) -> None:
    record = world.fleets.pop(FLEET)
    steps(supervisor)
    assert any("topology apply" in each for each in world.said)
    world.fleets[FLEET] = record
    steps(supervisor)
    assert len(world.names()) == 2


def test_the_end_takes_all_workers_along(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    stop = threading.Event()
    stop.set()
    supervisor.run(stop)
    assert world.names() == []


def test_an_epoch_begins_when_its_record_is_written_and_not_before(world: World, supervisor: FleetSupervisor) -> None:
    world.unwritable = Unreachable("no answer", alias="b")
    for _ in range(3):
        with pytest.raises(Unreachable):
            supervisor.step()
    assert supervisor.lease.epoch is None
    assert world.names() == []
    world.unwritable = None
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].epoch == supervisor.lease.epoch == 1
    assert world.names() == ["w0.1", "w1.1"]


def test_an_epoch_that_stands_nowhere_is_written_again(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    before = world.names()
    world.supervisors.clear()
    steps(supervisor)
    assert world.names() == before
    assert (world.supervisors[SUPERVISOR].epoch, world.supervisors[SUPERVISOR].ready) == (1, True)


def test_who_was_faster_keeps_the_epoch(world: World, supervisor: FleetSupervisor) -> None:
    """Two begin the same epoch, because one hung between reading and writing: the topic's order decides."""
    other = SupervisorRecord("shop", "b", 1, "another")
    world.catch_up = lambda: world.supervisors.update({SUPERVISOR: other})  # type: ignore[method-assign]
    supervisor.step()
    assert supervisor.lease.epoch is None
    assert world.names() == []


def test_a_record_that_came_too_late_is_written_over(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    world.overtaken.add(SUPERVISOR)
    supervisor.step()
    assert world.overtaken == set()


def test_workers_before_us_do_not_end_while_none_of_ours_serves(
    world: World, supervisor: FleetSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_supervisor, "_READY_AT_LATEST_S", -1.0)
    monkeypatch.setattr(fleet_supervisor, "_NO_CORE_S", -1.0)
    host = world.make("process")
    host.dying = True
    steps(supervisor)
    assert not world.supervisors[SUPERVISOR].ready
    host.dying, host.idle = False, True
    steps(supervisor)
    assert not world.supervisors[SUPERVISOR].ready  # a process needs no free core
    host.idle = False
    world.lost = {max(world.names())}
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].ready  # one of two serves


@pytest.mark.parametrize("surge", [True, False])
def test_workers_before_us_end_where_ours_wait_for_nothing_but_their_cores(
    world: World, supervisor: FleetSupervisor, monkeypatch: pytest.MonkeyPatch, surge: bool
) -> None:
    monkeypatch.setattr(fleet_supervisor, "_NO_CORE_S", -1.0)
    host = world.make("process")
    host.idle, host.surge = True, surge
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].ready is not surge


def test_a_worker_that_does_not_end_is_killed_and_one_that_does_not_work_is_replaced(
    world: World, supervisor: FleetSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_places, "_END_AT_LATEST_S", -1.0)
    steps(supervisor)
    host = world.hosts["process"]
    host.deaf = {0}
    world.fleets[FLEET] = replace(world.fleets[FLEET], restarts=1)
    steps(supervisor, 30)
    assert host.deaf == set()
    assert world.supervisors[SUPERVISOR].restarted == 1
    assert any("did not end within" in each for each in world.said)
    monkeypatch.setattr(worker_places, "_MISSING_S", -1.0)
    lost = world.names()[0]
    world.lost = {lost}
    steps(supervisor)
    assert lost not in world.names()
    assert len(world.names()) == 2


def test_leaving_ends_no_worker(world: World, supervisor: FleetSupervisor) -> None:
    steps(supervisor)
    left = threading.Event()
    left.set()
    supervisor.run(threading.Event(), left)
    assert len(world.names()) == 2


def test_what_keeps_a_host_from_starting_workers_stands_in_the_record(
    world: World, supervisor: FleetSupervisor
) -> None:
    steps(supervisor)
    world.hosts["process"].note = "1 worker waits for a core"
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].note == "1 worker waits for a core"
    world.hosts["process"].note = ""
    steps(supervisor)
    assert world.supervisors[SUPERVISOR].note == ""


def test_while_a_driver_is_started_again_processes_copy_and_the_next_epoch_ends_them(
    world: World, supervisor: FleetSupervisor
) -> None:
    world.fleets[FLEET] = replace(world.fleets[FLEET], engine="spark", workers=3)
    driver = world.hosts["spark"] = Host(world, "spark", hosts_whole_fleet=True)
    steps(supervisor)
    assert (len(driver.running), supervisor.lease.epoch) == (1, 1)
    driver.fail(0)  # before it had any worker: nothing was copied that now stands
    steps(supervisor)
    assert "process" not in world.hosts
    assert supervisor.lease.epoch == 2
    world.supervisors[SUPERVISOR] = replace(world.supervisors[SUPERVISOR], ready=True)  # its driver writes that
    driver.fail(0)
    steps(supervisor)
    bridge = world.hosts["process"]
    assert set(bridge.running.values()) == {"w2.2", "w3.2"}  # of the epoch that ended with the driver, two at most
    assert (list(driver.running.values()), world.supervisors[SUPERVISOR].epoch) == (["w4.3"], 3)
    assert not world.supervisors[SUPERVISOR].ready
    driver.fail(0)  # once more: those that copy go on
    steps(supervisor)
    assert (set(bridge.running.values()), supervisor.lease.epoch) == ({"w2.2", "w3.2"}, 4)
    bridge.fail(1)  # one of them dies
    steps(supervisor)
    assert set(bridge.running.values()) == {"w2.2", "w6.3"}
    world.supervisors[SUPERVISOR] = replace(world.supervisors[SUPERVISOR], ready=True)
    for place in (0, 1):  # what workers of an earlier epoch do when the later one is ready
        bridge.end(place)
    steps(supervisor)
    assert (bridge.running, len(driver.running)) == ({}, 1)
    driver.fail(0)  # and again, later
    steps(supervisor)
    assert set(bridge.running.values()) == {"w7.4", "w8.4"}
    world.fleets[FLEET] = replace(world.fleets[FLEET], workers=1)
    steps(supervisor)
    assert set(bridge.running.values()) == {"w7.4"}
    supervisor.end_workers()
    assert not driver.running


def test_a_worker_of_the_bridge_that_ends_well_rests_before_the_next_one_begins(
    world: World, supervisor: FleetSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have seen before its supervisor that the fleet is back."""
    monkeypatch.setattr(worker_places, "compute_restart_pause", lambda _deaths: 60.0)
    world.fleets[FLEET] = replace(world.fleets[FLEET], engine="spark", workers=1)
    driver = world.hosts["spark"] = Host(world, "spark", hosts_whole_fleet=True)
    steps(supervisor)
    world.supervisors[SUPERVISOR] = replace(world.supervisors[SUPERVISOR], ready=True)
    driver.fail(0)
    steps(supervisor)
    bridge = world.hosts["process"]
    assert len(bridge.running) == 1
    bridge.end(0)
    steps(supervisor)
    assert bridge.running == {}
    assert sum("run here until" in each for each in world.said) == 1


def test_the_end_takes_those_along_that_stand_in_for_a_driver(world: World, supervisor: FleetSupervisor) -> None:
    world.fleets[FLEET] = replace(world.fleets[FLEET], engine="spark", workers=1)
    driver = world.hosts["spark"] = Host(world, "spark", hosts_whole_fleet=True)
    steps(supervisor)
    world.supervisors[SUPERVISOR] = replace(world.supervisors[SUPERVISOR], ready=True)
    driver.fail(0)
    steps(supervisor)
    assert len(world.hosts["process"].running) == 1
    supervisor.end_workers()
    assert world.names() == []


def test_another_supervisor_goes_on_with_the_bridge_of_one_that_ended(
    world: World, supervisor: FleetSupervisor
) -> None:
    world.fleets[FLEET] = replace(world.fleets[FLEET], engine="spark", workers=2)
    driver = world.hosts["spark"] = Host(world, "spark", hosts_whole_fleet=True)
    world.supervisors[SUPERVISOR] = SupervisorRecord("shop", "b", 7, "another", bridged=True)
    steps(supervisor)
    assert list(world.hosts["process"].running.values()) == ["w0.7", "w1.7"]
    assert list(driver.running.values()) == ["w2.8"]
    assert world.supervisors[SUPERVISOR].bridged


@pytest.mark.parametrize("ready", [True, False])
def test_nothing_is_bridged_for_a_supervisor_whose_workers_serve_or_never_did(
    world: World, supervisor: FleetSupervisor, ready: bool
) -> None:
    world.fleets[FLEET] = replace(world.fleets[FLEET], engine="spark", workers=2)
    world.hosts["spark"] = Host(world, "spark", hosts_whole_fleet=True)
    world.supervisors[SUPERVISOR] = SupervisorRecord("shop", "b", 7, "another", ready=ready, bridged=ready)
    steps(supervisor)
    assert "process" not in world.hosts
    assert not world.supervisors[SUPERVISOR].bridged


def test_the_bridge_stays_until_a_worker_on_spark_serves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor inside the driver. The freed core may have gone to a proof, or Java needs a minute to start."""
    monkeypatch.setattr(fleet_supervisor, "_NO_CORE_S", -1.0)
    world.supervisors[SUPERVISOR] = SupervisorRecord("shop", "b", 3, "another", bridged=True)
    host = world.make("process")
    host.idle, host.surge = True, False
    inside = FleetSupervisor(FleetLease(SETTINGS, "shop", "driver", epoch=3), world.make)
    steps(inside)
    assert not world.supervisors[SUPERVISOR].ready
    monkeypatch.setattr(fleet_supervisor, "_READY_AT_LATEST_S", -1.0)
    steps(inside)
    assert not world.supervisors[SUPERVISOR].ready
    host.idle = False
    world.lost = {max(world.names())}
    steps(inside)
    assert world.supervisors[SUPERVISOR].ready  # one serves, and the other has had its minute
    assert world.supervisors[SUPERVISOR].bridged


def test_a_place_that_waits_for_room_is_no_worker_that_is_missing_and_holds_no_restart_up(
    world: World, supervisor: FleetSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(supervisor)
    host = world.hosts["process"]
    host.waiting, host.surge = {1}, False  # it had to give its core back
    monkeypatch.setattr(worker_places, "_MISSING_S", -1.0)
    before = set(host.running.values())
    steps(supervisor)
    assert set(host.running.values()) == before
    world.fleets[FLEET] = replace(world.fleets[FLEET], restarts=1)
    steps(supervisor, 30)
    assert not before & set(host.running.values())
    assert world.supervisors[SUPERVISOR].restarted == 1


def test_flows_with_transform_have_a_worker_beside_the_others(world: World) -> None:
    """It comes with the first such flow, is started again when it dies and in a restart, and goes with the fleet."""
    beside = Host(world, "process")
    places = TransformPlaces(beside, world.said.append)
    lease = FleetLease(SETTINGS, "shop", "us")
    supervisor = FleetSupervisor(lease, world.make, say=world.said.append, transforms=places)
    steps(supervisor)
    assert beside.running == {}
    record = SimpleNamespace(
        topology="shop",
        state="paused",
        flow=SimpleNamespace(target=SETTINGS.alias, transform=RecordTransform(where="1")),
    )
    world.flows["f"] = record
    steps(supervisor)
    assert list(beside.running) == [0]
    assert len(world.names()) == 2
    first = beside.running[0]
    beside.fail(0)
    steps(supervisor)
    assert beside.running[0] != first
    world.fleets[FLEET] = replace(world.fleets[FLEET], restarts=1)
    second = beside.running[0]
    steps(supervisor, 40)
    assert beside.running[0] != second
    world.fleets[FLEET] = replace(world.fleets[FLEET], state="stopped")
    steps(supervisor)
    assert beside.running == {}
    assert places.is_empty
