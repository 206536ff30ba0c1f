"""The workers that a supervisor has started on one host, by their places: who runs, who has died and is started again
when, who was told to end and has not, and who does not work."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError
from watershed.clusters.fleet import read_fleet_members
from watershed.replicator.worker.fleet_decisions import QUICK_DEATH_S, HostedWorker, compute_restart_pause
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX, WorkerHost

log = logging.getLogger("watershed.fleet")

_MEMBERS_SOON_S: Final = 0.5  # how often the group is asked while the fleet is not at its size
_MEMBERS_S: Final = 5.0
_END_AT_LATEST_S: Final = 60.0  # a worker that was told to end is killed then
_MISSING_S: Final = 120.0  # a worker that is no member of the group for so long does not work: it is replaced


@dataclass(slots=True)
class _Place:
    """A place with its worker, or the worker that has died there."""

    restarts: int
    started: float
    running: bool = True
    ending: bool = False
    told: float = 0.0  # to end
    waits: bool = False  # for room; its name is forgotten
    name: str = ""
    missing_since: float | None = None  # from when on it was no member of the group, whenever that was asked
    quick_deaths: int = 0
    due: float = 0.0  # when it is started again

    @property
    def client_id(self) -> str:
        return f"{WORKER_CLIENT_PREFIX}{self.name}"


@dataclass(frozen=True, slots=True)
class EndedWorker:
    """A worker that has ended. asked: it was told to. failed, ended: as its host says. lived_s: seconds that it ran.
    pause_s: seconds until it may be started again."""

    place: int
    asked: bool
    failed: bool
    ended: str
    lived_s: float
    pause_s: float


@dataclass(slots=True)
class WorkerPlaces:
    """The workers of one host, which nobody else starts or ends."""

    host: WorkerHost
    _places: dict[int, _Place] = field(default_factory=dict)
    _members: frozenset[str] = frozenset()  # client ids in the workers' group
    _members_due: float = 0.0

    def start(self, number: int, restarts: int, epoch: int) -> None:
        """Start a worker at a place. restarts: the fleet's, when it was started."""
        before = self._places.get(number)
        quick_deaths = 0 if before is None else before.quick_deaths
        self.host.start(number, epoch)
        self._places[number] = _Place(restarts, time.monotonic(), quick_deaths=quick_deaths)
        self._members_due = 0.0
        log.info("worker started", extra={"place": number, "epoch": epoch})

    def end(self, number: int) -> None:
        """Tell the worker at a place to hand over and end."""
        place = self._places[number]
        place.ending, place.told = True, time.monotonic()
        self.host.end(number)
        log.info("worker told to end", extra={"place": number})

    def end_all(self, kept: int = 0) -> None:
        """The same to all workers, but for those at the first `kept` places."""
        for number, place in self._places.items():
            if number >= kept and place.running and not place.ending:
                self.end(number)

    def find_stuck(self) -> dict[int, str]:
        """The places of those that do not end as they were told, or do not work; what is wrong, for people."""
        now, found = time.monotonic(), {}
        for number, place in self._places.items():
            if not place.running:
                continue
            if place.ending and now - place.told > _END_AT_LATEST_S:
                found[number] = f"worker {number} did not end within {_END_AT_LATEST_S:.0f} s; it is killed"
            elif not place.ending and place.missing_since is not None and now - place.missing_since > _MISSING_S:
                found[number] = f"worker {number} was no member of the group for {_MISSING_S:.0f} s; it is replaced"
        return found

    def end_stuck(self, number: int) -> None:
        """Kill the worker at a place if it was told to end; tell it to otherwise."""
        place = self._places[number]
        if not place.ending:
            self.end(number)
            return
        place.told = time.monotonic()
        self.host.kill(number)

    def observe(self) -> list[EndedWorker]:
        """Take note of names and ends; who has ended since, each once. Their places rest until they may be started
        again (`can_start`), or until they are forgotten."""
        now, found = time.monotonic(), []
        for number, seen in self.host.observe().items():
            place = self._places[number]
            place.waits = seen.waits
            if seen.waits or seen.name not in ("", place.name):
                place.name, place.missing_since = seen.name, None
            if seen.ended is None:
                continue
            lived, asked = now - place.started, place.ending
            place.running = place.ending = False
            self._members_due = 0.0
            place.quick_deaths = place.quick_deaths + 1 if lived < QUICK_DEATH_S else 1
            pause = compute_restart_pause(place.quick_deaths)
            place.due = now + pause
            found.append(EndedWorker(number, asked, seen.failed, seen.ended, lived, pause))
        return found

    def forget(self, number: int) -> None:
        """Free the place of a worker that has ended, and need not be started again."""
        del self._places[number]

    def ask_members(self, admin: Admin, topology: str) -> None:
        """Ask the workers' group now and then who is in it. Raises ClusterError where it cannot be asked."""
        now = time.monotonic()
        if self.host.hosts_whole_fleet or now < self._members_due:
            return
        try:
            members = read_fleet_members(admin, topology)
        except ClusterError:  # nobody could tell who is missing
            for each in self._places.values():
                each.missing_since = None
            raise
        if members is None:
            self._members, self._members_due = frozenset(), now + _MEMBERS_SOON_S
            return
        self._members = frozenset(members)
        for each in self._places.values():
            missing = each.running and each.name != "" and each.client_id not in self._members
            each.missing_since = (each.missing_since or now) if missing else None
        self._members_due = now + (_MEMBERS_S if self.list_client_ids() <= self._members else _MEMBERS_SOON_S)

    def can_start(self, number: int) -> bool:
        """Whether no worker runs at a place, nor rests there after its end."""
        place = self._places.get(number)
        return place is None or (not place.running and place.due <= time.monotonic())

    def is_only_room_missing(self, numbers: Iterable[int]) -> bool:
        """Whether no worker has died, and the workers at these places have not begun: their hosts would have said their
        names."""
        nobody_died = all(place.running for place in self._places.values())
        return nobody_died and all(self._places[number].name == "" for number in numbers)

    def list_running(self) -> list[int]:
        """The places whose worker has not ended."""
        return [number for number, place in self._places.items() if place.running]

    def list_resting(self) -> frozenset[int]:
        """The places whose worker has died, and is not yet to be started again."""
        now = time.monotonic()
        return frozenset(n for n, place in self._places.items() if not place.running and place.due > now)

    def list_workers(self) -> tuple[HostedWorker, ...]:
        """Those that run, by their places. One that brings up a whole fleet counts as serving from its start."""
        return tuple(
            HostedWorker(
                number,
                place.restarts,
                serving=self.host.hosts_whole_fleet or place.client_id in self._members,
                ending=place.ending,
                waits=place.waits,
            )
            for number, place in sorted(self._places.items())
            if place.running
        )

    def list_client_ids(self) -> set[str]:
        """Of the workers that run. One that has just begun has no name yet, and so none that anybody finds."""
        return {each.client_id for each in self._places.values() if each.running and not each.waits}
