"""The steps of a rehearsal that no migration has: copies are made first, and go last."""

from __future__ import annotations

from watershed.cutover.actions import JsonObject, RecallDeeds, ReportMessage
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
from watershed.cutover.errors import Refused
from watershed.cutover.migration_step_order import Step
from watershed.cutover.observations import RecalledDeeds
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext

READ_ORIGINALS_STEP = Step(
    "look_at_originals",
    "the wave's topics can be read, all rights are there, and no copy is in the way",
    "watershed",
    None,
)
MAKE_COPIES_STEP = Step(
    "make_copies",
    "copies of the topics with their newest records, flows over them, producers and consumers of the rehearsal's own",
    "watershed",
    "they are stopped and removed",
)
COUNT_RECORDS_STEP = Step(
    "count_records", "producers stop, consumers read everything, and it is counted", "watershed", None
)
REMOVE_COPIES_STEP = Step("remove_copies", "the copies, their flows and groups are removed", "watershed", None)


def read_originals(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `look_at_originals`: refuses a drill that cannot be made, and warns of rights that the migration will
    lack."""
    seen = yield from perform_action(ReadOriginals(), ObservedOriginals, context.policy)
    outcome.update(lacking=list(seen.lacking), what=seen.what)
    if seen.problems:
        raise Refused("; ".join(seen.problems), {"problems": list(seen.problems)})
    if seen.lacking:
        yield ReportMessage("the migration itself will lack: " + "; ".join(seen.lacking))


def make_copies(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `make_copies`: records per topic that the copies hold."""
    what = context.outcomes["look_at_originals"]["what"]
    outcome["records"] = (yield from perform_action(MakeCopies(what), CopiesMade, context.policy)).records


def count_records(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `count_records`: stops the drill's producers, waits for its consumers, compares written with read."""
    outcome.update((yield from perform_action(CountRecords(), RecordsCounted, context.policy)).counts)


def remove_copies(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Only what this run has journaled that it would make."""
    left: list[str] = []
    for deed in (yield from perform_action(RecallDeeds("MakeCopies"), RecalledDeeds, context.policy)).deeds:
        left += (yield from perform_action(RemoveCopies(deed["what"]), CopiesRemoved, context.policy)).left
    outcome["left"] = left
