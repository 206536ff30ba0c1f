"""The jobs of a fleet under a limit of cores, without Spark: which are submitted, which wait, which run elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from watershed.replicator.worker.worker_host import WorkerObservation
from watershed.spark import fleet_jobs
from watershed.spark.cluster_cores import ClusterApplication, ClusterCores, ClusterWorker, FleetCoreLimit
from watershed.spark.errors import SparkError
from watershed.spark.fleet_jobs import SparkJobHost


@dataclass
class Spark:
    """The driver's end, and a cluster with so many cores of which others hold some. Jobs end when they are told to."""

    total: int = 4
    others: int = 0
    forgets: bool = False
    slow: bool = False  # tasks have no core yet
    etl: int = 0  # cores that others than fleets hold
    closed: list[int] = field(default_factory=list)
    running: dict[int, Callable[[str], None]] = field(default_factory=dict)

    def open_place(self, place: int) -> None:
        assert place not in self.running

    def close_place(self, place: int) -> bool:
        self.closed.append(place)
        if self.slow:
            return False
        self.running.pop(place)("")
        return True

    def list_working(self) -> dict[int, dict[str, Any]]:
        return {} if self.slow else {place: {"id": f"w{place}"} for place in self.running}

    def read(self) -> ClusterCores:
        other = ClusterApplication("app-0", "watershed-replicate-other", self.others, 0, 512)
        held = 0 if self.slow else len(self.running)
        ours = ClusterApplication("app-1", "watershed-replicate-ours", held, 1, 512)
        etl = ClusterApplication("app-2", "etl", self.etl, 2, 512)
        if self.forgets:
            ours = replace(ours, id="app-9")
        free = max(self.total - self.others - self.etl - held, 0)
        applications = tuple(each for each in (other, ours, etl) if each is ours or each.cores)
        return ClusterCores("spark://m:7077", (ClusterWorker(self.total, free, 512 * free),), applications)


@dataclass
class Near:
    """Hosts processes beside the driver."""

    running: dict[int, int] = field(default_factory=dict)
    engine: Any = "spark"
    surge: bool = True
    hosts_whole_fleet: bool = False
    note: str = ""

    def start(self, place: int, epoch: int) -> None:
        self.running[place] = epoch

    def end(self, place: int) -> None:
        self.running[place] = -1

    kill = end

    def observe(self) -> Mapping[int, WorkerObservation]:
        found = {p: WorkerObservation(f"near{p}", None if e >= 0 else "well") for p, e in self.running.items()}
        self.running = {place: epoch for place, epoch in self.running.items() if epoch >= 0}
        return found


def build(spark: Spark, monkeypatch: pytest.MonkeyPatch, near: Near | None = None) -> SparkJobHost:
    monkeypatch.setattr(fleet_jobs, "_YIELD_S", 0.0)
    monkeypatch.setattr(fleet_jobs, "_NEAR_S", 0.0)
    monkeypatch.setattr(fleet_jobs, "_STARVED_S", 0.0)
    monkeypatch.setattr(SparkJobHost, "_cancel", lambda _self, place: spark.running.pop(place)("cancelled"))
    limit = FleetCoreLimit(spark.read, "app-1", every_s=0.0)
    host = SparkJobHost(Any, spark, Any, limit=limit, near=near)  # type: ignore[arg-type]

    def submit(place: int) -> None:
        host._waiting.discard(place)
        host._ended[place] = None
        spark.running[place] = lambda how: host._ended.update({place: how})

    monkeypatch.setattr(SparkJobHost, "_submit", lambda _self, place: submit(place))
    return host


def see(host: SparkJobHost) -> dict[int, str]:
    return {place: seen.name if seen.ended is None else f"ended {seen.ended}" for place, seen in host.observe().items()}


def test_workers_beyond_the_limit_wait_and_begin_when_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(total=3)
    host = build(spark, monkeypatch)
    for place in range(3):
        host.start(place, 7)
    assert see(host) == {0: "w0", 1: "w1", 2: ""}
    assert host.note.startswith("1 worker waits for a core: fleets hold 2 of 3 cores, and leave 1 to proofs")
    host.spark_waits = "waiting for Spark: so"
    assert host.note.endswith("; waiting for Spark: so")
    spark.total, host.spark_waits = 4, ""
    see(host)
    assert (see(host), host.note) == ({0: "w0", 1: "w1", 2: "w2"}, "")


def test_one_that_waits_ends_at_once_and_its_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    host = build(Spark(total=2), monkeypatch)
    host.start(0, 7)
    host.start(1, 7)
    host.end(1)
    assert see(host) == {0: "w0", 1: "ended well"}
    assert see(host) == {0: "w0"}


def test_cores_that_fleets_may_not_have_any_more_are_given_back_but_never_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = Spark(total=4)
    host = build(spark, monkeypatch)
    for place in range(3):
        host.start(place, 7)
    see(host)
    spark.total = 2
    see(host)
    see(host)
    assert spark.closed == [1, 2]
    assert see(host) == {0: "w0", 1: "", 2: ""}
    spark.total = 1
    assert (see(host), spark.closed) == ({0: "w0", 1: "", 2: ""}, [1, 2])


def test_who_was_told_to_end_is_not_told_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(total=4)
    host = build(spark, monkeypatch)
    for place in range(3):
        host.start(place, 7)
    monkeypatch.setattr(spark, "close_place", lambda place: spark.closed.append(place) or True)  # they take their time
    spark.total = 2
    see(host)
    see(host)
    assert spark.closed == [1, 2]
    host.end(2)  # scaled down meanwhile
    for place in (1, 2):
        spark.running.pop(place)("")
    assert see(host) == {0: "w0", 1: "", 2: "ended well"}


def test_a_fleet_for_which_no_core_is_left_has_one_worker_beside_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, near = Spark(total=2, others=1), Near()
    host = build(spark, monkeypatch, near)
    host.start(0, 7)
    host.start(1, 7)
    assert (near.running, spark.running) == ({0: 7}, {})
    assert see(host) == {0: "near0", 1: ""}
    assert host.note.startswith(
        "1 worker runs beside the Spark driver and 1 worker waits for a core: fleets hold 1 of 2"
    )
    spark.total = 3
    see(host)
    assert see(host) == {0: "near0", 1: "w1"}
    host.end(0)
    assert see(host) == {0: "ended well", 1: "w1"}
    host.start(0, 7)  # restarted, and there is room now
    spark.total = 4
    assert see(host) == {0: "w0", 1: "w1"}
    assert host.note == ""


def test_nobody_runs_beside_the_driver_for_a_moment_without_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, near = Spark(total=2, others=1), Near()  # what is left of a driver that was killed
    host = build(spark, monkeypatch, near)
    monkeypatch.setattr(fleet_jobs, "_NEAR_S", 3600.0)
    host.start(0, 7)
    see(host)
    spark.others = 0
    see(host)
    assert (near.running, see(host)) == ({}, {0: "w0"})


def test_an_application_that_the_master_has_forgotten_ends_when_a_worker_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(total=4, forgets=True)
    host = build(spark, monkeypatch)
    host.start(0, 7)
    monkeypatch.setattr(fleet_jobs, "_UNKNOWN_S", -1.0)
    assert see(host) == {0: "w0"}  # it copies, whatever the master says
    spark.slow = True
    with pytest.raises(SparkError, match=r"does not know this application \(app-1\) any more"):
        host.observe()
    spark.forgets = False
    assert see(host) == {0: ""}


def test_a_fleet_whose_cores_others_hold_has_one_worker_beside_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, near = Spark(total=4, etl=4, slow=True), Near()
    host = build(spark, monkeypatch, near)
    host.start(0, 7)
    host.start(1, 7)
    see(host)
    assert see(host) == {0: "near0", 1: ""}
    assert (near.running, list(spark.running)) == ({0: 7}, [1])
    assert host.note.startswith(
        "1 worker runs beside the Spark driver: fleets hold 0 of 4 cores (others: 4), and leave"
    )
    spark.etl, spark.slow = 2, False
    assert see(host) == {0: "near0", 1: "w1"}
    host.end(0)
    assert see(host) == {0: "ended well", 1: "w1"}
    host.start(0, 7)
    assert see(host) == {0: "w0", 1: "w1"}


@pytest.mark.parametrize("change", [{"etl": 3}, {"slow": False}])
def test_a_fleet_that_works_or_may_begin_has_none_beside_the_driver(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    spark, near = replace(Spark(total=4, etl=4, slow=True), **change), Near()
    host = build(spark, monkeypatch, near)
    host.start(0, 7)
    for _ in range(3):
        see(host)
    assert (near.running, list(spark.running)) == ({}, [0])


def test_one_that_is_told_to_end_on_its_way_to_the_driver_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, near = Spark(total=4, etl=4, slow=True), Near()
    host = build(spark, monkeypatch, near)
    cancelled: list[int] = []
    monkeypatch.setattr(SparkJobHost, "_cancel", lambda _self, place: cancelled.append(place))  # takes its time
    host.start(0, 7)
    see(host)
    see(host)
    host.end(0)
    assert set(cancelled) == {0}
    spark.running.pop(0)("")
    assert see(host) == {0: "ended well"}
    host.start(0, 7)
    see(host)
    spark.running.pop(0)("cancelled")
    see(host)
    assert near.running == {0: 7}


def test_a_job_without_a_core_is_taken_back_before_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(total=4)
    host = build(spark, monkeypatch)
    for place in range(3):
        host.start(place, 7)
    see(host)
    monkeypatch.setattr(spark, "list_working", lambda: {1: {"id": "w1"}, 2: {"id": "w2"}})
    spark.total = 3
    see(host)
    see(host)
    assert spark.closed == [0]
