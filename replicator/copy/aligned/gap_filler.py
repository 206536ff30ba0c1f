"""Filling the gaps of a log: as many offsets as the source has no records for, which no consumer sees.

Two ways. `markers`: bare transaction markers (WriteTxnMarkers), 10,000 offsets a request, which needs ALTER on the
cluster; `transactions`: an empty transaction, whose marker takes one offset. Why both are exact: `advance`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from watershed.replicator.copy.aligned.log_end import LogEnd
from watershed.replicator.copy.aligned.target_log import TargetLog

GapMethod = Literal["markers", "transactions"]


@dataclass(slots=True)
class GapFiller:
    """Fills the gaps of one partition, one after the other; keep it, the first gap costs more than the others. bump:
    the cluster's transaction.version is 2 or more. Not thread-safe.
    """

    log: TargetLog
    flow: str
    gap_method: GapMethod
    bump: bool = True
    _log_end: LogEnd = field(init=False)

    def __post_init__(self) -> None:
        self._log_end = LogEnd(self.log, self.flow, self.bump, bare=self.gap_method == "markers")

    def advance(self, until: int, stop: threading.Event | None = None) -> int:
        """Bring the log's end to exactly `until`; the end reached, which is less only when `stop` was set.

        Nothing else may be on its way to the partition: every batch before the gap was answered, none behind it was
        sent. May be called again whatever happened. Raises what `LogEnd.to` raises.
        """
        return self._log_end.to(until, stop)

    def close(self) -> None:
        """Its connection to the coordinator; the log's is its owner's."""
        self._log_end.close()
