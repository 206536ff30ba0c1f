"""The world of a rehearsal: that of a migration, with copies that are made and removed beside."""

from __future__ import annotations

from collections.abc import Callable

from clusters.errors import ClusterError, RequestRefused, Unreachable
from cutover.actions import Action, Json
from cutover.drill.actions import (
    CopiesMade,
    CopiesRemoved,
    CountRecords,
    LookAtOriginals,
    MakeCopies,
    OriginalsSeen,
    RecordsCounted,
    RemoveCopies,
)
from cutover.drill.applications import DrillApplications
from cutover.drill.looking import Drill, look
from cutover.drill.making import make
from cutover.drill.removing import remove
from cutover.live.applications import ApplicationFailed
from cutover.live.world import LiveWorld
from cutover.observations import Failed, Observation
from replicator.errors import ReplicatorError
from topology.plan import PlanFlow


class DrillWorld:
    """`clock` gives seconds that only grow. Both ways share the applications."""

    def __init__(
        self, drill: Drill, flow: PlanFlow, applications: DrillApplications, clock: Callable[[], float]
    ) -> None:
        self._drill, self._applications, self._clock = drill, applications, clock
        self._live = LiveWorld(drill.drill, flow, drill.settings, applications, clock)

    def answer(self, action: Action) -> Observation:
        if not isinstance(action, LookAtOriginals | MakeCopies | CountRecords | RemoveCopies):
            return self._live.answer(action)
        try:
            return self._answered(action)
        except ClusterError as error:
            again = isinstance(error, Unreachable | RequestRefused) and not isinstance(action, MakeCopies)
            return Failed(self._now(), str(error), again)  # copies that are filled twice would hold records twice
        except (ReplicatorError, ApplicationFailed) as error:
            return Failed(self._now(), str(error), transient=False)

    def _answered(self, action: LookAtOriginals | MakeCopies | CountRecords | RemoveCopies) -> Observation:
        match action:
            case LookAtOriginals():
                found = look(self._drill)
                return OriginalsSeen(self._now(), found.problems, found.lacking, found.what)
            case MakeCopies(what):
                return self._made(what)
            case CountRecords():
                self._applications.settle()
                counts = self._applications.tally.counts(self._applications.groups)
                return RecordsCounted(self._now(), counts)
            case RemoveCopies(what):
                self._applications.end()
                return CopiesRemoved(self._now(), tuple(remove(self._drill.settings, what)))

    def _made(self, what: Json) -> CopiesMade:
        records, keys = make(self._drill, what, self._applications.tally)
        self._applications.begin(what["source"], keys)
        return CopiesMade(self._now(), records)

    def _now(self) -> int:
        return int(self._clock() * 1000)
