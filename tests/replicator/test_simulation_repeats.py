"""Workers without a producer id crash, freeze, lose answers, and land batches late.

Nothing is lost, and every repeat is in the ledger.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.repeating import Sent, Source, Worker, World, build_source
from watershed.replicator.ledger import transaction_positions
from watershed.replicator.ledger.offset_map import ExplicitRun

SETTINGS = settings(max_examples=choose_examples(150), deadline=None, suppress_health_check=list(HealthCheck))
SHAPE = (3, 2, 4, 2, 1, 5, 2, 3, 2, 2)


def final(world: World) -> int:
    """Whatever is still on its way lands; one more worker finds out. Returns the number of repeats."""
    Worker(world).finish()
    for request in list(world.network):
        world.land(request, heard=False)
    Worker(world).finish()
    return world.check()


class Script:
    """Steps of several workers, chosen by bytes."""

    def __init__(self, workers: int, every: int = 4) -> None:
        self.world = World(Source(build_source(SHAPE, every)))
        self.workers = [Worker(self.world) for _ in range(workers)]

    def step(self, what: int, which: int) -> None:
        worker = self.workers[which % len(self.workers)]
        requests = self.world.network
        request: Sent | None = requests[which % len(requests)] if requests else None
        match what % 8:
            case 0 if worker.copy is None:
                worker.take_over()
            case 0 | 1:
                worker.fetch(1 + which % 4)
            case 2:
                worker.send()
            case 3 | 4 if request is not None:
                self.world.land(request, heard=which % 5 != 0)
            case 5 if worker.positions is not None:
                worker.positions.write()
            case 6:
                worker.writer.let_through()
            case 7 if which % 3 == 0:
                worker.kill()
            case 7 if request is not None and request.copy is request.worker.copy and request.copy.queue.in_flight:
                self.world.lose(request)
        worker.retire()


@SETTINGS
@given(st.binary(min_size=40, max_size=400))
def test_whatever_happens_nothing_is_lost_and_each_repeat_is_known(script: bytes) -> None:
    running = Script(workers=3)
    for at in range(0, len(script) - 1, 2):
        if running.world.halted is None:
            running.step(script[at], script[at + 1])
    assert final(running.world) == running.world.end - len(running.world.source.records)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs leave the position for a block at once, and blocks are full soon."""
    monkeypatch.setattr(transaction_positions, "RUNS_IN_POSITION", 2)
    monkeypatch.setattr(transaction_positions, "RUNS_PER_BLOCK", 5)
    monkeypatch.setattr(transaction_positions, "TAKEOVERS_KEPT", 400)  # each script has fewer: none is too old


@SETTINGS
@given(st.binary(min_size=40, max_size=400))
def test_a_worker_that_wakes_up_leaves_the_ledger_readable(small_blocks: None, script: bytes) -> None:
    """The runs are many, so each worker writes blocks; the others go on in them."""
    running = Script(workers=3, every=2)
    for at in range(0, len(script) - 1, 2):
        if running.world.halted is None:
            running.step(script[at], script[at + 1])
            running.world.known()
    final(running.world)


def test_a_worker_that_wakes_up_behind_the_next_one_writes_a_block_of_its_own(small_blocks: None) -> None:
    """Frozen with an answer that it has not written down; its successor goes on in the same block, with more runs."""
    world = World(Source(build_source((1,) * 24, every=1)))
    frozen, successor = Worker(world), Worker(world)
    frozen.take_over()
    copied = 0
    while copied < 5:
        frozen.fetch(2)
        if (request := frozen.send()) is not None:
            copied += 1
            world.land(request, heard=copied < 5)
    successor.take_over()
    before = world.known()
    assert before is not None
    assert [len(block) for block in before.blocks.values()] == [4]
    frozen.positions.write()
    while frozen.writer.let_through():
        pass
    while (request := successor.send()) is None:
        successor.fetch(2)
    world.land(request)
    successor.positions.write()
    while successor.writer.let_through():
        pass
    known = world.known()
    assert known is not None
    assert list(known.map.stretches(99)) == [ExplicitRun(at, 4 * at, 1) for at in range(6)], (
        "every other transaction is aborted"
    )
    assert final(world) == 0


def crash_at(step: int, outcome: str) -> tuple[World, bool]:
    """One worker copies step by step: fetch, send, answer, ledger. It is killed behind this step. False if it had
    finished before. outcome: of what was on its way."""
    world = World(Source(build_source(SHAPE)))
    worker, done = Worker(world), 0

    def steps():
        worker.take_over()
        yield
        while worker.copy.source.position < world.source.end or not worker.copy.queue.is_empty:
            worker.fetch(2)
            yield
            while (request := worker.send()) is not None:
                yield
                world.land(request)
                yield
                worker.positions.write()
                yield
                while worker.writer.let_through():
                    yield

    for done, _ in enumerate(steps()):
        if done == step:
            break
    worker.kill()
    if outcome == "landed":
        for request in list(world.network):
            world.land(request, heard=False)
    return world, done == step


STEPS = 60


@pytest.mark.parametrize(("outcome", "stale"), list(product(("landed", "late", "never"), (False, True))))
def test_a_crash_at_every_step(outcome: str, stale: bool) -> None:
    """stale: a position from before, of a worker that was slow, comes into the ledger behind the newer one."""
    repeats = []
    for step in range(STEPS):
        world, crashed = crash_at(step, outcome)
        old = dict(world.ledger)
        successor = Worker(world)
        successor.take_over()
        successor.fetch(2)
        request = successor.send()
        if request is not None:
            world.land(request)
        if outcome == "late":
            for each in list(world.network):
                world.land(each, heard=False)
        if stale:
            world.ledger.update(old)
        if outcome == "never":
            world.network.clear()
        successor.kill()
        repeats.append(final(world))
        if not crashed:
            break
    else:
        raise AssertionError(f"there are more than {STEPS} steps")
    late = [each for each in repeats if each]
    assert bool(late) is (outcome == "late"), "only a batch that lands behind the takeover repeats"


def test_a_batch_that_is_late_for_several_takeovers_is_found() -> None:
    world = World(Source(build_source(SHAPE)))
    first = Worker(world)
    first.take_over()
    first.fetch(2)
    late = first.send()
    first.kill()
    for _ in range(4):
        next_one = Worker(world)
        next_one.take_over()
        next_one.fetch(3)
        request = next_one.send()
        world.land(request)
        next_one.kill()
    world.land(late, heard=False)
    assert final(world) == late.outgoing.records


def test_a_late_batch_that_reaches_further_than_the_copy_brings_new_records_too() -> None:
    world = World(Source([*build_source((6,))]))
    first = Worker(world)
    first.take_over()
    first.fetch()
    late = first.send()
    first.kill()
    world.land(late, heard=False)
    assert final(world) == 0


def test_a_halt_names_what_somebody_else_wrote() -> None:
    world = World(Source(build_source(SHAPE)))
    worker = Worker(world)
    worker.finish()
    stranger = World(Source(build_source((7, 7))))
    other = Worker(stranger)
    other.finish()
    batch = stranger.target[1]
    world.target.append(batch._replace(base=world.end, end=world.end + 7))
    Worker(world).take_over()
    assert world.halted is not None
    assert world.halted.state == "target_foreign_write"
    assert world.halted.target == (world.end - 7, world.end)
