"""The supervisor of a fleet: one process that sees to it that the fleet is as its record says.

Whoever holds the fleet's lease acts; others stand by. The lease is a place in a consumer group on the target cluster
(`replicator.worker.membership`), so it needs no clock, pid, file or folder. Each holder of the lease begins an epoch,
which it writes down; workers of an earlier epoch go on until those of the later one are ready, and then end by
themselves. So a supervisor that dies, hangs or loses its way interrupts no copying, and leaves no second fleet behind.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from clusters.admin import Admin
from clusters.control_topics import FLOWS_TOPIC, ControlWriter
from clusters.errors import ClusterError
from clusters.fleet import (
    FleetRecord,
    SupervisorRecord,
    build_fleet_key,
    build_lease_group_id,
    build_supervisor_key,
    read_fleet_members,
    write_supervisor,
)
from clusters.settings import ConnectionSettings
from replicator.worker.desired_state import DesiredState
from replicator.worker.fleet_decisions import (
    QUICK_DEATH_S,
    FleetFacts,
    HostedWorker,
    StartWorker,
    compute_restart_pause,
    decide_fleet_actions,
    is_at_size,
)
from replicator.worker.membership import Membership
from replicator.worker.rolling_restart import RollingRestart
from replicator.worker.worker_host import WORKER_CLIENT_PREFIX, WorkerHost

log = logging.getLogger("watershed.fleet")

_PACE_S: Final = 0.2
_MEMBERS_SOON_S: Final = 0.5  # how often the group is asked while the fleet is not at its size
_MEMBERS_S: Final = 5.0
_READY_AT_LATEST_S: Final = 60.0  # workers of an earlier epoch end then, if some of ours serve
_NO_CORE_S: Final = 10.0  # the same where ours only wait for the cores that the earlier ones have
_END_AT_LATEST_S: Final = 60.0  # a worker that was told to end is killed then
_MISSING_S: Final = 120.0  # a worker that is no member of the group for so long does not work: it is replaced
_MOST_BRIDGING: Final = 2  # workers beside a supervisor: it may be a small machine, and they copy everything
_NOTE_S: Final = 2.0  # how often the record of the supervisor may change
_END_S: Final = 40.0  # for all workers to hand over and end


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


@dataclass(slots=True)
class FleetSupervisor:
    """`step` is one round. holder names this process. epoch: given where somebody else holds the lease for us."""

    target: ConnectionSettings
    topology: str
    holder: str
    make_host: Callable[[Literal["spark", "process"]], WorkerHost]
    epoch: int | None = None  # None until its record is written
    say: Callable[[str], None] = lambda _text: None
    _host: WorkerHost | None = None
    _lease: Membership | None = None
    _claimed: float = 0.0
    _places: dict[int, _Place] = field(default_factory=dict)
    _members: frozenset[str] = frozenset()
    _members_due: float = 0.0
    _bridge: WorkerHost | None = None  # workers that copy while the program that hosts the fleet is started again
    _bridging: dict[int, _Place] = field(default_factory=dict)
    _bridged: bool = False  # whether they are to be there
    _renews: bool = False  # whether what starts next gets an epoch of its own, which ends the workers before it
    _noted: float = 0.0
    _note: str = ""
    _trouble: str = ""
    _desired: DesiredState = field(init=False)
    _admin: Admin = field(init=False)
    _writer: ControlWriter = field(init=False)
    _restart: RollingRestart = field(init=False)

    def __post_init__(self) -> None:
        self._desired = DesiredState(self.target)
        self._admin = Admin(self.target)
        self._admin.check_identity()
        self._restart = RollingRestart(self.target, self.topology, self._admin)
        self._writer = ControlWriter(self.target, client_id=f"watershed-supervisor-{self.holder}")
        self._claimed = time.monotonic()
        self._desired.catch_up()
        if self.epoch is None:
            group = build_lease_group_id(self.topology, self.target.alias)
            client = f"watershed-supervisor-{self.holder}"
            self._lease = Membership(self.target, group, client, lambda _lost: None, topic=FLOWS_TOPIC)

    @property
    def record(self) -> FleetRecord | None:
        """What the fleet should be; None before it was applied."""
        return self._desired.fleets.get(build_fleet_key(self.topology, self.target.alias))

    @property
    def _supervisor(self) -> SupervisorRecord | None:
        return self._desired.supervisors.get(build_supervisor_key(self.topology, self.target.alias))

    @property
    def is_superseded(self) -> bool:
        """Whether a later epoch has begun, by another process."""
        known = self._supervisor
        return self.epoch is not None and known is not None and known.epoch > self.epoch

    @property
    def is_empty(self) -> bool:
        """Whether none of its workers runs."""
        return not self._list_running()

    def run(self, stop: threading.Event, left: threading.Event | None = None) -> None:
        """Supervise until `stop` is set, then end all workers; or until `left` is set: then they go on until another
        supervisor has its own ready. A cluster that does not answer is asked again."""
        leave = left or threading.Event()
        try:
            while not (stop.is_set() or leave.is_set()):
                try:
                    self.step()
                except ClusterError as error:
                    self._complain(f"asking again: {error}")
                    stop.wait(1.0)
        finally:
            if stop.is_set() or not leave.is_set():
                self.end_workers()
            self.close()

    def step(self) -> None:
        """One round: lease, desired state, workers that ended, and what is to be done."""
        self._follow()
        self._observe()
        if not self._may_act():
            return
        record = self.record
        if record is None:
            self._complain(f"waiting for `topology apply`: {self.topology} has no fleet into {self.target.alias} yet")
            return
        self._keep_bridge(record)
        if not self._has_host(record):
            return
        self._end_stuck()
        facts = self._gather_facts(record)
        for action in decide_fleet_actions(facts):
            if isinstance(action, StartWorker):
                self._start(action.place, facts.restarts)
            else:
                self._end(action.place)
                self._restart.replaced = True
        self._report(record, facts)

    def end_workers(self) -> None:
        """Tell all workers to end, and wait for them while the lease is kept."""
        self._end_all()
        self._bridged = False
        self._end_bridging(0)
        deadline = time.monotonic() + _END_S
        while (self._list_running() or self._list_bridging()) and time.monotonic() < deadline:
            if self._lease is not None:
                self._lease.poll(_PACE_S)
            else:
                time.sleep(_PACE_S)
            self._observe()

    def close(self) -> None:
        """Give the lease up, which another one may have at once."""
        if self._lease is not None:
            self._lease.close()
        with suppress(ClusterError):
            self._writer.flush(2)
        self._desired.close()
        self._admin.close()

    def _follow(self) -> None:
        if self._lease is not None:
            self._lease.poll(_PACE_S)
        else:
            time.sleep(_PACE_S)
        if self._desired.there:
            self._desired.follow(0)
        else:
            self._desired.catch_up()

    def _may_act(self) -> bool:
        """Whether the lease is ours; begins an epoch when it has become ours."""
        known = self._supervisor
        if self._lease is None:
            return known is None or known.epoch == self.epoch
        if not self._lease.slots:
            return False
        if known is not None and self._is_ours(known) and not self._renews:
            if known.key in self._desired.overtaken:  # a supervisor before us woke up: only ours is to be found there
                self._write(known)
            return True
        self._desired.catch_up()
        known = self._supervisor
        return (known is not None and self._is_ours(known) and not self._renews) or self._begin_epoch(known)

    def _begin_epoch(self, known: SupervisorRecord | None) -> bool:
        """Write down that we supervise from now on; False where that has to wait. known: the newest record.

        An epoch begins when its record is acknowledged and read again, and not before: workers of an epoch that stands
        in no record would never be ready. Raises ClusterError where it cannot be written.
        """
        epoch = self.epoch
        if epoch is None or (known is not None and known.epoch >= epoch):
            if self._list_running():  # somebody else has held the lease: what we started is of an earlier epoch
                self._end_all()
                return False
            epoch = 1 if known is None else known.epoch + 1
        restarted = 0 if known is None else known.restarted
        record = SupervisorRecord(self.topology, self.target.alias, epoch, self.holder, restarted=restarted)
        bridged = known is not None and self._is_bridge_due(known)
        self._write(replace(record, bridged=bridged))
        self._desired.catch_up()
        written = self._supervisor
        if written is None or (written.epoch, written.holder) != (epoch, self.holder):
            return False
        self.epoch, self._claimed, self._renews, self._bridged = epoch, time.monotonic(), False, bridged
        self.say(f"supervising the fleet of {self.topology} into {self.target.alias}, epoch {epoch}")
        return True

    def _is_bridge_due(self, known: SupervisorRecord) -> bool:
        """Whether the epoch after this one begins with a bridge: our driver has died, or another supervisor's had, and
        that supervisor ended before the next driver had its workers."""
        return (known.bridged and not known.ready) or (self._bridged and self._is_ours(known))

    def _is_ours(self, record: SupervisorRecord) -> bool:
        return record.epoch == self.epoch and record.holder == self.holder

    def _has_host(self, record: FleetRecord) -> bool:
        """The host of the record's engine; another engine's workers end first."""
        if self._host is not None and self._host.engine == record.engine:
            return True
        if self._list_running():
            self._end_all()
            return False
        self._host = self.make_host(record.engine)
        self._places.clear()
        return self._host.engine == record.engine

    def _observe(self) -> None:
        """Take note of names and ends."""
        now = time.monotonic()
        for number, seen in ({} if self._host is None else self._host.observe()).items():
            place = self._places[number]
            place.waits = seen.waits
            if seen.waits or seen.name not in ("", place.name):
                place.name, place.missing_since = seen.name, None
            if seen.ended is None:
                continue
            lived, asked = now - place.started, place.ending
            place.running = place.ending = False
            self._members_due = 0.0
            if asked or not seen.failed:
                del self._places[number]
                self.say(f"worker {number} ended{' as it was told' if asked else f': {seen.ended}'}")
                continue
            place.quick_deaths = place.quick_deaths + 1 if lived < QUICK_DEATH_S else 1
            pause = compute_restart_pause(place.quick_deaths)
            place.due = now + pause
            self._trouble = f"worker {number} ended after {lived:.0f} s {seen.ended}"
            self.say(f"{self._trouble}; it is started again in {pause:g} s, the others go on")
            if self._host is not None and self._host.hosts_whole_fleet:
                self._begin_bridge()
        self._observe_bridge()

    def _begin_bridge(self) -> None:
        """The program that hosts the fleet has died, and its workers with it. Until it has others, which takes Spark
        some time, processes beside us copy. What starts next has a new epoch: when its workers are ready, ours end."""
        self._renews = True
        known = self._supervisor
        if known is not None and known.ready and self._is_ours(known):
            self._bridged = True

    def _keep_bridge(self, record: FleetRecord) -> None:
        """Start those that copy meanwhile, and start them again when they die, also after several drivers."""
        known, now = self._supervisor, time.monotonic()
        assert self.epoch is not None
        if not self._bridged:
            return
        if known is not None and known.epoch == self.epoch and known.ready:  # they see that, too, and end
            self._bridged = False
            return
        if self._bridge is None:
            self._bridge = self.make_host("process")
        wanted = min(record.wanted, _MOST_BRIDGING)
        self._end_bridging(wanted)
        started = 0
        for number in range(wanted):
            before = self._bridging.get(number)
            if before is not None and (before.running or before.due > now):
                continue
            self._bridge.start(number, self.epoch - 1)  # what is of an earlier epoch ends when ours is ready
            self._bridging[number] = _Place(0, now, quick_deaths=0 if before is None else before.quick_deaths)
            started += 1
        if started:
            self.say(f"{len(self._list_bridging())} workers run here until the fleet is back")

    def _observe_bridge(self) -> None:
        now = time.monotonic()
        for number, seen in ({} if self._bridge is None else self._bridge.observe()).items():
            if seen.ended is None:
                continue
            place = self._bridging[number]
            place.running = place.ending = False
            place.quick_deaths = place.quick_deaths + 1 if now - place.started < QUICK_DEATH_S else 1
            place.due = now + compute_restart_pause(place.quick_deaths)
            self.say(f"worker {number} that ran here ended {seen.ended}")

    def _end_bridging(self, kept: int) -> None:
        """All but so many."""
        for number, place in self._bridging.items():
            if number >= kept and place.running and not place.ending:
                assert self._bridge is not None
                place.ending = True
                self._bridge.end(number)

    def _list_bridging(self) -> list[int]:
        return [number for number, place in self._bridging.items() if place.running]

    def _gather_facts(self, record: FleetRecord) -> FleetFacts:
        assert self._host is not None
        now, whole = time.monotonic(), self._host.hosts_whole_fleet
        self._ask_members(now)
        workers = tuple(
            HostedWorker(
                number,
                place.restarts,
                serving=whole or f"{WORKER_CLIENT_PREFIX}{place.name}" in self._members,
                ending=place.ending,
                waits=place.waits,
            )
            for number, place in sorted(self._places.items())
            if place.running
        )
        resting = frozenset(n for n, place in self._places.items() if not place.running and place.due > now)
        if whole:
            return FleetFacts(min(record.wanted, 1), 0, workers, resting)
        rolling = any(each.restarts < record.restarts for each in workers)
        if not rolling:
            self._restart.reset()
        served = rolling and self._restart.are_all_served(self._desired.flows, self._list_client_ids())
        return FleetFacts(record.wanted, record.restarts, workers, resting, served, self._host.surge)

    def _ask_members(self, now: float) -> None:
        assert self._host is not None
        if self._host.hosts_whole_fleet or now < self._members_due:
            return
        try:
            members = read_fleet_members(self._admin, self.topology)
        except ClusterError:  # nobody could tell who is missing
            for each in self._places.values():
                each.missing_since = None
            raise
        if members is None:
            self._members, self._members_due = frozenset(), now + _MEMBERS_SOON_S
            return
        self._members = frozenset(members)
        for each in self._places.values():
            missing = each.running and each.name != "" and f"{WORKER_CLIENT_PREFIX}{each.name}" not in self._members
            each.missing_since = (each.missing_since or now) if missing else None
        names = self._list_client_ids()
        self._members_due = now + (_MEMBERS_S if names <= self._members else _MEMBERS_SOON_S)

    def _list_client_ids(self) -> set[str]:
        """Of the workers that run. One that has just begun has no name yet, and so none that anybody finds."""
        running = (each for each in self._places.values() if each.running and not each.waits)
        return {f"{WORKER_CLIENT_PREFIX}{each.name}" for each in running}

    def _start(self, number: int, restarts: int) -> None:
        assert self._host is not None
        assert self.epoch is not None
        before = self._places.get(number)
        quick_deaths = 0 if before is None else before.quick_deaths
        self._host.start(number, self.epoch)
        self._places[number] = _Place(restarts, time.monotonic(), quick_deaths=quick_deaths)
        self._members_due = 0.0
        log.info("worker started", extra={"place": number, "epoch": self.epoch})

    def _end(self, number: int) -> None:
        assert self._host is not None
        place = self._places[number]
        place.ending, place.told = True, time.monotonic()
        self._host.end(number)
        log.info("worker told to end", extra={"place": number})

    def _end_stuck(self) -> None:
        """Those that do not end as they were told are killed; those that do not work are told to end."""
        assert self._host is not None
        now = time.monotonic()
        for number, place in self._places.items():
            if not place.running:
                continue
            if place.ending and now - place.told > _END_AT_LATEST_S:
                place.told = now
                self._trouble = f"worker {number} did not end within {_END_AT_LATEST_S:.0f} s; it is killed"
                self.say(self._trouble)
                self._host.kill(number)
            elif not place.ending and place.missing_since is not None and now - place.missing_since > _MISSING_S:
                self._trouble = f"worker {number} was no member of the group for {_MISSING_S:.0f} s; it is replaced"
                self.say(self._trouble)
                self._end(number)

    def _end_all(self) -> None:
        for number, place in self._places.items():
            if place.running and not place.ending:
                self._end(number)

    def _list_running(self) -> list[int]:
        return [number for number, place in self._places.items() if place.running]

    def _report(self, record: FleetRecord, facts: FleetFacts) -> None:
        """Write down what has changed of what others should know."""
        assert self._host is not None
        known, now = self._supervisor, time.monotonic()
        if known is None or known.epoch != self.epoch or now - self._noted < _NOTE_S:
            return
        if self._host.hosts_whole_fleet:  # it writes the rest
            if self._trouble and self._trouble != known.note:
                self._write(replace(known, note=self._trouble))
                self._trouble = ""
            return
        settled = is_at_size(facts)
        if settled:
            self._trouble = ""
        ready = known.ready or settled or self._is_late_ready(facts, now - self._claimed, bridged=known.bridged)
        restarted = known.restarted if any(w.restarts < record.restarts for w in facts.workers) else record.restarts
        fresh = sum(each.restarts >= record.restarts and each.serving for each in facts.workers)
        going_on = f"restarting: {fresh} of {record.wanted} workers are new" if restarted < record.restarts else ""
        awaited = self._restart.describe_awaited()
        if going_on and awaited:
            going_on += f"; waiting until {awaited} is served"
        wanted = replace(known, ready=ready, restarted=restarted, note=self._trouble or going_on or self._host.note)
        if wanted != known:
            self._write(wanted)

    def _is_late_ready(self, facts: FleetFacts, waited_s: float, *, bridged: bool) -> bool:
        """Whether workers of earlier epochs end although ours are not at their number: not before some of ours serve,
        or before nothing but a free core is missing, which those before us may have (a full Spark cluster). Those that
        bridge a driver's death have no core."""
        idle = [self._places[each.place] for each in facts.workers if not each.serving]
        no_core = not facts.surge and not self._trouble and all(each.running for each in self._places.values())
        if not bridged and no_core and idle and all(each.name == "" for each in idle):
            return waited_s > _NO_CORE_S
        return waited_s > _READY_AT_LATEST_S and any(each.serving and not each.ending for each in facts.workers)

    def _write(self, record: SupervisorRecord) -> None:
        self._noted = time.monotonic()
        write_supervisor(self._writer, replace(record, at_ms=time.time_ns() // 1_000_000))

    def _complain(self, text: str) -> None:
        if text != self._note:
            self.say(text)
        self._note = text
