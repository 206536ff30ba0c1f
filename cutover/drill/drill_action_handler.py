"""Action handler of a rehearsal: the one of a migration, which also makes and removes the copies."""

from __future__ import annotations

from collections.abc import Callable

from watershed.clusters.errors import ClusterError, RequestRefused, Unreachable
from watershed.cutover.actions import Action, JsonObject
from watershed.cutover.drill.copy_actions import (
    CopiesMade,
    CopiesRemoved,
    CountRecords,
    MakeCopies,
    ObservedOriginals,
    ReadOriginals,
    RecordsCounted,
    RemoveCopies,
)
from watershed.cutover.drill.copy_creation import create_copies
from watershed.cutover.drill.copy_removal import delete_copies
from watershed.cutover.drill.drill_applications import DrillApplications
from watershed.cutover.drill.drill_preflight import Drill, inspect_originals
from watershed.cutover.live.action_handler import LiveActionHandler
from watershed.cutover.live.applications.application_adapter import ApplicationControlFailed
from watershed.cutover.observations import ActionFailed, Observation
from watershed.replicator.errors import ReplicatorError
from watershed.topology.plan import PlanFlow


class DrillActionHandler:
    """`clock` gives seconds that only grow. Both ways share the applications."""

    def __init__(
        self, drill: Drill, flow: PlanFlow, applications: DrillApplications, clock: Callable[[], float]
    ) -> None:
        self._drill, self._applications, self._clock = drill, applications, clock
        self._live = LiveActionHandler(drill.drill, flow, drill.settings, applications, clock)

    def answer(self, action: Action) -> Observation:
        """Answers what only a drill asks; everything else goes to the live handler."""
        if not isinstance(action, ReadOriginals | MakeCopies | CountRecords | RemoveCopies):
            return self._live.answer(action)
        try:
            return self._answered(action)
        except ClusterError as error:
            again = isinstance(error, Unreachable | RequestRefused) and not isinstance(action, MakeCopies)
            return ActionFailed(self._now(), str(error), again)  # copies that are filled twice would hold records twice
        except (ReplicatorError, ApplicationControlFailed) as error:
            return ActionFailed(self._now(), str(error), transient=False)

    def _answered(self, action: ReadOriginals | MakeCopies | CountRecords | RemoveCopies) -> Observation:
        match action:
            case ReadOriginals():
                found = inspect_originals(self._drill)
                return ObservedOriginals(self._now(), found.problems, found.lacking, found.what)
            case MakeCopies(what):
                return self._made(what)
            case CountRecords():
                self._applications.settle()
                counts = self._applications.tally.counts(self._applications.groups)
                return RecordsCounted(self._now(), counts)
            case RemoveCopies(what):
                self._applications.end()
                return CopiesRemoved(self._now(), tuple(delete_copies(self._drill.settings, what)))

    def _made(self, what: JsonObject) -> CopiesMade:
        records, keys = create_copies(self._drill, what, self._applications.tally)
        self._applications.begin(what["source"], keys)
        return CopiesMade(self._now(), records)

    def _now(self) -> int:
        return int(self._clock() * 1000)
