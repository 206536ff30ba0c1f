"""The part of a partition that another tool copied, as the ledger holds it.

Key   `<flow>|<topic>|<partition>|foreign|<order>|<n>`
Value block n of the foreign part's stretches, and what is said of the whole of it.

The records are written before the order to adopt is given and mean nothing by themselves: they count when a block of
the ledger names the order (`Block.adopted`), which a worker's claim does first. So a crash in between leaves a
partition that is not adopted, and records that nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from clusters.control import LEDGER, ControlRecord
from clusters.errors import ProtocolError
from clusters.records import Value
from replicator.errors import ReplicatorError
from replicator.offsetmap import BrokenMap, OffsetMap, Run, Stretch
from replicator.partition import PartitionKey
from replicator.states import Span
from replicator.transactions.positions import packed, unpacked
from replicator.transactions.stretches import StretchMap

_SCHEMA: Final = 1
FOREIGN: Final = "foreign"  # the kind of these ledger records
_BLOCK_STRETCHES: Final = 4096  # some 10 bytes each


@dataclass(frozen=True, slots=True)
class Foreign:
    """What another tool copied of one partition. tool: its name, for people. stretches: proven record by record, in log
    order. base: the target offset behind everything of it. position: the source offset where copying goes on. extra:
    target offsets of records that are no copies to be counted and were accepted by name (duplicates, say), in order."""

    tool: str
    base: int
    position: int
    stretches: tuple[Stretch, ...] = ()
    extra: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinedMap(OffsetMap):
    """The offset map of an adopted partition: `front` up to the target offset `base`, `back` (ours) from there on.

    On the target's side the front has gaps, too: duplicates, markers and what could not be proven. A reader that stands
    in one continues with the next source record that it has not seen. tool, extra: see Foreign.
    """

    front: StretchMap
    back: OffsetMap
    base: int
    tool: str
    extra: tuple[Span, ...] = ()

    @staticmethod
    def over(foreign: Foreign, back: OffsetMap) -> OffsetMap:
        """Broken when the stretches contradict themselves or what stands behind them."""
        if isinstance(back, BrokenMap):
            return back
        first = foreign.stretches[0] if foreign.stretches else Stretch(foreign.base, foreign.position, 0)
        try:
            front = StretchMap.over(foreign.stretches, Run(first.target, first.source), foreign.position)
        except ReplicatorError as error:
            return BrokenMap(back.runs, str(error))
        behind = front.counted[-1].target + front.counted[-1].records if front.counted else first.target
        begins = back.runs[0] if back.runs else Run(foreign.base, foreign.position)
        if behind > foreign.base or begins.target != foreign.base or begins.source < foreign.position:
            told = f"the offset map contradicts itself: another tool's part ends at {foreign.base} as a copy through "
            return BrokenMap(back.runs, f"{told}{foreign.position}, then {begins}")
        return JoinedMap((*front.runs, *back.runs), front, back, foreign.base, foreign.tool, foreign.extra)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sources", tuple(run.source for run in self.runs))
        object.__setattr__(self, "_targets", tuple(run.target for run in self.runs))

    @property
    def own(self) -> Sequence[Run]:
        return self.back.runs

    def to_target(self, source_offset: int, target_end: int) -> int:
        if source_offset >= self.front.position or not self.back.runs:
            return self.back.to_target(source_offset, target_end)
        return self.front.to_target(source_offset, min(self.base, target_end))

    def to_source(self, target_offset: int) -> int:
        if target_offset >= self.base and self.back.runs:
            return self.back.to_source(target_offset)
        return self.front.to_source(target_offset)

    def source_position(self, target_end: int) -> int:
        return self.to_source(target_end)

    def stretches(self, target_end: int) -> Iterator[Stretch]:
        yield from self.front.stretches(target_end)
        yield from self.back.stretches(target_end)

    def extended(self, run: Run) -> OffsetMap:
        back = self.back.extended(run)
        return JoinedMap((*self.front.runs, *back.runs), self.front, back, self.base, self.tool, self.extra)


def entries(key: PartitionKey, order: str, foreign: Foreign) -> list[tuple[str, Value]]:
    """The ledger records (key, value) of a foreign part; `order` is the id of the order that they belong to."""
    size = _BLOCK_STRETCHES
    parts = [
        (foreign.stretches[at : at + size], foreign.extra[at : at + size])
        for at in range(0, max(len(foreign.stretches), len(foreign.extra), 1), size)
    ]
    about = {
        "schema": _SCHEMA,
        "kind": FOREIGN,
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
    prefix = f"{key.flow}|{key.topic}|{key.partition}|{FOREIGN}|{order}"
    return [
        (f"{prefix}|{at}", about | {"block": at, "stretches": packed(part), "extra": [list(span) for span in extra]})
        for at, (part, extra) in enumerate(parts)
    ]


class PartOf(NamedTuple):
    """Whose a foreign part is. One order's name may stand for several partitions."""

    key: PartitionKey
    order: str


def foreign_in(records: Iterable[ControlRecord]) -> dict[PartOf, Foreign]:
    """The foreign parts that are there in whole. Raises ProtocolError."""
    blocks: dict[PartOf, dict[int, Mapping[str, Any]]] = {}
    found: dict[PartOf, Foreign] = {}
    for record in records:
        value = record.value or {}
        try:
            if value["schema"] != _SCHEMA:
                raise ValueError(f"schema {value['schema']}")
            key = PartitionKey(value["flow"], value["topic"], value["target_topic"], value["partition"])
            whose = PartOf(key, value["order"])
            of_order = blocks.setdefault(whose, {})
            of_order[value["block"]] = value
            if len(of_order) == value["of"]:
                whole = [of_order[at] for at in range(value["of"])]
                stretches = tuple(each for part in whole for each in unpacked(part["stretches"]))
                extra = tuple(Span(*span) for part in whole for span in part["extra"])
                found[whose] = Foreign(value["tool"], value["base"], value["position"], stretches, extra)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(
                f"{LEDGER} holds a record at partition {record.partition} offset {record.offset} "
                f"that this version cannot read ({error!r})",
                topic=LEDGER,
                partition=record.partition,
            ) from None
    return found
