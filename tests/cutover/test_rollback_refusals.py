"""A rollback that is refused, or taken back: applications stay where they are, and so do their offsets (C22)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.cutover.fake_log import Crash, FakeLog
from tests.cutover.moved import PLACE, QUICK, assert_away, moved, straggle_there, where
from tests.cutover.spoils import failing, stranger, upon, verdict
from tests.cutover.world import GROUP, PRODUCER, a_migration
from tests.cutover.world_back import BackWorld, a_rollback, back_plan
from watershed.cutover.actions import (
    CommitOffsets,
    ReadCluster,
    ReadGroup,
    ReadLogs,
    ReadRecords,
    StartApplication,
    StopApplication,
)
from watershed.cutover.errors import NothingToRollBack, NotSupported, PlanChanged
from watershed.topology.migration_waves import RollbackPolicy

REFUSALS: list[tuple[str, str, Callable[[BackWorld], object], str]] = [
    ("preflight_back", "refused", lambda w: setattr(w, "reverse_state", "missing"), "would strand"),
    ("preflight_back", "refused", failing(ReadCluster, "preflight_back", "cluster cloud does not answer"),
     "cloud does not answer"),
    ("preflight_back", "refused", lambda w: w.nobody.add(PRODUCER), "nobody can be asked here"),
    ("preflight_back", "refused", lambda w: w.offsets["source"][GROUP].update({PLACE: 1}), "not ours to overwrite"),
    ("preflight_back", "refused", lambda w: w.strangers.update(source=1), "is alive at onprem"),
    ("preflight_back", "refused", lambda w: setattr(w, "wall", w.wall + 2 * 86_400), "was open for 24 h"),
    ("preflight_back", "refused", lambda w: w.stranger_writes(PLACE), "by somebody who did not move"),
    ("drain", "rolled_back", upon(StopApplication, lambda w: (setattr(w, "carrying", False), straggle_there(w))),
     "copied nothing"),
    ("history_proof", "refused", verdict("different", 2), "2 unproven"),
    ("fence_producers", "rolled_back", failing(StopApplication, "fence_producers"), "no"),
    ("standstill", "rolled_back", upon(ReadLogs, straggle_there, nth=9,
                                       step="standstill"), "straggler"),
    ("drain", "rolled_back", upon(ReadLogs, straggle_there, step="drain"),
     "straggler"),
    ("tail_proof", "rolled_back", upon(ReadLogs, verdict("different", 3), step="drain"), "3 unproven"),
    ("translate_back", "rolled_back", upon(ReadGroup, stranger("target"), step="translate_back"), "alive at cloud"),
    ("commit_back", "rolled_back", upon(ReadGroup, stranger("source"), step="commit_back"), "never reset"),
    ("commit_back", "rolled_back", failing(CommitOffsets, "commit_back"), "no"),
    ("landing_test", "rolled_back", failing(ReadRecords, "landing_test"), "no"),
    ("start_consumers", "rolled_back", failing(StartApplication, "start_consumers"), "no"),
    ("point_of_no_return", "rolled_back",
     upon(ReadLogs, straggle_there, step="point_of_no_return"), "straggler"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "state", "spoil", "words"), REFUSALS)
def test_a_refusal_leaves_applications_where_they_are(
    step: str, state: str, spoil: Callable[[BackWorld], object], words: str
) -> None:
    log = FakeLog()
    world = moved(log)
    found = dict(world.offsets["source"][GROUP])
    spoil(world)
    result = a_rollback(world, log).run()
    assert (result.step, result.state) == (step, state), result
    assert words in result.reason
    world.hook, world.verdict = lambda _action: None, None
    world.strangers = {"source": 0, "target": 0}
    if step != "preflight_back":
        assert world.offsets["source"][GROUP] == found
    assert where(world) == {GROUP: ("target", True), PRODUCER: ("target", True)}


def test_nothing_to_roll_back() -> None:
    log = FakeLog()
    with pytest.raises(NothingToRollBack, match="nothing to be rolled back"):
        a_rollback(BackWorld(), log)
    world = BackWorld()
    log.crash_at = 20
    with pytest.raises(Crash):
        a_migration(world, log, plan=back_plan(), policy=QUICK).run()
    with pytest.raises(NothingToRollBack, match="topology migrate --abandon"):
        a_rollback(world, log)


def test_a_blind_switch_back_is_refused_and_counts_what_it_would_strand() -> None:
    log = FakeLog()
    world = moved(log)
    ends = {place: len(each) for place, each in world.logs["target"].items()}
    stranded = sum(ends[place] - begin for place, begin in world.begins.items())
    result = a_rollback(world, log, plan=back_plan(rollback=RollbackPolicy(none_because="sold"))).run()
    assert_away(world, result, "refused")
    assert f"the file says `none: sold`): to switch back now would strand {stranded} records" in result.reason


def test_a_file_that_moves_something_else_by_now_is_refused() -> None:
    log = FakeLog()
    world = moved(log)
    with pytest.raises(PlanChanged, match="restore the file"):
        a_rollback(world, log, plan=back_plan(producers=("other",)))


def test_a_flow_that_does_not_lead_back_is_refused() -> None:
    log = FakeLog()
    world = moved(log)
    with pytest.raises(NotSupported, match="not from cloud back to onprem"):
        a_rollback(world, log, plan=back_plan(rollback=RollbackPolicy(reverse="onprem-to-cloud")))
    plan = back_plan()
    flows = (plan.flows[0], replace(plan.flows[1], naming=plan.flows[0].naming))
    with pytest.raises(NotSupported, match=r"does not carry dc\.clicks, dc\.orders back as clicks, orders"):
        a_rollback(world, log, plan=replace(plan, flows=flows))
