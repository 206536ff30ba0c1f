"""The simulation of workers (`tests.replicator.model`) for a partition whose records keep their offsets.

A fill and a gap are one step each; a worker may be killed at any of their requests, which may still arrive much later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.replicator.aligning import Killed, Requests, dying, killed
from tests.replicator.model import KEY, TOPIC, Inspection, SimulatedWorker, Simulation, Step, WentHalted
from watershed.clusters.errors import ClusterError
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.aligned.aligned_copy import AlignedCopy, AlignmentState
from watershed.replicator.copy.aligned.empty_log_filler import fill_log
from watershed.replicator.copy.aligned.gap_filler import GapFiller
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.errors import Misaligned
from watershed.replicator.ledger.ledger_block import CLAIM_NUMBER, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_states import Halt, Reinspect
from watershed.replicator.recovery.aligned_recovery_point import find_aligned_recovery_point
from watershed.replicator.recovery.producer_epochs import begin_exclusive_epoch, drop_unlanded_epochs
from watershed.replicator.recovery.recovery_point import LogInspection


@dataclass(frozen=True)
class Goal:
    copy: AlignedCopy
    until: int


class AlignedSimulation(Simulation):
    """first: where the source's log begins."""

    mapped = ()

    def __init__(self, workers: int = 3, *, first: int = 0, compaction: bool = False, markers: bool = True) -> None:
        super().__init__(workers, compaction=compaction)
        self.way: Any = "markers" if markers else "transactions"
        self.late: list[Callable[[], Any]] = []
        self.goals: dict[int, Goal] = {}
        self.requests: dict[str, Requests] = {}  # by worker, as are its gaps
        self.gaps: dict[str, GapFiller] = {}
        if first:
            self.source.produce(TOPIC, 0, [b"gone"] * first)
            self.source.delete_records(TOPIC, 0, first)

    def steps(self) -> list[tuple[str, Step]]:
        found = super().steps()
        if not self.compaction and self._nothing_copied():
            found.append(("expire", self._expire))
        for at, request in enumerate(self.late):
            found.append((f"late request of alignment {at}", lambda amount, r=request: self._late(r, amount)))
        return found

    def _nothing_copied(self) -> bool:
        """Neither a record nor a gap."""
        remembered, _ = self.remembered()
        end = self.target.log(TOPIC, 0).end
        return remembered is None or remembered.filling or remembered.identity.base == end

    def _expire(self, amount: int) -> None:
        """Retention takes some of the source before its first record is copied."""
        log = self.source.log(TOPIC, 0)
        if self.late or any(worker.copy is not None or worker.inspection is not None for worker in self.workers):
            return  # where somebody is at it already, it is halted
        self.source.delete_records(TOPIC, 0, min(log.log_start + amount % 4, log.last_stable()))

    def _worker_steps(self, worker: SimulatedWorker) -> list[tuple[str, Step]]:
        found = super()._worker_steps(worker)
        copy = worker.copy
        if isinstance(copy, AlignedCopy) and copy.alignment.filling:
            found = [(label, action) for label, action in found if label not in ("fetch", "send")]
            if copy.trouble is None and not copy.prepared.is_blocked(copy.prepared.target + 1):
                found.append(("fill", lambda amount: self._fill(worker, amount)))
        elif isinstance(copy, AlignedCopy) and copy.alignment.gaps and copy.trouble is None:
            found.append(("gap", lambda amount: self._gap(worker, amount)))
        return found

    # -- an inspection ------------------------------------------------------------------------------------------------

    def _seen(self, inspection: Inspection) -> LogInspection:
        log = self.target.log(TOPIC, 0)
        start, end = inspection.target_range
        stored = b"".join(kept.data for kept in log.batches)
        data = [batch for batch in decode_batches(memoryview(stored)) if not batch.control and batch.base < end]
        tail = data[-1] if data and data[-1].end > start else None
        low, high = start if tail is None else tail.end, min(end, inspection.source_range[1])
        missed = [record.offset for record in self.committed() if low <= record.offset < high]
        return replace(
            super()._seen(inspection), tail=tail, settled=self._quiet(), missed=missed[0] if missed else None
        )

    def _quiet(self) -> bool:
        return not self.late and super()._quiet()

    def _take_over(self, worker: SimulatedWorker, seen: LogInspection) -> None:
        remembered, generation = self.remembered()
        decided = begin_exclusive_epoch(
            find_aligned_recovery_point(remembered, seen, self.producer_id), remembered, seen
        )
        if isinstance(decided, Halt):
            raise WentHalted(decided)
        if isinstance(decided, Reinspect):
            return
        end = decided.target_end
        if not decided.filling:
            missing = {record.offset for record in self.committed() if record.offset < end} - set(self.stands())
            assert not missing, f"{decided} steps over {missing}"
        block = LedgerBlock(
            key=KEY,
            generation=Generation(generation + 1, worker.name),
            number=CLAIM_NUMBER,
            start=end,
            identity=decided.identity,
            source_id=self.source_id,
            target_id=self.target_id,
            runs=(OffsetRun(end, end),),
            since=decided.since,
            needs_epoch=decided.alone,
            after=decided.after,
            filling=decided.filling,
        )
        if decided.claims:  # the first in the ledger counts
            newest = remembered.identity.epoch if remembered is not None else -1
            if self.remembered()[1] > generation or newest >= decided.identity.epoch:
                return
            self.ledger_writes += 1
            self.ledger[block.record_key] = block.to_json()
        copy = AlignedCopy(
            key=KEY,
            source_id=self.source_id,
            target_id=self.target_id,
            source=SourceCursor(decided.position),
            progress=TargetProgress(end),
            producer=SequencedProducer(decided.numbering, decided.depth, decided.depth_confirmed, alone=decided.alone),
            alignment=AlignmentState(filling=decided.filling),
        )
        ledger = PartitionLedgerWriter(
            worker.writer,  # type: ignore[arg-type]
            replace(block, number=CLAIM_NUMBER + 1, runs=()),
            copy.durable,
            lambda error: copy.halt(str(error)),
            worker.writer.later.append,
            needs_epoch=lambda: copy.producer.needs_epoch,
        )
        first = [OffsetRun(end, end)]
        copy.announce(first)
        ledger.append(first)
        worker.copy, worker.ledger = copy, ledger
        if decided.filling:
            self.goals[id(copy)] = Goal(copy, decided.goal)
        if remembered is not None:
            assert drop_unlanded_epochs(remembered, seen).map.source_position(end) == end

    def _fetch(self, worker: SimulatedWorker, amount: int) -> None:
        assert worker.copy is not None
        if worker.copy.source.position < self.source.log(TOPIC, 0).log_start:
            worker.copy.halt("OFFSET_OUT_OF_RANGE")
        else:
            super()._fetch(worker, amount)

    def _accept(self, worker: SimulatedWorker) -> None:
        copy, ledger, answer = worker.fetched.popleft()
        small = (0, 90, 1 << 20)[self.steps_done % 3]
        compression = self.choose_compression()
        terms = RepackTerms(small=small, holes=lambda: copy.producer.alone, dense=True, compression=compression)
        runs = copy.accept(select_batches(answer.records, copy.source.position, answer.aborted, terms=terms))
        if runs:
            ledger.append(runs)

    # -- what takes several requests ---------------------------------------------------------------------------

    def _fill(self, worker: SimulatedWorker, amount: int) -> None:
        assert isinstance(worker.copy, AlignedCopy)
        copy, requests = worker.copy, self._requests(worker, amount)
        try:
            until = self.goals[id(copy)].until
            fill_log(requests.log(), until, KEY.flow, bare=self.way == "markers")
            copy.fail_gap(Reinspect("filled"))
        except Misaligned as misaligned:
            copy.fail_gap(Reinspect(str(misaligned)))
        except (ClusterError, SessionLost) as error:
            copy.fail_gap(Reinspect(str(error)))
        except Killed:
            self._crash(worker)
        self.moved_at = self.steps_done

    def _gap(self, worker: SimulatedWorker, amount: int) -> None:
        assert isinstance(worker.copy, AlignedCopy)
        copy = worker.copy
        gap = copy.due()
        if gap is None:
            return
        requests = self._requests(worker, amount)
        if worker.name not in self.gaps:
            self.gaps[worker.name] = GapFiller(requests.log(), KEY.flow, self.way)
        try:
            assert self.gaps[worker.name].advance(gap.end) == gap.end
            copy.closed(gap)
        except Misaligned as misaligned:
            copy.fail_overshot_gap(gap, misaligned.end)
        except (ClusterError, SessionLost) as error:
            copy.fail_gap(Reinspect(str(error)))
        except Killed:
            self._crash(worker)
        self.moved_at = self.steps_done

    def _requests(self, worker: SimulatedWorker, amount: int) -> Requests:
        requests, event = self.requests.setdefault(worker.name, Requests(self.target)), amount % 8
        requests.at = requests.count + amount // 8
        events = {0: killed(executed=True), 1: killed(executed=False), 2: dying(self.late), 3: dying(self.late)}
        requests.event = None if self.draining else events.get(event)
        return requests

    def _late(self, request: Callable[[], Any], amount: int) -> None:
        self.late.remove(request)
        self.moved_at = self.steps_done
        if amount % 5:
            with suppress(ClusterError):
                request()

    def drain(self) -> None:
        while self.late:
            self._late(self.late[0], 1)
        super().drain()

    # -- what must be true -------------------------------------------------------------------------------------

    def stands(self) -> dict[int, bytes | None]:
        return {record.offset: record.value for record in self.target.records(TOPIC, 0)}

    def check_aligned(self) -> None:
        """The same log ends; every record of the source where it stands there, and nothing that never stood there."""
        here, there = self.source.log(TOPIC, 0), self.target.log(TOPIC, 0)
        assert there.end == here.last_stable()
        placed = self.target.records(TOPIC, 0)
        left = {record.offset for record in self.committed()}
        assert left <= {record.offset for record in placed}
        for record in placed:
            wanted = self.history[record.offset]
            assert (record.key, record.value, record.timestamp) == (wanted.key, wanted.value, wanted.timestamp)
        assert self.target.records(TOPIC, 0, committed=False) == placed
        offsets = self.map()
        for offset in range(here.log_start, there.end + 1):
            assert offsets.to_target(offset, there.end) == offset
