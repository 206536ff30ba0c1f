"""The steps of a rehearsal that no migration has: copies are made first, and go last."""

from __future__ import annotations

from cutover.actions import Json, Recall, Say
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
from cutover.errors import Refused
from cutover.ground import Ground
from cutover.observations import Recalled
from cutover.steps import Step
from cutover.waiting import Asking, ask

LOOK = Step(
    "look_at_originals",
    "the wave's topics can be read, all rights are there, and no copy is in the way",
    "watershed",
    None,
)
MAKE = Step(
    "make_copies",
    "copies of the topics with their newest records, flows over them, producers and consumers of the rehearsal's own",
    "watershed",
    "they are stopped and removed",
)
COUNT = Step("count_records", "producers stop, consumers read everything, and it is counted", "watershed", None)
REMOVE = Step("remove_copies", "the copies, their flows and groups are removed", "watershed", None)


def look_at_originals(ground: Ground, note: Json) -> Asking[None]:
    seen = yield from ask(LookAtOriginals(), OriginalsSeen, ground.policy)
    note.update(lacking=list(seen.lacking), what=seen.what)
    if seen.problems:
        raise Refused("; ".join(seen.problems), {"problems": list(seen.problems)})
    if seen.lacking:
        yield Say("the migration itself will lack: " + "; ".join(seen.lacking))


def make_copies(ground: Ground, note: Json) -> Asking[None]:
    what = ground.outcomes["look_at_originals"]["what"]
    note["records"] = (yield from ask(MakeCopies(what), CopiesMade, ground.policy)).records


def count_records(ground: Ground, note: Json) -> Asking[None]:
    note.update((yield from ask(CountRecords(), RecordsCounted, ground.policy)).counts)


def remove_copies(ground: Ground, note: Json) -> Asking[None]:
    """Only what this run has journaled that it would make."""
    left: list[str] = []
    for deed in (yield from ask(Recall("MakeCopies"), Recalled, ground.policy)).deeds:
        left += (yield from ask(RemoveCopies(deed["what"]), CopiesRemoved, ground.policy)).left
    note["left"] = left
