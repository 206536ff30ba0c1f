"""Chunks by the names that people type: `orders-3@150000`, or `FLOW/orders-3@150000` where two flows have the topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from watershed.spark.errors import WrongUse

_FEW = 5  # names in a suggestion

EvidenceRow = Mapping[str, Any]
_WORST = {"different": 0, "unverifiable": 1, "equal": 2}


def find_chunk_by_name(rows: Sequence[EvidenceRow], name: str) -> EvidenceRow:
    """The row of the table `chunks` that is meant; an offset within a chunk names it, too.

    Raises WrongUse, which suggests others.
    """
    flow, _, short = name.rpartition("/")
    place, at, offset = short.rpartition("@")
    here = [row for row in rows if not flow or row["flow"] == flow]
    found = [row for row in here if row["chunk"] == short]
    if not found and at and offset.isdecimal():
        found = [row for row in here if _place(row) == place and row["source_start"] <= int(offset) < row["source_end"]]
    if len({row["flow"] for row in found}) > 1:
        names = " or ".join(sorted(f"{row['flow']}/{row['chunk']}" for row in found))
        raise WrongUse(f"{name} is in more than one flow: say {names}")
    if not found:
        raise WrongUse(f"this proof has no chunk {name}. {_suggestion(rows, place, short)}")
    worst = ("different", "state", "unverifiable", "equal", "earlier")
    return min(found, key=lambda row: worst.index(row["status"]))


def _suggestion(rows: Sequence[EvidenceRow], place: str, short: str) -> str:
    if not rows:
        return "It compared no chunks"
    of_place = [row for row in rows if _place(row) == place]
    if of_place:
        ends = f"{min(r['source_start'] for r in of_place)} to {max(r['source_end'] for r in of_place) - 1}"
        odd = [str(row["chunk"]) for row in of_place if row["status"] == "different"]
        known = f"; those that differ: {_few(odd)}" if odd else ", none of which differs"
        return f"Of {place} it has the source offsets {ends}{known}"
    odd = [str(row["chunk"]) for row in rows if row["status"] == "different"]
    close = get_close_matches(short, odd or [str(row["chunk"]) for row in rows], _FEW, 0.5)
    if close:
        return f"Do you mean {' or '.join(close)}?"
    return f"Chunks that differ: {_few(odd)}" if odd else "None of its chunks differs"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{', '.join(names[:_FEW])}{more}"


def _place(row: EvidenceRow) -> str:
    return f"{row['topic']}-{row['partition']}"
