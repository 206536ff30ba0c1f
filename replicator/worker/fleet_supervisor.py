"""The supervisor of a fleet: one process that sees to it that the fleet is as its record says.

Whoever holds the fleet's lease (`replicator.worker.fleet_lease`) acts; others stand by. Workers of an earlier epoch go
on until those of the later one are ready, and then end by themselves. So a supervisor that dies, hangs or loses its way
interrupts no copying, and leaves no second fleet behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError
from watershed.clusters.fleet import FleetRecord, SupervisorRecord
from watershed.replicator.worker.fleet_decisions import FleetFacts, StartWorker, decide_fleet_actions, is_at_size
from watershed.replicator.worker.fleet_lease import FleetLease
from watershed.replicator.worker.rolling_restart import RollingRestart
from watershed.replicator.worker.transform_places import TransformPlaces
from watershed.replicator.worker.worker_host import WorkerHost
from watershed.replicator.worker.worker_places import EndedWorker, WorkerPlaces

_READY_AT_LATEST_S: Final = 60.0  # workers of an earlier epoch end then, if some of ours serve
_NO_CORE_S: Final = 10.0  # the same where ours only wait for the cores that the earlier ones have
_MOST_BRIDGING: Final = 2  # workers beside a supervisor: it may be a small machine, and they copy everything
_END_S: Final = 40.0  # for all workers to hand over and end


@dataclass(slots=True)
class FleetSupervisor:
    """`step` is one round. Joins the lease when it is made, and gives it up with `close`."""

    lease: FleetLease
    make_host: Callable[[Literal["spark", "process"]], WorkerHost]
    say: Callable[[str], None] = lambda _text: None
    transforms: TransformPlaces | None = None  # where the worker of flows with `transform` runs; None: elsewhere
    _places: WorkerPlaces | None = None
    _bridge: WorkerPlaces | None = None  # workers that copy while the program that hosts the fleet is started again
    _bridged: bool = False  # whether they are to be there
    _note: str = ""
    _trouble: str = ""
    _admin: Admin = field(init=False)
    _restart: RollingRestart = field(init=False)

    def __post_init__(self) -> None:
        self._admin = Admin(self.lease.target)
        self._admin.check_identity()
        self._restart = RollingRestart(self.lease.target, self.lease.topology, self._admin)
        self.lease.join()

    @property
    def is_empty(self) -> bool:
        """Whether none of its workers runs."""
        return self._places is None or not self._places.list_running()

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
        self.lease.follow()
        self._observe()
        if not self._may_act():
            return
        record = self.lease.fleet
        if record is None:
            fleet = f"{self.lease.topology} has no fleet into {self.lease.target.alias} yet"
            self._complain(f"waiting for `topology apply`: {fleet}")
            return
        self._keep_bridge(record)
        if self.transforms is not None:
            self.transforms.keep(
                wanted=record.wanted > 0 and self.lease.has_transforms,
                restarts=record.restarts,
                epoch=self._require_epoch(),
            )
        places = self._choose_places(record)
        if places is None:
            return
        for number, trouble in places.find_stuck().items():
            self._trouble = trouble
            self.say(trouble)
            places.end_stuck(number)
        facts = self._gather_facts(record, places)
        for action in decide_fleet_actions(facts):
            if isinstance(action, StartWorker):
                places.start(action.place, facts.restarts, self._require_epoch())
            else:
                places.end(action.place)
                self._restart.replaced = True
        self._report(record, facts, places)

    def end_workers(self) -> None:
        """Tell all workers to end, and wait for them while the lease is kept."""
        self._bridged = False
        hosted = [each for each in (self._places, self._bridge) if each is not None]
        for each in hosted:
            each.end_all()
        if self.transforms is not None:
            self.transforms.end()
        deadline = time.monotonic() + _END_S
        while not self._have_ended(hosted) and time.monotonic() < deadline:
            self.lease.keep()
            self._observe()

    def _have_ended(self, hosted: Sequence[WorkerPlaces]) -> bool:
        beside = self.transforms is None or self.transforms.is_empty
        return beside and not any(each.list_running() for each in hosted)

    def close(self) -> None:
        """Give the lease up, which another one may have at once."""
        self.lease.close()
        self._admin.close()

    def _may_act(self) -> bool:
        """Whether the lease is ours; begins an epoch when it has become ours. Raises ClusterError."""
        if not self.lease.is_held:
            return False
        if self.lease.has_epoch():
            return True
        if self.lease.is_epoch_taken and self._places is not None and not self.is_empty:
            self._places.end_all()  # somebody else has held the lease: what we started is of an earlier epoch
            return False
        bridged = self._is_bridge_due(self.lease.record)
        if not self.lease.begin_epoch(bridged=bridged):
            return False
        self._bridged = bridged
        fleet = f"the fleet of {self.lease.topology} into {self.lease.target.alias}"
        self.say(f"supervising {fleet}, epoch {self.lease.epoch}")
        return True

    def _require_epoch(self) -> int:
        assert self.lease.epoch is not None  # nothing is started before
        return self.lease.epoch

    def _choose_places(self, record: FleetRecord) -> WorkerPlaces | None:
        """Those on the host of the record's engine; None while another engine's workers end."""
        if self._places is not None and self._places.host.engine == record.engine:
            return self._places
        if self._places is not None and not self.is_empty:
            self._places.end_all()
            return None
        self._places = WorkerPlaces(self.make_host(record.engine))
        return self._places if self._places.host.engine == record.engine else None

    def _observe(self) -> None:
        """Take note of names and ends."""
        if self._places is not None:
            for end in self._places.observe():
                self._note_end(end, self._places)
        if self.transforms is not None:
            self.transforms.observe()
        if self._bridge is not None:
            for end in self._bridge.observe():  # it rests: it may know before us that the fleet is back
                self.say(f"worker {end.place} that ran here ended {end.ended}")

    def _note_end(self, end: EndedWorker, places: WorkerPlaces) -> None:
        if end.asked or not end.failed:
            places.forget(end.place)
            self.say(f"worker {end.place} ended{' as it was told' if end.asked else f': {end.ended}'}")
            return
        self._trouble = f"worker {end.place} ended after {end.lived_s:.0f} s {end.ended}"
        self.say(f"{self._trouble}; it is started again in {end.pause_s:g} s, the others go on")
        if places.host.hosts_whole_fleet:
            self._begin_bridge()

    def _begin_bridge(self) -> None:
        """The program that hosts the fleet has died, and its workers with it. Until it has others, which takes Spark
        some time, processes beside us copy. What starts next has a new epoch: when its workers are ready, ours end."""
        self.lease.renew()
        known = self.lease.record
        if known is not None and known.ready and self.lease.is_ours(known):
            self._bridged = True

    def _is_bridge_due(self, known: SupervisorRecord | None) -> bool:
        """Whether the epoch after this one begins with a bridge: our driver has died, or another supervisor's had, and
        that supervisor ended before the next driver had its workers."""
        if known is None:
            return False
        return (known.bridged and not known.ready) or (self._bridged and self.lease.is_ours(known))

    def _keep_bridge(self, record: FleetRecord) -> None:
        """Start those that copy meanwhile, and start them again when they die, also after several drivers."""
        known, epoch = self.lease.record, self._require_epoch()
        if not self._bridged:
            return
        if known is not None and known.epoch == epoch and known.ready:  # they see that, too, and end
            self._bridged = False
            return
        if self._bridge is None:
            self._bridge = WorkerPlaces(self.make_host("process"))
        wanted = min(record.wanted, _MOST_BRIDGING)
        self._bridge.end_all(kept=wanted)
        starting = [number for number in range(wanted) if self._bridge.can_start(number)]
        for number in starting:
            self._bridge.start(number, 0, epoch - 1)  # what is of an earlier epoch ends when ours is ready
        if starting:
            self.say(f"{len(self._bridge.list_running())} workers run here until the fleet is back")

    def _gather_facts(self, record: FleetRecord, places: WorkerPlaces) -> FleetFacts:
        places.ask_members(self._admin, self.lease.topology)
        workers, resting = places.list_workers(), places.list_resting()
        if places.host.hosts_whole_fleet:
            return FleetFacts(min(record.wanted, 1), 0, workers, resting)
        rolling = any(each.restarts < record.restarts for each in workers)
        if not rolling:
            self._restart.reset()
        served = rolling and self._restart.are_all_served(self.lease.flows, places.list_client_ids())
        return FleetFacts(record.wanted, record.restarts, workers, resting, served, places.host.surge)

    def _report(self, record: FleetRecord, facts: FleetFacts, places: WorkerPlaces) -> None:
        """Write down what has changed of what others should know."""
        known = self.lease.record
        if known is None or known.epoch != self.lease.epoch or not self.lease.can_change:
            return
        if places.host.hosts_whole_fleet:  # it writes the rest
            if self._trouble and self._trouble != known.note:
                self.lease.write(replace(known, note=self._trouble))
                self._trouble = ""
            return
        settled = is_at_size(facts)
        if settled:
            self._trouble = ""
        ready = known.ready or settled or self._is_late_ready(facts, places, bridged=known.bridged)
        restarted = known.restarted if any(w.restarts < record.restarts for w in facts.workers) else record.restarts
        fresh = sum(each.restarts >= record.restarts and each.serving for each in facts.workers)
        going_on = f"restarting: {fresh} of {record.wanted} workers are new" if restarted < record.restarts else ""
        awaited = self._restart.describe_awaited()
        if going_on and awaited:
            going_on += f"; waiting until {awaited} is served"
        wanted = replace(known, ready=ready, restarted=restarted, note=self._trouble or going_on or places.host.note)
        if wanted != known:
            self.lease.write(wanted)

    def _is_late_ready(self, facts: FleetFacts, places: WorkerPlaces, *, bridged: bool) -> bool:
        """Whether workers of earlier epochs end although ours are not at their number: not before some of ours serve,
        or before nothing but a free core is missing, which those before us may have (a full Spark cluster). Those that
        bridge a driver's death have no core."""
        waited = time.monotonic() - self.lease.since
        idle = [each.place for each in facts.workers if not each.serving]
        no_core = not facts.surge and not self._trouble and bool(idle) and places.is_only_room_missing(idle)
        if no_core and not bridged:
            return waited > _NO_CORE_S
        return waited > _READY_AT_LATEST_S and any(each.serving and not each.ending for each in facts.workers)

    def _complain(self, text: str) -> None:
        if text != self._note:
            self.say(text)
        self._note = text
