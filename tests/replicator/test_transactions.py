"""Exactly once in transactions: a crash, a lost connection, a zombie at every single request of a copy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests import clocks
from tests.replicator.transacting import (
    HOME,
    MERGED,
    NOW,
    SLOT,
    TOPIC,
    Event,
    Killed,
    TransactingWorker,
    World,
    lost,
)
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.errors import ClusterError
from watershed.replicator.copy.transactions import open_transaction, slot_writer, transactional_producer
from watershed.replicator.ledger import transaction_positions
from watershed.replicator.partition_states import Halt, Reinspect


@pytest.fixture(autouse=True)
def _stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a while would end a transaction early, and there would be other requests."""
    clocks.stopped(monkeypatch, transactional_producer, slot_writer, open_transaction)


VERSIONS = pytest.mark.parametrize("version", [2, 1])


def requests_of_a_copy(version: int, rounds: int = 4) -> int:
    world = World(version=version)
    world.fill(rounds)
    worker = TransactingWorker(world)
    worker.finish()
    world.check()
    copied = sum(len(world.source.records(TOPIC, partition)) for partition in range(world.partitions))
    assert sum(worker.writer.latency.read().counts) == copied, "each record has a latency, when it is committed"
    return worker.requests


@VERSIONS
def test_a_copy_beside_a_foreign_writer_is_exact(version: int) -> None:
    assert requests_of_a_copy(version) > 15


@VERSIONS
@pytest.mark.parametrize("executed", [False, True])
def test_killed_at_every_request_and_a_successor_goes_on(version: int, executed: bool) -> None:
    for at in range(requests_of_a_copy(version)):
        world = World(version=version)
        world.fill(4)

        def kill(execute: Callable[[], Any]) -> Any:
            if executed:
                execute()
            raise Killed

        with pytest.raises(Killed):
            TransactingWorker(world, at, kill).finish()
        TransactingWorker(world).finish()
        world.check()


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("end", [2, 5, 7, 9])
def test_a_copy_that_ends_is_exact_wherever_its_worker_is_killed(end: int, executed: bool) -> None:
    """The records stand at offsets 0 to 2, 3 to 5 (aborted or not, and a marker at 6), and so on."""
    for at in range(100):
        world = World(end=end)
        world.fill(4)

        def kill(execute: Callable[[], Any]) -> Any:
            if executed:
                execute()
            raise Killed

        first = TransactingWorker(world, at, kill)
        with suppress(Killed):
            first.finish()
        last = TransactingWorker(world)
        last.finish()
        world.check()
        assert all(position.position.position == end for position in world.known().values())
        if first.requests <= at:  # it came to its end before
            return
    raise AssertionError("a copy takes more requests than were tried")


@VERSIONS
@pytest.mark.parametrize("executed", [False, True])
def test_a_connection_lost_at_every_request(version: int, executed: bool) -> None:
    for at in range(requests_of_a_copy(version)):
        world = World(version=version)
        world.fill(4)
        TransactingWorker(world, at, lost(executed, world)).finish()
        world.check()


@VERSIONS
@pytest.mark.parametrize("rounds", [0, 1, 2, 4, 400])
def test_a_request_of_a_dead_worker_that_arrives_late(version: int, rounds: int) -> None:
    """A Produce or EndTxn on a connection that nobody holds any more: after the successor began, or much later."""
    for at in range(requests_of_a_copy(version)):
        world = World(version=version)
        world.fill(4)
        late: list[Callable[[], Any]] = []

        def dies(execute: Callable[[], Any], late: list[Callable[[], Any]] = late) -> Any:
            late.append(execute)
            raise Killed

        with pytest.raises(Killed):
            TransactingWorker(world, at, dies).finish()
        successor = TransactingWorker(world)
        successor.open()
        for _ in range(rounds):
            if not successor.round():
                break
        with suppress(ClusterError):  # its connection may be gone
            late[0]()
        successor.finish()
        world.check()


@VERSIONS
@pytest.mark.parametrize("rounds", [0, 1, 3, 400])
def test_a_zombie_that_wakes_up_at_every_request(version: int, rounds: int) -> None:
    """Frozen in the middle of a request while a successor works, then it goes on as if nothing had happened."""
    for at in range(requests_of_a_copy(version)):
        world = World(version=version)
        world.fill(4)
        successor = TransactingWorker(world)

        def freezes(execute: Callable[[], Any], successor: TransactingWorker = successor) -> Any:
            successor.open()
            for _ in range(rounds):
                if not successor.round():
                    break
            return execute()

        zombie = TransactingWorker(world, at, freezes)
        zombie.finish()
        successor.finish()
        world.check()


@VERSIONS
def test_two_workers_that_fight_for_a_slot(version: int) -> None:
    """Both believe that they own it; each fences the other again and again."""
    world = World(version=version)
    world.fill(12)
    fighters = [TransactingWorker(world), TransactingWorker(world)]
    for number in range(60):
        fighters[number // 3 % 2].round()
    fighters[0].finish()
    world.check()


def test_an_epoch_that_runs_out_gives_another_producer_id() -> None:
    world = World()
    world.target.coordinator.last_epoch = 3
    world.fill(12)
    worker = TransactingWorker(world)
    worker.finish()
    world.check()
    assert len(worker.registered) > 2
    writers = {
        stored.header.producer_id
        for partition in range(world.partitions)
        for stored in world.target.log(MERGED, partition).batches
        if stored.header.is_transactional and not stored.header.is_control
    }
    assert writers <= set(worker.registered)
    assert set(worker.registered.values()) == {HOME}


@pytest.mark.parametrize("busy", [1, 3, 10])
def test_a_coordinator_that_is_still_at_it(busy: int) -> None:
    for at in range(requests_of_a_copy(2)):
        world = World()
        world.fill(4)

        def working(execute: Callable[[], Any], world: World = world) -> Any:
            world.target.coordinator.busy = busy
            return execute()

        TransactingWorker(world, at, working).finish()
        world.check()


def test_a_rejected_batch_stops_its_partition_and_no_other() -> None:
    world = World()
    world.fill(4)
    worker = TransactingWorker(world)
    worker.round()
    log = world.target.log(MERGED, 1)
    log.configs = {"cleanup.policy": "compact"}  # and no record has a key
    for _ in range(50):
        worker.fetch()
        worker.writer.step()
    stopped = worker.copies[1].trouble
    assert isinstance(stopped, Halt)
    assert stopped.state == "rejected"
    assert worker.copies[0].trouble is None
    here, there = world.source.records(TOPIC, 0), world.target.records(MERGED, 0)
    assert [record.value for record in there if b"foreign" not in (record.value or b"")] == [
        record.value for record in here
    ]
    half = [record.value for record in world.target.records(MERGED, 1) if b"foreign" not in (record.value or b"")]
    assert half == [record.value for record in world.source.records(TOPIC, 1)][: len(half)]
    log.configs = {}
    TransactingWorker(world).finish()
    world.check()


def test_a_recreated_target_topic_stops_its_partitions() -> None:
    world = World()
    world.fill(6)
    worker = TransactingWorker(world)
    worker.round()
    world.target.delete_topic(MERGED)
    world.target.create_topic(MERGED, world.partitions)
    for _ in range(5):
        worker.fetch()
        worker.writer.step()
    troubles = [copy.trouble for copy in worker.copies]
    # A broker that has just started does not know the topic either: the inspection tells the two apart.
    assert {trouble.halts_as for trouble in troubles if isinstance(trouble, Reinspect)} == {"target_gone"}
    assert world.target.records(MERGED, 0) == []


def test_what_is_left_open_is_never_seen_by_a_committed_reader() -> None:
    """Killed before EndTxn: the records are in the log, and no reader gets them; the successor writes them again."""
    for at in range(requests_of_a_copy(2)):
        world = World()
        world.fill(4)

        def kill(_execute: Callable[[], Any]) -> Any:
            raise Killed

        with pytest.raises(Killed):
            TransactingWorker(world, at, kill).finish()
        known = world.known()
        for partition in range(world.partitions):
            ours = [r for r in world.target.records(MERGED, partition) if b"foreign" not in (r.value or b"")]
            here = world.source.records(TOPIC, partition)
            copied = next((k.position.position for key, k in known.items() if key.partition == partition), 0)
            # Also below a last stable offset that the open transaction holds back, map and records agree.
            assert [r.value for r in ours] == [r.value for r in here if r.offset < copied][: len(ours)]


def ways(batch: Any) -> tuple[str, ...]:
    """Batches of producer 77 came over another cluster, those of 78 over two."""
    return {77: ("far-id", *HOME), 78: ("farther-id", "far-id", *HOME)}.get(batch.producer_id, HOME)


def events() -> list[tuple[str, Callable[[World], Event]]]:
    def killed(_world: World) -> Event:
        def event(_execute: Callable[[], Any]) -> Any:
            raise Killed

        return event

    def took_over(world: World) -> Event:
        def event(execute: Callable[[], Any]) -> Any:
            successor = TransactingWorker(world, path_of=ways)
            successor.open()
            for _ in range(3):
                successor.round()
            return execute()

        return event

    return [("killed", killed), ("took over", took_over)]


WAYS = [pytest.param(*each, marks=pytest.mark.soak if each[0] == "killed" else ()) for each in events()]


@pytest.mark.parametrize(("_name", "event"), WAYS, ids=lambda value: value if isinstance(value, str) else "")
def test_several_ways_keep_the_order_and_tell_their_way(_name: str, event: Callable[[World], Event]) -> None:
    def world_of_ways() -> World:
        world = World()
        world.fill(12, lambda number: 77 + number // 3 % 2)
        return world

    calm = world_of_ways()
    worker = TransactingWorker(calm, path_of=ways)
    worker.finish()
    calm.check()
    assert len(set(worker.registered.values())) == 3
    for partition in range(calm.partitions):
        for stored in calm.target.log(MERGED, partition).batches:
            if stored.header.is_transactional and not stored.header.is_control:
                assert stored.header.producer_id in worker.registered
    for at in range(worker.requests):
        world = world_of_ways()
        first = TransactingWorker(world, at, event(world), path_of=ways)
        with suppress(Killed):
            first.finish()
        last = TransactingWorker(world, path_of=ways)
        last.finish()
        world.check()


def test_the_ledger_is_bounded_and_no_block_is_lost(monkeypatch) -> None:
    monkeypatch.setattr(transaction_positions, "RUNS_PER_BLOCK", 64)
    world = World(partitions=1)
    for _ in range(200):
        world.fill(1)
        worker = TransactingWorker(world)
        worker.finish()
    world.check()
    sizes = [len(record.value or b"") for record in world.target.records(LEDGER_TOPIC, SLOT)]
    assert max(sizes) < 2_000
    known = world.known()
    (only,) = known.values()
    assert len(only.blocks) >= 2
    world.target.delete_records(MERGED, 0, only.blocks[0][-1].target + only.blocks[0][-1].records)
    world.fill(1)
    TransactingWorker(world).finish()
    (after,) = world.known().values()
    assert min(after.blocks) == 1
    first = min(record.offset for record in world.target.records(MERGED, 0))
    assert after.map.to_target(0, world.target.log(MERGED, 0).end) >= first


def test_a_target_that_stamps_records_gets_none_that_anybody_sees() -> None:
    world = World()
    world.fill(2)
    world.target._configs[MERGED]["message.timestamp.type"] = "LogAppendTime"
    world.target.clock = lambda: NOW + 60_000
    worker = TransactingWorker(world)
    for _ in range(20):
        worker.round()
    assert {trouble.state for trouble in worker.trouble.values()} == {"append_time"}
    for partition in range(world.partitions):
        seen = world.target.log(MERGED, partition).visible(committed=True)
        assert {(record.value or b"")[:7] for record in seen} == {b"foreign"}
