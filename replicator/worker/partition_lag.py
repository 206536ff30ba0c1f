"""How far behind a partition is: in records, in bytes, in time. Age of events is another thing and told apart.

Time: Kafka does not say when a batch was appended (CreateTime is what the producer claims). So the worker remembers
when it first saw the source's end at each offset; a copy that has reached offset p is behind by the time since the
source's end first passed p. For what was there before the worker looked, that moment is the worker's first inspection:
the true lag is at least that. Clocks of other machines do not matter (monotonic time of this worker)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

MAX_LAG_SAMPLES = 256
_SMOOTHING = 0.2  # weight of the newest Fetch in the mean size of an offset


@dataclass(slots=True)
class PartitionLag:
    """Samples of one partition's source end. Times in seconds of a monotonic clock, ends strictly rising."""

    _ends: list[int] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _bytes_an_offset: float | None = None

    def observe_end(self, end: int, now: float) -> None:
        """The source's log ended at `end` at time `now`. A lower end than before (truncation) begins anew."""
        if self._ends and end < self._ends[-1]:
            self._ends.clear()
            self._times.clear()
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._times.append(now)
            if len(self._ends) > MAX_LAG_SAMPLES:  # every second of the older half: coarser where it is long ago
                half = MAX_LAG_SAMPLES // 2
                self._ends[:half] = self._ends[:half:2]
                self._times[:half] = self._times[:half:2]

    def fetched(self, offsets: int, size: int) -> None:
        """A Fetch brought `size` bytes for `offsets` offsets."""
        if offsets > 0:
            mean = size / offsets
            known = self._bytes_an_offset
            self._bytes_an_offset = mean if known is None else known + _SMOOTHING * (mean - known)

    def behind_s(self, copied: int, now: float) -> float | None:
        """Seconds since the source's end first passed `copied` (0.0: nothing is waiting); None: no end was seen."""
        if not self._ends:
            return None
        at = bisect_right(self._ends, copied)
        return 0.0 if at == len(self._ends) else max(now - self._times[at], 0.0)

    def bytes_behind(self, copied: int) -> int | None:
        """An estimate: offsets not copied, times the mean stored size of an offset lately; None: not known."""
        if not self._ends:
            return None
        waiting = max(self._ends[-1] - copied, 0)
        if waiting == 0:
            return 0
        return None if self._bytes_an_offset is None else round(waiting * self._bytes_an_offset)
