"""The part of a partition that another tool copied, as the ledger holds it.

Key   `<flow>|<topic>|<partition>|foreign|<order>|<n>`
Value block n of the foreign part's stretches, and what is said of the whole of it.

The records are written before the order to adopt is given and mean nothing by themselves: they count when a block of
the ledger names the order (`LedgerBlock.adopted`), which a worker's claim does first. So a crash in between leaves a
partition that is not adopted, and records that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from watershed.clusters.control_record_codec import require_known_version
from watershed.clusters.control_records import ControlRecord
from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import ProtocolError
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.ledger.explicit_runs import ExplicitRunMap
from watershed.replicator.ledger.offset_map import BrokenOffsetMap, ExplicitRun, OffsetMap, OffsetRun
from watershed.replicator.ledger.transaction_positions import decode_explicit_runs, encode_explicit_runs
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import OffsetSpan

_SCHEMA: Final = 1
FOREIGN_RECORD_KIND: Final = "foreign"  # the kind of these ledger records
_BLOCK_STRETCHES: Final = 4096  # some 10 bytes each


@dataclass(frozen=True, slots=True)
class ForeignPart:
    """What another tool copied of one partition. tool: its name, for people. stretches: proven record by record, in log
    order. base: the target offset behind everything of it. position: the source offset where copying goes on. extra:
    target offsets of records that are no copies to be counted and were accepted by name (duplicates, say), in order."""

    tool: str
    base: int
    position: int
    stretches: tuple[ExplicitRun, ...] = ()
    extra: tuple[OffsetSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinedOffsetMap(OffsetMap):
    """The offset map of an adopted partition: `front` up to the target offset `base`, `back` (ours) from there on.

    On the target's side the front has gaps, too: duplicates, markers and what could not be proven. A reader that stands
    in one continues with the next source record that it has not seen. tool, extra: see Foreign.
    """

    front: ExplicitRunMap
    back: OffsetMap
    base: int
    tool: str
    extra: tuple[OffsetSpan, ...] = ()

    @staticmethod
    def over(foreign: ForeignPart, back: OffsetMap) -> OffsetMap:
        """Broken when the stretches contradict themselves or what stands behind them."""
        if isinstance(back, BrokenOffsetMap):
            return back
        first = foreign.stretches[0] if foreign.stretches else ExplicitRun(foreign.base, foreign.position, 0)
        try:
            front = ExplicitRunMap.over(foreign.stretches, OffsetRun(first.target, first.source), foreign.position)
        except ReplicatorError as error:
            return BrokenOffsetMap(back.runs, str(error))
        behind = front.counted[-1].target + front.counted[-1].records if front.counted else first.target
        begins = back.runs[0] if back.runs else OffsetRun(foreign.base, foreign.position)
        if behind > foreign.base or begins.target != foreign.base or begins.source < foreign.position:
            text = f"the offset map contradicts itself: another tool's part ends at {foreign.base} as a copy through "
            return BrokenOffsetMap(back.runs, f"{text}{foreign.position}, then {begins}")
        return JoinedOffsetMap((*front.runs, *back.runs), front, back, foreign.base, foreign.tool, foreign.extra)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sources", tuple(run.source for run in self.runs))
        object.__setattr__(self, "_targets", tuple(run.target for run in self.runs))

    @property
    def own(self) -> Sequence[OffsetRun]:
        """The runs that this flow wrote, without those of the other tool."""
        return self.back.runs

    def to_target(self, source_offset: int, target_end: int) -> int:
        """Target offset of a source offset: below `front.position` through the other tool's part."""
        if source_offset >= self.front.position or not self.back.runs:
            return self.back.to_target(source_offset, target_end)
        return self.front.to_target(source_offset, min(self.base, target_end))

    def to_source(self, target_offset: int) -> int:
        """Source offset of a target offset: below `base` through the other tool's part."""
        if target_offset >= self.base and self.back.runs:
            return self.back.to_source(target_offset)
        return self.front.to_source(target_offset)

    def source_position(self, target_end: int) -> int:
        """Source offset to copy next if the target log ends at `target_end`."""
        return self.to_source(target_end)

    def find_last_record(self, target_end: int) -> OffsetRun | None:
        """See OffsetMap: of ours, else of the other tool."""
        own = self.back.find_last_record(target_end) if target_end > self.base else None
        return own or self.front.find_last_record(min(self.base, target_end))

    def stretches(self, target_end: int) -> Iterator[ExplicitRun]:
        """The runs of both parts below `target_end`."""
        yield from self.front.stretches(target_end)
        yield from self.back.stretches(target_end)

    def extended(self, run: OffsetRun) -> OffsetMap:
        """The same map with one more run of this flow at its end."""
        back = self.back.extended(run)
        return JoinedOffsetMap((*self.front.runs, *back.runs), self.front, back, self.base, self.tool, self.extra)


def build_foreign_records(key: PartitionKey, order: str, foreign: ForeignPart) -> list[tuple[str, ControlValue]]:
    """The ledger records (key, value) of a foreign part; `order` is the id of the order that they belong to."""
    size = _BLOCK_STRETCHES
    parts = [
        (foreign.stretches[at : at + size], foreign.extra[at : at + size])
        for at in range(0, max(len(foreign.stretches), len(foreign.extra), 1), size)
    ]
    about = {
        "schema": _SCHEMA,
        "kind": FOREIGN_RECORD_KIND,
        "flow": key.flow,
        "topic": key.topic,
        "target_topic": key.target_topic,
        "partition": key.partition,
        "order": order,
        "tool": foreign.tool,
        "base": foreign.base,
        "position": foreign.position,
        "of": len(parts),
    }
    prefix = f"{key.flow}|{key.topic}|{key.partition}|{FOREIGN_RECORD_KIND}|{order}"
    return [
        (
            f"{prefix}|{at}",
            about | {"block": at, "stretches": encode_explicit_runs(part), "extra": [list(span) for span in extra]},
        )
        for at, (part, extra) in enumerate(parts)
    ]


class ForeignPartKey(NamedTuple):
    """Whose a foreign part is. One order's name may stand for several partitions."""

    key: PartitionKey
    order: str


def decode_foreign_parts(records: Iterable[ControlRecord]) -> dict[ForeignPartKey, ForeignPart]:
    """The foreign parts that are there in whole. Raises ProtocolError."""
    blocks: dict[ForeignPartKey, dict[int, Mapping[str, Any]]] = {}
    found: dict[ForeignPartKey, ForeignPart] = {}
    for record in records:
        value = record.value or {}
        try:
            require_known_version(value, _SCHEMA)
            key = PartitionKey(value["flow"], value["topic"], value["target_topic"], value["partition"])
            whose = ForeignPartKey(key, value["order"])
            of_order = blocks.setdefault(whose, {})
            of_order[value["block"]] = value
            if len(of_order) == value["of"]:
                whole = [of_order[at] for at in range(value["of"])]
                stretches = tuple(each for part in whole for each in decode_explicit_runs(part["stretches"]))
                extra = tuple(OffsetSpan(*span) for part in whole for span in part["extra"])
                found[whose] = ForeignPart(value["tool"], value["base"], value["position"], stretches, extra)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(
                f"{LEDGER_TOPIC} holds a record at partition {record.partition} offset {record.offset} "
                f"that this version cannot read ({error!r})",
                topic=LEDGER_TOPIC,
                partition=record.partition,
            ) from None
    return found
