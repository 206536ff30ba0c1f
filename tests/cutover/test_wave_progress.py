"""What metrics tell of a wave and its proofs, from the journals of runs as they really are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.cutover.fake_log import FakeLog
from tests.cutover.spoils import verdict
from tests.cutover.world import POLICY, World, a_migration
from watershed.cutover.journal.hash_chain import TAKEOVER_STEP, JournalEntry
from watershed.cutover.overdue_runs import LIMIT_KEY, is_overdue
from watershed.cutover.proof_standing import ProofStanding, find_journal_proofs, pick_newest_proofs
from watershed.cutover.wave_progress import WaveProgress, list_wave_progress

FLOW = "onprem-to-cloud"
NOW_MS = 0  # long before any step could be overdue


def journaled(world: World, **changes: Any) -> Sequence[JournalEntry]:
    migration = a_migration(world, FakeLog(), **changes)
    migration.run()
    return migration.journal.chain.entries


def states(entries: Sequence[JournalEntry]) -> list[str]:
    """The state at each entry, without repetitions."""
    found = [
        each.state for number in range(1, len(entries) + 1) for each in list_wave_progress(entries[:number], NOW_MS)
    ]
    return list(dict.fromkeys(found))


def test_a_run_that_is_done_waits_for_a_person_on_the_way() -> None:
    entries = journaled(World())
    [last] = list_wave_progress(entries, NOW_MS)
    assert (last.wave, last.state) == ("all", "done")
    assert states(entries) == ["under_way", "done", "waiting"]
    approval = next(number for number, each in enumerate(entries) if each.step == "approval")
    assert list_wave_progress(entries[: approval + 1], NOW_MS) == [WaveProgress("all", "approval", "waiting")]
    assert list_wave_progress([], NOW_MS) == []


def test_its_proofs_are_of_the_flow_and_the_newest_counts() -> None:
    entries = journaled(World())
    proofs = list(find_journal_proofs(entries))
    assert [(each.flow, each.has_passed, each.unproven) for each in proofs] == [(FLOW, True, 0)] * 2
    assert pick_newest_proofs(proofs) == {FLOW: proofs[-1]}


def test_a_proof_that_failed_and_a_step_that_was_refused_are_told() -> None:
    world = World()
    verdict("different", 3)(world)
    entries = journaled(world)
    assert "step_refused" in states(entries)
    assert list_wave_progress(entries, NOW_MS)[0].state in ("refused", "rolled_back"), "once the run has ended"
    [proof] = pick_newest_proofs(find_journal_proofs(entries)).values()
    assert isinstance(proof, ProofStanding)
    assert (proof.has_passed, proof.unproven) == (False, 3)


def test_a_rehearsal_is_no_run_of_its_wave() -> None:
    entries = journaled(World())
    drill = [replace(entries[0], run="drill.2", observation={"kind": "drill"}), replace(entries[1], run="drill.2")]
    assert list_wave_progress([*entries, *drill], NOW_MS) == list_wave_progress(entries, NOW_MS)


def test_a_run_of_several_waves_is_the_newest_of_each() -> None:
    earlier = [replace(each, wave="a") for each in journaled(World())]
    together = [replace(each, run="failover.2", wave="a+b") for each in earlier]
    assert list_wave_progress([*earlier, *together[:-1]], NOW_MS) == [
        WaveProgress("a", together[-2].step, "done"),
        WaveProgress("b", together[-2].step, "done"),
    ]


def test_a_run_that_stopped_unfinished_is_told_until_it_goes_on() -> None:
    entries = journaled(World())
    number = next(number for number, each in enumerate(entries) if each.step == "approval")
    ended = replace(entries[number], kind="outcome", deed="stopped", observation={"state": "stopped"})
    assert list_wave_progress([*entries[: number + 1], ended], NOW_MS)[0].state == "stopped"
    again = replace(entries[number], kind="intent", step=TAKEOVER_STEP)
    assert list_wave_progress([*entries[: number + 1], ended, again], NOW_MS)[0].state == "waiting"


def test_a_run_whose_process_died_in_a_step_is_overdue() -> None:
    """The limit is the step's own, of the entry with which it begins; each later entry counts anew."""
    entries = journaled(World())
    begun = next(n for n, each in enumerate(entries) if each.step == "stop_consumers" and each.kind == "intent")
    limit = entries[begun].observation[LIMIT_KEY]
    assert limit > 0
    latest = entries[begun + 1].at_ms + limit + 300_000
    for now_ms, state in ((latest, "under_way"), (latest + 1, "overdue")):
        [found] = list_wave_progress(entries[: begun + 2], now_ms)
        assert (found.step, found.state) == ("stop_consumers", state)
    done = next(n for n, each in enumerate(entries) if each.step == "stop_consumers" and ends(each))
    assert list_wave_progress(entries[: done + 1], latest + 10**9)[0].state == "done"
    assert list_wave_progress(entries, latest + 10**9)[0].state == "done"


def test_what_has_no_limit_is_overdue_after_hours_and_a_person_never() -> None:
    entries = journaled(World())
    proof = next(n for n, each in enumerate(entries) if each.step == "history_proof")
    hours = 6 * 3_600_000
    assert list_wave_progress(entries[: proof + 1], entries[proof].at_ms + hours)[0].state == "under_way"
    assert list_wave_progress(entries[: proof + 1], entries[proof].at_ms + hours + 1)[0].state == "overdue"
    approval = next(n for n, each in enumerate(entries) if each.step == "approval")
    assert list_wave_progress(entries[: approval + 1], 10**15)[0].state == "waiting"
    before = replace(entries[proof], observation={"undo": False})  # as v0.1.0 wrote it
    assert list_wave_progress([*entries[:proof], before], 10**15)[0].state == "under_way"


def test_a_run_that_ended_unfinished_has_no_process_that_died() -> None:
    entries = journaled(World())
    begun = next(n for n, each in enumerate(entries) if each.step == "stop_consumers" and each.kind == "intent")
    assert is_overdue(entries[: begun + 1], 10**15)
    for state in ("stopped", "rollback_incomplete"):
        ended = replace(entries[begun], kind="outcome", deed=state, observation={"state": state})
        assert not is_overdue([*entries[: begun + 1], ended], 10**15)
        again = [*entries[: begun + 1], ended, taken_over(entries[begun]), entries[begun]]
        assert is_overdue(again, 10**15), "it went on, and its process died"


def test_a_step_that_asks_a_person_on_its_way_is_never_overdue() -> None:
    """`gates.after` has an approval: the soak asks, however long its own limit is."""
    for persons, state in (((), "overdue"), (("ops",), "waiting")):
        entries = journaled(World(), policy=replace(POLICY, soak_approvals=persons))
        begun = next(n for n, each in enumerate(entries) if each.step == "soak")
        for upto in (entries[: begun + 1], [*entries[: begun + 1], taken_over(entries[begun])]):
            is_dead = state == "overdue" and upto[-1].step == "soak"
            assert is_overdue(upto, 10**15) == is_dead
        assert list_wave_progress(entries[: begun + 1], 10**15) == [WaveProgress("all", "soak", state)]
    assert list_wave_progress([*entries[: begun + 1], taken_over(entries[begun])], 10**15)[0].state == "waiting"


def taken_over(entry: JournalEntry) -> JournalEntry:
    return replace(entry, step=TAKEOVER_STEP, observation={})


def ends(entry: JournalEntry) -> bool:
    return entry.kind == "outcome" and not entry.deed
