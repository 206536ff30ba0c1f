"""Looks at the logs under way: one at a time for each flow, in the worker's pool."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from clusters.control import ControlWriter
from clusters.errors import ClusterError
from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from replicator.look import Stillness
from replicator.partition import PartitionKey
from replicator.seat import Seat
from replicator.states import LookAgain, Loud
from replicator.takeover import Taken, take_over

Found = Taken | Loud | LookAgain


@dataclass(slots=True)
class Looks:
    """`start` begins them, `finished` hands out what they found."""

    target: ConnectionSettings
    connect: Callable[[str], ConnectionSettings]
    pool: Executor
    writer: ControlWriter
    worker_id: str
    expiration_ms: int
    stillness: Stillness = field(default_factory=Stillness)
    _under_way: dict[str, tuple[list[Seat], Future[dict[PartitionKey, Found]]]] = field(default_factory=dict)

    def start(self, seats: Iterable[Seat]) -> None:
        """Look for those that are due."""
        now = time.monotonic()
        due: dict[str, list[Seat]] = defaultdict(list)
        for seat in seats:
            if seat.key.flow not in self._under_way and seat.ready_to_look(now):
                due[seat.key.flow].append(seat)
        for flow_id, waiting in due.items():
            for seat in waiting:
                seat.looking = True
            self._under_way[flow_id] = (waiting, self.pool.submit(self._look, waiting[0].record, waiting))

    def finished(self) -> Iterator[tuple[Seat, Found]]:
        for flow_id, (seats, future) in list(self._under_way.items()):
            if not future.done():
                continue
            del self._under_way[flow_id]
            results = future.result()
            for seat in seats:
                seat.looking = False
                yield seat, results[seat.key]

    def _look(self, record: FlowRecord, seats: list[Seat]) -> dict[PartitionKey, Found]:
        try:
            source = self.connect(record.flow.source)
        except ClusterError as error:
            return {seat.key: LookAgain(str(error)) for seat in seats}
        slots = {seat.key: seat.slot for seat in seats}
        return take_over(
            record, slots, source, self.target, self.expiration_ms, self.stillness, self.worker_id, self.writer
        )
