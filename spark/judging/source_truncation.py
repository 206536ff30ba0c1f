"""A source that lost the end of its log after it was copied (an unclean leader election).

The copy then holds records that the source no longer has. Records under the flow's own producer ids count as
unverifiable; all others count as foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from watershed.clusters.cluster_protocol import LogRange
from watershed.spark.judging.flow_observation import FlowFacts
from watershed.spark.judging.proof_window import ObservedPartition
from watershed.spark.reading.range_requests import RangeRequest

_MOST = 1_000_000  # target offsets that are looked at


def exclude_truncated_ends(
    facts: FlowFacts,
    seen: Sequence[ObservedPartition],
    ours: Callable[[], tuple[int, ...]],
    count: Callable[[RangeRequest], int],
) -> list[ObservedPartition]:
    """Partitions as they are to be compared. How many records the source does not have any more is added to
    `facts.lost`, what is to be said of it to `facts.blocks`.

    ours: producer ids that the flow writes with, asked only where needed; count: records of a range.
    """
    found: list[ObservedPartition] = []
    for o in seen:
        end = max(o.source.end, o.barrier)
        if facts.only or facts.foreign or not o.map.runs or o.map.source_position(o.target.end) <= end:
            found.append(o)
            continue
        first = o.map.to_target(end, o.target.end)
        place, flow = o.place, facts.flow
        request = RangeRequest(0, flow.target, place.target_topic, str(o.ids[1]), place.partition, first, o.target.end)
        own = count(replace(request, only=ours())) if o.target.end - first <= _MOST else 0
        if not own or own < count(request):  # somebody else's are foreign, and all of it is looked at
            found.append(o)
            continue
        position = o.map.source_position(o.target.end)
        facts.blocks.append(
            f"{place.name}: the source was copied through offset {position - 1}, and its log ends "
            f"at {end} now, so it lost its end (an unclean leader election); {own} records of the copy, from target "
            f"offset {first} on, cannot be compared. `topology status` shows the partition's state and the remedy"
        )
        facts.lost[place] = own
        found.append(replace(o, target=LogRange(o.target.start, first)))
    return found
