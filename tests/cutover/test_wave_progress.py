"""What metrics tell of a wave and its proofs, from the journals of runs as they really are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.cutover.fake_log import FakeLog
from tests.cutover.spoils import verdict
from tests.cutover.world import World, a_migration
from watershed.cutover.journal.hash_chain import TAKEOVER_STEP, JournalEntry
from watershed.cutover.proof_standing import ProofStanding, find_journal_proofs, pick_newest_proofs
from watershed.cutover.wave_progress import WaveProgress, list_wave_progress

FLOW = "onprem-to-cloud"


def journaled(world: World) -> Sequence[JournalEntry]:
    migration = a_migration(world, FakeLog())
    migration.run()
    return migration.journal.chain.entries


def states(entries: Sequence[JournalEntry]) -> list[str]:
    """The state at each entry, without repetitions."""
    found = [each.state for number in range(1, len(entries) + 1) for each in list_wave_progress(entries[:number])]
    return list(dict.fromkeys(found))


def test_a_run_that_is_done_waits_for_a_person_on_the_way() -> None:
    entries = journaled(World())
    [last] = list_wave_progress(entries)
    assert (last.wave, last.state) == ("all", "done")
    assert states(entries) == ["under_way", "done", "waiting"]
    approval = next(number for number, each in enumerate(entries) if each.step == "approval")
    assert list_wave_progress(entries[: approval + 1]) == [WaveProgress("all", "approval", "waiting")]
    assert list_wave_progress([]) == []


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
    assert list_wave_progress(entries)[0].state in ("refused", "rolled_back"), "once the run has ended"
    [proof] = pick_newest_proofs(find_journal_proofs(entries)).values()
    assert isinstance(proof, ProofStanding)
    assert (proof.has_passed, proof.unproven) == (False, 3)


def test_a_rehearsal_is_no_run_of_its_wave() -> None:
    entries = journaled(World())
    drill = [replace(entries[0], run="drill.2", observation={"kind": "drill"}), replace(entries[1], run="drill.2")]
    assert list_wave_progress([*entries, *drill]) == list_wave_progress(entries)


def test_a_run_of_several_waves_is_the_newest_of_each() -> None:
    earlier = [replace(each, wave="a") for each in journaled(World())]
    together = [replace(each, run="failover.2", wave="a+b") for each in earlier]
    assert list_wave_progress([*earlier, *together[:-1]]) == [
        WaveProgress("a", together[-2].step, "done"),
        WaveProgress("b", together[-2].step, "done"),
    ]


def test_a_run_that_stopped_unfinished_is_told_until_it_goes_on() -> None:
    entries = journaled(World())
    number = next(number for number, each in enumerate(entries) if each.step == "approval")
    ended = replace(entries[number], kind="outcome", deed="stopped", observation={"state": "stopped"})
    assert list_wave_progress([*entries[: number + 1], ended])[0].state == "stopped"
    again = replace(entries[number], kind="intent", step=TAKEOVER_STEP)
    assert list_wave_progress([*entries[: number + 1], ended, again])[0].state == "waiting"
