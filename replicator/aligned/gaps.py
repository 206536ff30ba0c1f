"""Filling the gaps of a log: as many offsets as the source has no records for, which no consumer sees.

Two ways. `markers`: bare transaction markers (WriteTxnMarkers), 10,000 offsets a request, which needs ALTER on the
cluster; `transactions`: an empty transaction, whose marker takes one offset. Why both are exact: `advance`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from clusters.wire import codes
from clusters.wire.alignment import MOST_MARKERS
from clusters.wire.transactions import ProducerIdAndEpoch
from replicator.aligned.advance import Advance
from replicator.aligned.log import TargetLog
from replicator.states import LookAgain
from replicator.transactions.answers import SessionLost

Way = Literal["markers", "transactions"]


@dataclass(slots=True)
class GapFiller:
    """Fills the gaps of one partition, one after the other; keep it, the first gap costs more than the others. bump:
    the cluster's transaction.version is 2 or more. Not thread-safe.
    """

    log: TargetLog
    flow: str
    way: Way
    bump: bool = True
    _advance: Advance = field(init=False)

    def __post_init__(self) -> None:
        bulk = self._write_markers if self.way == "markers" else None
        self._advance = Advance(self.log, self.flow, self.bump, bulk, sure=bulk is not None)

    def advance(self, until: int, stop: threading.Event | None = None) -> int:
        """Bring the log's end to exactly `until`; the end reached, which is less only when `stop` was set.

        Nothing else may be on its way to the partition: every batch before the gap was answered, none behind it was
        sent. May be called again whatever happened. Raises what `Advance.to` raises.
        """
        return self._advance.to(until, stop)

    def close(self) -> None:
        """Its connection to the coordinator; the log's is its owner's."""
        self._advance.close()

    def _write_markers(self, who: ProducerIdAndEpoch, _end: int, count: int) -> None:
        while count:
            some = min(count, MOST_MARKERS)
            epoch = self._advance.coordinator_epoch
            error = self.log.leader().write_markers(self.log.topic, self.log.partition, who, some, epoch)
            if error == codes.INVALID_PRODUCER_EPOCH:
                told = f"{codes.name_of(error)} to WriteTxnMarkers: another worker fills gaps of {self.log}"
                raise SessionLost(LookAgain(told))
            if error == codes.TRANSACTION_COORDINATOR_FENCED:
                # Its next marker tells the epoch, and a lost session begins with one.
                told = f"{codes.name_of(error)} to WriteTxnMarkers: another broker coordinates for {self.log}"
                raise SessionLost(LookAgain(told))
            if error:
                raise self.log.refused("WriteTxnMarkers", error)
            count -= some
