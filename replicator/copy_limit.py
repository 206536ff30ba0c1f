"""How far a partition is copied, where the flow has an end (`delivery.end`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CopyLimit:
    """How far a partition is copied: no record at source offset `offset` or behind it. None: nobody knows yet; the copy
    goes on until a batch holds a record of `before_ms` (ms since 1970) or later. revision: of the flow's end
    (`FlowRecord.end_revision`)."""

    offset: int | None = None
    before_ms: int | None = None
    revision: int = 0

    def is_reached_at(self, position: int) -> bool:
        """Whether everything is copied when all in front of this source offset is."""
        return self.offset is not None and position >= self.offset
