"""Which fence of ours stands, as the journal has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from watershed.cutover.actions import JsonObject
from watershed.cutover.journal.hash_chain import JournalEntry

RAISING_DEEDS: Final = ("RaiseFence", "CallHook")  # the deeds by which fences rise


def find_standing_fence(entries: Iterable[JournalEntry]) -> JsonObject | None:
    """The deed that raised a fence which nothing lowered since, out of the journal's entries (of one wave): what
    `fence_steps.lower_journaled_fence` takes. None: no fence of ours stands."""
    found: JsonObject | None = None
    for entry in entries:
        seen = entry.observation
        if entry.kind == "intent" and entry.deed in RAISING_DEEDS and list_raising_deeds([seen]):
            found = found or seen  # the first knows what stood there before
        lowering = entry.deed == "LowerFence" or (entry.deed == "CallHook" and seen.get("point") == "lower")
        if lowering and entry.kind == "outcome" and "failed" not in seen:
            found = None
    return found


def list_raising_deeds(deeds: Iterable[JsonObject]) -> list[JsonObject]:
    """Those of the deeds that raise a fence: a hook is called to raise it and to lower it."""
    return [deed for deed in deeds if deed.get("point", "raise") == "raise"]
