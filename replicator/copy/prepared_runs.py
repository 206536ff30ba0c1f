"""Which runs the ledger must hold before the batches behind them are sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from watershed.replicator.ledger.offset_map import OffsetRun


@dataclass(slots=True)
class PreparedRuns:
    """Where the next batch would go, and the runs that the ledger has not confirmed."""

    target: int  # target offset behind the last batch that is prepared
    source: int  # source offset that would extend the current run
    _unconfirmed: list[int] = field(default_factory=list)  # run starts on the target, in order

    def block(self, runs: list[OffsetRun]) -> None:
        """These runs are on their way to the ledger; batches from the first of them on wait for `confirm`."""
        self._unconfirmed.extend(run.target for run in runs)

    def confirm(self, runs: list[OffsetRun]) -> None:
        """The ledger holds these runs now."""
        confirmed = [run.target for run in runs]
        if self._unconfirmed[: len(confirmed)] == confirmed:  # as good as always: the ledger confirms in order
            del self._unconfirmed[: len(confirmed)]
        else:
            for target in confirmed:
                self._unconfirmed.remove(target)

    def is_blocked(self, end: int) -> bool:
        """Whether what ends at target offset `end` reaches into a run that the ledger does not hold."""
        return bool(self._unconfirmed) and end > self._unconfirmed[0]
