"""Where the newest run of each wave stands, from the journal: one line a wave, for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watershed.cutover.journal.hash_chain import RUN_STEP, TAKEOVER_STEP, JournalEntry, find_step_outcome
from watershed.cutover.overdue_runs import UNFINISHED_DEEDS, is_overdue, is_person_asked
from watershed.cutover.wave_states import WAVE_SEPARATOR, list_wave_runs


@dataclass(frozen=True, slots=True)
class WaveProgress:
    """step: the newest of the run. state: under_way, overdue (under way for longer than the step may take, so its
    process is dead or hangs), waiting (for a person), done or step_refused; once the run has ended, how
    (`cutover.step_runner.RunState`)."""

    wave: str
    step: str
    state: str


def list_wave_progress(entries: Sequence[JournalEntry], now_ms: int) -> list[WaveProgress]:
    """By wave; of a wave that no run has touched there is none. A rehearsal is no run of its wave, and a failover that
    promotes several waves together is one of each. now_ms: since 1970."""
    waves = {name for entry in entries for name in entry.wave.split(WAVE_SEPARATOR) if name}
    newest = {wave: runs[-1] for wave in sorted(waves) if (runs := list_wave_runs(entries, wave))}
    return [_describe_run(wave, run, now_ms) for wave, run in newest.items()]


def _describe_run(wave: str, entries: Sequence[JournalEntry], now_ms: int) -> WaveProgress:
    last = entries[-1]
    steps = [entry.step for entry in entries if entry.step not in (RUN_STEP, TAKEOVER_STEP)]
    step = steps[-1] if steps else RUN_STEP
    if last.step == RUN_STEP and last.kind == "outcome":
        return WaveProgress(wave, step, str(last.observation.get("state") or "done"))
    if last.kind == "outcome" and last.deed in UNFINISHED_DEEDS:
        return WaveProgress(wave, step, last.deed)
    found = find_step_outcome(entries, step)
    if found is None:
        if is_person_asked(entries, step):
            return WaveProgress(wave, step, "waiting")
        return WaveProgress(wave, step, "overdue" if is_overdue(entries, now_ms) else "under_way")
    return WaveProgress(wave, step, "done" if found[1] is None else "step_refused")
