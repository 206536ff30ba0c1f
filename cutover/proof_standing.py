"""The newest proof of each flow, from journals of migrations and from folders of evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from watershed.clusters.private_files import read_private_file
from watershed.cutover.evidence.proof_summary import PROVEN_VERDICTS
from watershed.cutover.journal.hash_chain import JournalEntry

_LARGEST: Final = 16 << 20  # bytes of a summary


@dataclass(frozen=True, slots=True)
class ProofStanding:
    """A proof of one flow. unproven: records; None where it came to no count. ended_ms: since 1970."""

    flow: str
    has_passed: bool
    unproven: int | None
    ended_ms: int


def find_journal_proofs(entries: Iterable[JournalEntry]) -> Iterator[ProofStanding]:
    """Every proof of a run's step, in the order of the journal; those of earlier versions do not name the flow, and are
    left out."""
    for entry in entries:
        outcome = entry.observation.get("outcome") if entry.kind == "outcome" and not entry.deed else None
        if isinstance(outcome, dict) and "verdict" in outcome and isinstance(outcome.get("flow"), str):
            yield _build_standing(outcome["flow"], outcome, entry.at_ms)


def read_folder_proofs(folder: Path) -> Iterator[ProofStanding]:
    """Those of all `summary.json` below a folder; what is no summary of a proof is left out: somebody else's file."""
    for path in sorted(folder.rglob("summary.json")):
        try:
            document = json.loads(read_private_file(path, _LARGEST))
            ended_ms = int(datetime.fromisoformat(document["ended_at"]).timestamp() * 1000)
            found = [_build_standing(str(flow["id"]), document, ended_ms) for flow in document["flows"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        yield from found


def pick_newest_proofs(proofs: Iterable[ProofStanding]) -> dict[str, ProofStanding]:
    """Flow → its newest proof."""
    found: dict[str, ProofStanding] = {}
    for each in proofs:
        known = found.get(each.flow)
        if known is None or each.ended_ms >= known.ended_ms:
            found[each.flow] = each
    return found


def _build_standing(flow: str, told: dict[str, Any], ended_ms: int) -> ProofStanding:
    unproven = told.get("unproven")
    count = unproven if isinstance(unproven, int) and unproven >= 0 else None
    return ProofStanding(flow, told.get("verdict") in PROVEN_VERDICTS and count == 0, count, ended_ms)
