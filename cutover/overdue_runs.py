"""Whether the process of a run has died in the middle of a step: nobody writes that it lives, so its silence tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from watershed.cutover.journal.hash_chain import JournalEntry, find_step_outcome

LIMIT_KEY: Final = "bound_ms"  # where a step begins: how long it may take, 0 for no limit, None while a person is asked
_ASKING_STEPS: Final = ("approval", "accept_loss")  # also in entries of versions that wrote no limit, or 0 for them
UNFINISHED_DEEDS: Final = ("stopped", "rollback_incomplete")  # deeds with which a driver ends a run that is unfinished
_WAITING_STEPS: Final = ("window",)  # they wait for a time of the day, without an entry meanwhile
_OVERDUE_AFTER_MS: Final = 5 * 60_000  # behind its limit: a step looks once more at its end, and clocks differ
_UNLIMITED_MS: Final = 6 * 3_600_000  # of steps without a limit: a long proof, a hook that a person answers


def is_person_asked(entries: Sequence[JournalEntry], step: str) -> bool:
    """Whether the step ends when a person has answered. entries: of its run, oldest first."""
    own = [entry for entry in entries if entry.step == step and entry.kind == "intent" and not entry.deed]
    return step in _ASKING_STEPS or (bool(own) and own[-1].observation.get(LIMIT_KEY, 0) is None)


def is_overdue(entries: Sequence[JournalEntry], now_ms: int) -> bool:
    """Whether a run that is in a step has written nothing for longer than the step may take: its process is dead, or
    hangs. entries: of that run, oldest first. now_ms: since 1970.

    Each deed of a step is an entry, and a step ends with one within the limit that its first entry names; 5 minutes
    more are given. Steps without a limit have 6 hours; a window, and a person who is asked, as long as they take.
    Entries of earlier versions name no limit, and are never overdue. A run that ended without finishing its step has
    no process that could die.
    """
    last = entries[-1]
    if last.kind == "outcome" and last.deed in UNFINISHED_DEEDS:
        return False
    begun = next((entry for entry in reversed(entries) if entry.kind == "intent" and not entry.deed), last)
    limit = begun.observation.get(LIMIT_KEY)
    if not isinstance(limit, int) or begun.step in (*_WAITING_STEPS, *_ASKING_STEPS):
        return False
    if find_step_outcome(entries, begun.step) is not None:
        return False
    return now_ms - last.at_ms > (limit + _OVERDUE_AFTER_MS if limit else _UNLIMITED_MS)
