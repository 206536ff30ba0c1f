"""What a rolling restart waits for, in memory: a group that has settled, and fresh reports of the fleet's own flows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import clocks
from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.worker import rolling_restart
from watershed.replicator.worker.rolling_restart import RollingRestart
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX

WORKERS = {f"{WORKER_CLIENT_PREFIX}{name}" for name in ("a", "b")}


class Scene:
    """A clock, a group and reports. states: of the partitions of each flow, all in the hands of worker a."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.restart = RollingRestart(ConnectionSettings("b", ("b:1",)), "shop", None)  # type: ignore[arg-type]
        self.owners = {slot: sorted(WORKERS)[slot % 2] for slot in range(SLOT_COUNT)}
        self.states = {"ours": ["running"]}
        self.flows: dict[str, Any] = {"ours": flow_of("shop", "b")}

    def read_statuses(self, _settings: Any) -> list[PartitionStatus]:
        now_ms = round(self.clock[0] * 1_000)
        return [
            PartitionStatus(flow, "t", "t", partition, state, worker="a", at_ms=now_ms)  # type: ignore[arg-type]
            for flow, states in self.states.items()
            for partition, state in enumerate(states)
        ]

    def ask(self, after_s: float = 2.0) -> bool:
        self.clock[0] += after_s
        return self.restart.are_all_served(self.flows, WORKERS)

    def settle(self) -> None:
        self.ask()
        self.clock[0] += 5.0


def flow_of(topology: str, target: str, state: str = "running", topic: str = "t") -> Any:
    return SimpleNamespace(
        topology=topology,
        state=state,
        flow=SimpleNamespace(target=target, transform=None),
        selects=lambda name: name == topic,
    )


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    found = Scene(clocks.stopped(monkeypatch, rolling_restart))
    monkeypatch.setattr(rolling_restart, "read_slot_owners", lambda *_: dict(found.owners))
    monkeypatch.setattr(rolling_restart, "read_partition_statuses", found.read_statuses)
    return found


def test_each_replacement_needs_an_answer_of_its_own(scene: Scene) -> None:
    scene.settle()
    assert scene.ask()
    assert not scene.ask(after_s=0.5)
    assert scene.ask(after_s=0.6)


def test_a_group_that_has_just_shared_its_slots_is_not_settled(scene: Scene) -> None:
    assert not scene.ask()
    assert not scene.ask(after_s=1.5)
    assert scene.ask(after_s=1.5)
    scene.owners[0], scene.owners[1] = scene.owners[1], scene.owners[0]
    assert not scene.ask()
    assert scene.ask(after_s=3.0)


@pytest.mark.parametrize("missing", ["a slot", "a worker"])
def test_all_slots_are_shared_by_all_workers(scene: Scene, missing: str) -> None:
    if missing == "a slot":
        del scene.owners[0]
    else:
        scene.owners = dict.fromkeys(range(SLOT_COUNT), min(WORKERS))
    scene.settle()
    assert not scene.ask(after_s=60.0)


def test_only_partitions_of_the_fleets_running_flows_are_waited_for(scene: Scene) -> None:
    scene.flows |= {
        "foreign": flow_of("other", "b"),
        "elsewhere": flow_of("shop", "c"),
        "stopped": flow_of("shop", "b", state="stopped"),
        "narrow": flow_of("shop", "b", topic="another"),
    }
    scene.states |= {flow: ["starting"] for flow in ("foreign", "elsewhere", "stopped", "narrow", "deleted")}
    scene.settle()
    assert scene.ask()
    scene.states["ours"] = ["starting"]
    assert not scene.ask()


def test_a_partition_is_named_when_it_is_waited_for_long(scene: Scene) -> None:
    scene.settle()
    scene.states["ours"] = ["running", "starting", "starting"]
    assert not scene.ask()
    scene.clock[0] += 14.0
    assert scene.restart.describe_awaited() == ""
    scene.clock[0] += 2.0
    assert scene.restart.describe_awaited() == "ours t-1 (starting) and 1 more"
    scene.restart.reset()
    assert scene.restart.describe_awaited() == ""


def test_a_partition_in_trouble_is_not_waited_for_unless_the_restart_made_it_so(scene: Scene) -> None:
    scene.states["ours"] = ["retrying", "running"]
    scene.settle()
    assert scene.ask()
    scene.restart.replaced = True
    assert scene.ask()
    scene.states["ours"] = ["retrying", "retrying"]
    assert not scene.ask()  # the second one was served before
    scene.states["ours"] = ["running", "running"]
    assert scene.ask()
    scene.states["ours"] = ["retrying", "running"]
    assert not scene.ask()  # the first one was served meanwhile
    scene.restart.reset()
    assert scene.ask()
