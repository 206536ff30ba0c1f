"""The worker of a fleet that serves the flows with `transform`: one beside the others, on the supervisor's host.

It is the driver of a Spark application of its own (`topology worker --transforms`), whatever hosts the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from watershed.replicator.worker.worker_host import WorkerHost
from watershed.replicator.worker.worker_places import WorkerPlaces

_PLACE = 0


@dataclass(slots=True)
class TransformPlaces:
    """`keep` is one round. say: tells people what was started, and what has died."""

    host: WorkerHost
    say: Callable[[str], None]
    _places: WorkerPlaces = field(init=False)

    def __post_init__(self) -> None:
        self._places = WorkerPlaces(self.host)

    @property
    def is_empty(self) -> bool:
        """Whether it does not run."""
        return not self._places.list_running()

    def keep(self, *, wanted: bool, restarts: int, epoch: int) -> None:
        """Start it, end it, or start it again, as the fleet's record and its flows have it."""
        self.observe()
        [running] = self._places.list_workers() or (None,)
        for number, trouble in self._places.find_stuck().items():
            self.say(trouble)
            self._places.end_stuck(number)
        if running is not None and not running.ending and (not wanted or running.restarts < restarts):
            self._places.end(_PLACE)
        elif running is None and wanted and self._places.can_start(_PLACE):
            self._places.start(_PLACE, restarts, epoch)
            self.say("the worker of flows with `transform` is started")

    def observe(self) -> None:
        """Take note of its end."""
        for end in self._places.observe():
            if end.asked or not end.failed:
                self._places.forget(end.place)
            else:
                self.say(
                    f"the worker of flows with `transform` ended after {end.lived_s:.0f} s {end.ended}; it is started "
                    f"again in {end.pause_s:g} s"
                )

    def end(self) -> None:
        """Tell it to end."""
        self._places.end_all()
