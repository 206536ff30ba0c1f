"""Runs as a ledger record holds them: readable while they are few, packed when they are many."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from operator import add, sub
from typing import Any, Final

from watershed.replicator.ledger.column_packing import decode_columns, decode_deltas, encode_columns, encode_deltas
from watershed.replicator.ledger.column_rows import ColumnRows
from watershed.replicator.ledger.offset_map import OffsetRun

_PLAIN_RUNS: Final = 8  # with more of them, all but the first are packed


def encode_runs(runs: Sequence[OffsetRun]) -> dict[str, Any]:
    """Few runs as [target, source] each; more of them as the first one and what each adds to the one before it."""
    if len(runs) <= _PLAIN_RUNS:
        return {"runs": [list(run) for run in sorted(runs)]}
    ordered = ColumnRows.of(OffsetRun, runs if isinstance(runs, ColumnRows) else sorted(runs))
    targets, sources = ordered.columns
    added = encode_deltas(targets), encode_deltas(array("q", map(sub, sources, targets)))
    if min(map(min, added)) >= 0:  # otherwise they contradict themselves, which is for the reader to say
        return {"runs": [list(ordered[0])], "then": encode_columns(added)}
    return {"runs": [list(run) for run in ordered]}


def decode_runs(value: Mapping[str, Any]) -> ColumnRows[OffsetRun]:
    """The inverse of `encode_runs`, in order. Raises KeyError, TypeError, ValueError, OverflowError."""
    plain = sorted(OffsetRun(target, source) for target, source in value["runs"])
    if "then" not in value:
        return ColumnRows.of(OffsetRun, plain)
    ((target, source),) = plain
    added_targets, added_shifts = decode_columns(value["then"], 2)
    targets = decode_deltas(target, added_targets)
    return ColumnRows(OffsetRun, (targets, array("q", map(add, targets, decode_deltas(source - target, added_shifts)))))
