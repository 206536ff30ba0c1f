"""What starts and ends the workers of a fleet, and what it knows of each: what a supervisor asks of processes and of
Spark alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

WORKER_CLIENT_PREFIX: Final = "watershed-"  # what a worker's client id has before its name


@dataclass(frozen=True, slots=True)
class WorkerObservation:
    """What a host knows of a worker. name: as its reports and its client id have it; "" until it is known. ended: how
    it ended, for people; None while it runs. failed: it did not end as it was told to. waits: the host starts it when
    there is room, and not now."""

    name: str = ""
    ended: str | None = None
    failed: bool = False
    waits: bool = False


class WorkerHost(Protocol):
    """What starts and ends workers, by their places.

    surge: one worker more than wanted finds room during a restart. hosts_whole_fleet: one start brings up all workers;
    the program that it starts sees to their number and restarts.
    """

    engine: Literal["spark", "process"]
    surge: bool
    hosts_whole_fleet: bool

    @property
    def note(self) -> str:
        """What keeps it from starting workers, or where some of them run instead, for people; "" for nothing."""
        ...

    def start(self, place: int, epoch: int) -> None:
        """Start a worker, or the whole fleet; does not wait."""
        ...

    def end(self, place: int) -> None:
        """Have it finish what is in flight and end; does not wait."""
        ...

    def kill(self, place: int) -> None:
        """End it hard: it was told to end, and has not."""
        ...

    def observe(self) -> Mapping[int, WorkerObservation]:
        """Every worker that was started; one that has ended is told once."""
        ...
