"""The history of a partition that two flows have copied, each its part: one there, the other back.

Where a flow copies in transactions and applications go there, back, and there again, its own map has a hole for what
they wrote at its target meanwhile: its loop guard left that out when the flow back had carried it. The flow back's map
knows where those records stand on both sides, so together they are one history. A reader that stands in the hole goes
on there, and not behind it.

A flow that copies by sequence numbers has the same in its own ledger, by an order (`replicator.recovery.rejoin`).
"""

from __future__ import annotations

from heapq import merge

from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap, join_explicit_runs
from watershed.replicator.ledger.offset_map import ExplicitRun, OffsetMap, OffsetRun


def build_round_trip_map(there: OffsetMap, back: OffsetMap) -> OffsetMap:
    """The map `there` with what the flow back has carried, as far as `there` has come at its source.

    It is `there` itself where it is no map of transactions, or where both sides were written to at once: then the two
    logs hold their records in different orders, and no single offset says what a reader has read."""
    if not isinstance(there, ExplicitRunMap):
        return there
    carried = [
        ExplicitRun(each.source, each.target, min(each.records, there.position - each.target))
        for each in back.stretches(1 << 62)
        if each.target < there.position
    ]
    if not carried:
        return there
    stretches = join_explicit_runs(merge(there.counted, carried))
    begin = min(there.begin, OffsetRun(stretches[0].target, stretches[0].source))
    try:
        return ExplicitRunMap.over(stretches, begin, there.position)
    except ReplicatorError:
        return there
