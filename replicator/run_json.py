"""Runs as a ledger record holds them: readable while they are few, packed when they are many."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from operator import add, sub
from typing import Any, Final

from replicator.offsetmap import Run
from replicator.packing import gaps, packed, summed, unpacked
from replicator.rows import Rows

_PLAIN_RUNS: Final = 8  # with more of them, all but the first are packed


def runs_to_json(runs: Sequence[Run]) -> dict[str, Any]:
    """Few runs as [target, source] each; more of them as the first one and what each adds to the one before it."""
    if len(runs) <= _PLAIN_RUNS:
        return {"runs": [list(run) for run in sorted(runs)]}
    ordered = Rows.of(Run, runs if isinstance(runs, Rows) else sorted(runs))
    targets, sources = ordered.columns
    added = gaps(targets), gaps(array("q", map(sub, sources, targets)))
    if min(map(min, added)) >= 0:  # otherwise they contradict themselves, which is for the reader to say
        return {"runs": [list(ordered[0])], "then": packed(added)}
    return {"runs": [list(run) for run in ordered]}


def runs_from_json(value: Mapping[str, Any]) -> Rows[Run]:
    """The inverse of `runs_to_json`, in order. Raises KeyError, TypeError, ValueError, OverflowError."""
    plain = sorted(Run(target, source) for target, source in value["runs"])
    if "then" not in value:
        return Rows.of(Run, plain)
    ((target, source),) = plain
    added_targets, added_shifts = unpacked(value["then"], 2)
    targets = summed(target, added_targets)
    return Rows(Run, (targets, array("q", map(add, targets, summed(source - target, added_shifts)))))
