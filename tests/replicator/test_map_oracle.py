"""Every offset, both ways, against an oracle that knows nothing of runs: which source record each target record is.

The logs are random (plain records, transactions that commit, abort or stay open, markers, compaction at any moment,
batches that the loop guard leaves out, records that went to quarantine), and so are crashes, lost answers and
take-overs by several workers.
"""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.replicator.model import TOPIC, SimulatedWorker, Simulation, WentHalted
from tests.replicator.transacting import MERGED, SLOT, Killed, TransactingWorker, World, check_map, key_of
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import RawBatch
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.errors import NotCopied
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.recovery.recovery_point import RecoveryPoint

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def check_every_offset(offsets: OffsetMap, placed: list[int], source_end: int, target_end: int) -> None:
    """placed: the source offset of each record on the target, which holds nothing else."""
    assert placed == sorted(set(placed))
    assert len(placed) == target_end
    for source in range(source_end + 1):
        following = bisect_left(placed, source)  # the first record at or behind it; at the end: the end
        assert offsets.to_target(source, target_end) == following, source
    for beyond in (1, 2, 1_000, 1 << 40):
        with pytest.raises(NotCopied, match=f"everything below {source_end};") as told:
            offsets.to_target(source_end + beyond, target_end)
        assert told.value.copied == source_end
    for target, source in enumerate(placed):
        assert offsets.to_source(target) == source, target
    assert offsets.to_source(target_end) == offsets.source_position(target_end) == source_end
    # A reader that goes there and comes back reads the same next record.
    for source in range(source_end):
        back = offsets.to_source(offsets.to_target(source, target_end))
        assert bisect_left(placed, back) == bisect_left(placed, source), source


class Mixed(Simulation):
    """Also with batches that the guard leaves out, and records that the target refused."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, compaction=True)
        self.refused: dict[int, str] = {}

    def _note_history(self) -> None:
        super()._note_history()
        self.refused |= {
            offset: "too old" for offset, record in self.history.items() if int(record.value or b"0") % 19 == 7
        }

    def _accept(self, worker: SimulatedWorker) -> None:
        copy, ledger, answer = worker.fetched.popleft()
        small = (0, 90, 1 << 20)[self.steps_done % 3]
        terms = RepackTerms(refused=self.refused, isolate=True, small=small, holes=lambda: copy.producer.alone)
        runs = copy.accept(
            select_batches(answer.records, copy.source.position, answer.aborted, leave_out=_brought, terms=terms)
        )
        if runs:
            ledger.append(runs)

    def check_position(self, decided: RecoveryPoint) -> None:
        assert all(offset < decided.position for offset in self.placed()[: decided.target_end])

    def check(self) -> None:
        placed = self.placed()
        brought = self.brought()
        assert not {*placed} & {*self.refused}
        assert not {*placed} & brought
        left = {record.offset for record in self.committed()} - {*self.refused} - brought
        assert left <= {*placed}, f"lost: {sorted(left - {*placed})}"
        check_every_offset(self.map(), placed, self.source.log(TOPIC, 0).end, self.target.log(TOPIC, 0).end)

    def brought(self) -> set[int]:
        """Source offsets in batches of producers that the guard leaves out."""
        from watershed.replicator.batch.record_batch import decode_batches

        log = self.source.log(TOPIC, 0)
        stored, _ = log.read(log.log_start, 1 << 30, False, True)
        return {
            offset
            for batch in decode_batches(memoryview(stored))
            if _brought(batch)
            for offset in range(batch.base, batch.end)
        }


def _brought(batch: RawBatch) -> bool:
    """As if every fourth transactional producer were another flow's."""
    return batch.producer_id >= 0 and batch.producer_id % 4 == 1


def run(script: bytes, workers: int) -> bool:
    """False: the partition said that it is not exact (decision 0017 says when)."""
    simulation = Mixed(workers)
    try:
        for at in range(0, len(script) - 1, 2):
            simulation.step(script[at], script[at + 1])
        simulation.drain()
    except WentHalted as halt:
        assert halt.state == "duplicated"  # noqa: PT017 - the other outcome is that nothing is raised
        return False
    simulation.check()
    return True


@SETTINGS
@given(st.binary(min_size=60, max_size=400), st.integers(1, 3))
def test_every_offset_both_ways(script: bytes, workers: int) -> None:
    run(script, workers)


@pytest.mark.parametrize("seed", range(2))
def test_every_offset_both_ways_in_long_runs(seed: int) -> None:
    chance = random.Random(seed)
    exact = sum(run(chance.randbytes(800), chance.choice((1, 2, 3))) for _ in range(8))
    assert exact >= 6


@SETTINGS
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 40), st.booleans()), min_size=1, max_size=5))
def test_every_offset_both_ways_where_others_write_too(crashes: list[tuple[int, int, bool]]) -> None:
    """A target partition with another writer between our transactions; workers die at any request, before or after it
    was executed, and the next one goes on."""
    world = World(partitions=1)
    for rounds, at, executed in crashes:
        world.fill(rounds)
        try:
            TransactingWorker(world, at, _dies(executed)).finish()
        except Killed:
            continue
    world.disturb()
    TransactingWorker(world).finish()
    world.check()
    here = world.source.records("orders", 0)
    ours = [each for each in world.target.records(MERGED, 0) if not (each.value or b"").startswith(b"foreign")]
    known = world.known()[key_of(0)]
    end = world.target.log(MERGED, 0).end
    check_map(known.map, here, ours, world.source.log("orders", 0).end, end)  # type: ignore[arg-type]
    assert {key.partition for key in world.known()} == {0}
    assert world.target.records("watershed.ledger", SLOT)
    with pytest.raises(NotCopied):
        known.map.to_target(world.source.log("orders", 0).end + 1, end)


def _dies(executed: bool):
    def event(execute):
        if executed:
            execute()
        raise Killed

    return event
