"""A restore is killed at every request, loses every answer, and is followed by what it left under way: each archived
record stands once, at its offset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.replicator.aligning import NOW, TOPIC, Clock, Event, Killed, Requests, cluster, dying, end_of, killed, lost
from tests.spark.archives import T0, batch_at, write_object
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.replicator.batch import filler_batch
from watershed.replicator.copy.aligned import log_end
from watershed.replicator.copy.aligned.gap_filler import GapMethod
from watershed.replicator.limits import TargetLimits
from watershed.spark.archive import partition_restore, restore_producer
from watershed.spark.archive.manifest import ArchivedObject, ArchivedPartition
from watershed.spark.archive.partition_restore import PartitionRestore, TargetTerms
from watershed.spark.archive.storage import FolderStorage
from watershed.spark.archive.topic_comparison import PartitionComparison
from watershed.spark.errors import NotRestorable

START, END = 4, 44
DAY_MS = 86_400_000
# A batch that begins below the log start, the gap of a marker, holes of compaction, and a gap at the end.
BATCHES = [batch_at(2, 6), batch_at(8, 3), batch_at(12, 8, missing=(0, 3, 4)), batch_at(20, 5), batch_at(31, 9)]
OFFSETS = [*range(4, 11), 13, 14, 17, 18, 19, *range(20, 25), *range(31, 40)]
WAYS: list[GapMethod | None] = ["markers", "transactions", None]


class WallClock(Clock):
    def time(self) -> float:
        return NOW / 1000


@dataclass
class World:
    """One archive, the target of the moment, and what killed restores have left under way."""

    storage: FolderStorage
    objects: list[ArchivedObject]
    gap: GapMethod | None = "markers"
    young: bool = True
    target: FakeCluster = field(default_factory=cluster)
    late: list[Callable[[], Any]] = field(default_factory=list)
    quiet: int = 0  # how often a run has waited for quiet logs

    def begin(self) -> None:
        self.target, self.late = cluster(), []

    def restore(self, at: int = -1, event: Event | None = None) -> Requests:
        requests = Requests(self.target, at, event)
        part = PartitionRestore(
            self.storage, self.objects, ArchivedPartition(0, START, END, START, END), self.target.settings,
            requests.log(), requests.connect,
        )  # fmt: skip
        # Brokers go by the time of records: theirs are of years ago, so a day is too short and a century is enough.
        expiration = 36_500 * DAY_MS if self.young else DAY_MS
        end = part.run(TargetTerms(self.gap, self.target.coordinator.version >= 2, expiration, TargetLimits()))
        assert end == end_of(self.target)
        return requests

    def forget(self) -> None:
        """The sweep of a broker that forgets producers by the time of their records."""
        if not self.young:
            self.target.log(TOPIC, 0).producers.expire(NOW, DAY_MS)

    def arrive(self) -> None:
        while self.late:
            self.late.pop()()

    def check(self) -> None:
        found = self.target.records(TOPIC, 0)
        offsets = OFFSETS if self.gap is not None else list(range(len(OFFSETS)))
        assert [record.offset for record in found] == offsets
        assert [record.key for record in found] == [b"key %d" % each for each in OFFSETS]
        assert [record.timestamp for record in found] == [T0 + each for each in OFFSETS]
        log = self.target.log(TOPIC, 0)
        assert (log.log_start, log.end) == ((START, END) if self.gap is not None else (0, len(OFFSETS)))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    storage = FolderStorage(tmp_path)
    objects = [
        write_object(storage, 0, START, 20, BATCHES[:3]),
        write_object(storage, 0, 20, END, BATCHES[3:]),
    ]
    made = World(storage, objects)

    def find_known(name: str, _connect: object) -> ProducerIdAndEpoch | None:
        known = made.target.coordinator._ids.get(name)
        return None if known is None else known.producer

    def wait(_logs: object) -> None:
        made.quiet += 1
        made.arrive()

    def compare(*_args: object, begin: int, **_more: object) -> PartitionComparison:
        """In place of reading by the proof's readers: what stands in the log has to be the archive's beginning."""
        found = [(record.offset, record.key) for record in made.target.records(TOPIC, 0) if record.offset >= begin]
        places = OFFSETS if made.gap is not None else range(len(OFFSETS))
        wanted = [(place, b"key %d" % each) for place, each in zip(places, OFFSETS, strict=True) if place >= begin]
        is_same = found == wanted[: len(found)]
        return PartitionComparison(TOPIC, 0, first_difference=-1 if is_same else found[0][0])

    monkeypatch.setattr(restore_producer, "_find_known", find_known)
    monkeypatch.setattr(partition_restore, "wait_for_quiet_logs", wait)
    monkeypatch.setattr(partition_restore, "compare_partition", compare)
    monkeypatch.setattr(partition_restore, "time", WallClock())
    monkeypatch.setattr(log_end, "time", Clock())
    monkeypatch.setattr(log_end, "RIVAL_MARKER_WAIT_S", 1e-6)
    monkeypatch.setattr(log_end, "_PAUSE_S", 0.0)
    monkeypatch.setattr(log_end, "_FETCH_MS", 1)
    monkeypatch.setattr("watershed.replicator.copy.transactions.transactional_producer.COORDINATOR_PAUSE_S", 0.0)
    monkeypatch.setattr("watershed.replicator.copy.aligned.target_log._PAUSE_S", 0.0)
    monkeypatch.setattr(filler_batch, "FILLER_BATCH_RECORDS", 5)
    return made


@pytest.mark.parametrize("gap", WAYS)
@pytest.mark.parametrize("young", [True, False])
def test_everything_is_there_once_and_a_second_run_writes_nothing(world: World, gap: GapMethod | None, young: bool):
    world.gap, world.young = gap, young
    world.restore()
    world.check()
    end = end_of(world.target)
    world.forget()
    world.restore()
    assert end_of(world.target) == end


@pytest.mark.parametrize("gap", WAYS)
@pytest.mark.parametrize("executed", [False, True])
def test_an_answer_lost_at_every_request(world: World, gap: GapMethod | None, executed: bool) -> None:
    world.gap = gap
    for at in range(world.restore().count):
        world.begin()
        world.restore(at, lost(world.target, executed=executed))
        world.check()


@pytest.mark.parametrize("gap", WAYS)
@pytest.mark.parametrize("young", [True, False])
@pytest.mark.parametrize("executed", [False, True])
def test_killed_at_every_request(world: World, gap: GapMethod | None, young: bool, executed: bool) -> None:
    world.gap, world.young = gap, young
    for at in range(world.restore().count):
        world.begin()
        with pytest.raises(Killed):
            world.restore(at, killed(executed=executed))
        world.forget()
        world.restore()
        world.check()


@pytest.mark.parametrize("gap", WAYS)
def test_killed_with_a_request_under_way_that_arrives_at_any_later_moment(world: World, gap: GapMethod | None) -> None:
    """The broker remembers the producer: whichever of two requests for one place comes first is stored."""
    world.gap = gap
    requests = world.restore()
    for at in [number for number, name in enumerate(requests.names) if name == "send_produce"]:
        for moment in range(0, requests.count, 3):
            world.begin()
            with pytest.raises(Killed):
                world.restore(at, dying(world.late))

            def arriving(execute: Callable[[], Any]) -> Any:
                world.arrive()
                return execute()

            world.restore(moment, arriving)
            world.check()


@pytest.mark.parametrize("gap", WAYS)
def test_where_the_broker_forgets_a_run_waits_for_what_another_left_under_way(
    world: World, gap: GapMethod | None
) -> None:
    world.gap, world.young = gap, False
    requests = world.restore()
    for at in [number for number, name in enumerate(requests.names) if name == "send_produce"]:
        world.begin()
        with pytest.raises(Killed):
            world.restore(at, dying(world.late))
        world.forget()
        world.restore()
        world.arrive()  # filler, which is fenced by the marker behind it
        world.check()
    assert world.quiet


def test_a_log_that_somebody_else_writes_to_is_not_gone_on_with(world: World) -> None:
    world.target.produce(TOPIC, 0, [b"foreign"] * 8)
    with pytest.raises(NotRestorable, match="holds something else than the archive, first at offset"):
        world.restore()
    assert end_of(world.target) == 8
    assert world.target.log(TOPIC, 0).log_start == 0
