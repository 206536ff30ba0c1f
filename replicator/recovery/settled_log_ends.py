"""Whether a log has stood still for so long that nothing can be under way to it any more. Does no I/O."""

from __future__ import annotations

import math
from typing import Final

from watershed.replicator.partition_key import PartitionKey
from watershed.topology.delivery_guarantee import LOG_SETTLE_S

# A loop that has not come round for longer was frozen, and its partitions may have been another worker's meanwhile. It
# is above the longest back-off (5 s) and what a hanging broker takes.
FROZEN_S: Final = 12.0


class SettledLogEnds:
    """Since when the end of each log has stood still, by a monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[tuple[PartitionKey, str], tuple[int, float, float]] = {}  # end, since when, last inspection
        self._loop_since = self._loop_at = -math.inf  # when the worker's loop began without a pause; its last round

    def note_round(self, now: float) -> None:
        """The worker's loop has come round: it has heard which partitions were taken from it (`forget`). A loop that
        paused for longer than FROZEN_S was frozen, and its partitions may have been another worker's meanwhile."""
        if now - self._loop_at > FROZEN_S:
            self._loop_since = now
        self._loop_at = now

    def settled(self, key: PartitionKey, side: str, end: int, now: float, asked_at: float) -> bool:
        """Whether `end` was the same at every inspection of the last LOG_SETTLE_S seconds. What was seen before the
        partition was another worker's says nothing of what that one sent, so a worker that was away begins again.

        asked_at: when the end was asked for. One round over many partitions takes long, and so an answer may be old.
        The inspections may be as far apart as they need while the worker's loop goes on (`note_round`).
        """
        seen, since, last = self._since.get((key, side), (end, now, now))
        was_away = last < self._loop_since or now - max(last, self._loop_at) > FROZEN_S
        if seen != end or was_away:
            since = now
        self._since[key, side] = (end, since, now)
        return min(now, asked_at) - since >= LOG_SETTLE_S

    def forget(self, key: PartitionKey) -> None:
        """The partition is copied again, or was another worker's: what was seen before says nothing about requests that
        are sent now."""
        for side in ("source", "target"):
            self._since.pop((key, side), None)
