"""The map of chunks: a row a partition, offsets to the right, what was found as colour and pattern.

Bounded: at most `_ROWS` rows and about `_CELLS` cells. Beyond, neighbouring partitions share a row and neighbouring
chunks a cell, which has the colour of the worst of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from watershed.spark.evidence.page.formatting import render_offset_range
from watershed.spark.evidence.page.html_element import e
from watershed.spark.evidence.page.page_tables import render_section
from watershed.spark.evidence.page.verdict_header import count_differing
from watershed.topology.rounded_amounts import render_counted_noun

_ROWS, _CELLS, _COLUMNS = 96, 4_000, 160
_ACROSS, _HEIGHT, _GAP, _LETTER, _LONGEST = 940, 14, 4, 6.7, 32
_WORST = ("different", "unverifiable", "pending", "repeated", "earlier", "equal")
_SAID = {
    "batches": "equal, whole batches compared",
    "both": "equal, whole batches where they are the same, records elsewhere",
    "records": "equal, record by record",
    "state": "judged by the last record of every key",
    "repeated": "every record is there, some once more",
    "earlier": "proven earlier, not read again",
    "different": "different, seen by two reads",
    "unverifiable": "unverifiable",
    "pending": "pending, not copied when the window was fixed",
}


class _MapSegment(NamedTuple):
    """A chunk, or what is pending behind the last; offsets of the source. `at`: counted from its partition's window."""

    partition: int
    start: int
    end: int
    at: int
    kind: str
    told: Callable[[], str]


@dataclass(frozen=True, slots=True)
class MapRow:
    """Neighbouring partitions of a topic; `scale`: offsets that the width stands for."""

    label: str
    scale: int
    pieces: tuple[_MapSegment, ...]


def render_chunk_map(partitions: Sequence[Mapping[str, Any]], chunks: Sequence[Mapping[str, Any]]) -> Element | None:
    """None where there is no partition."""
    rows = _rows(partitions, chunks)
    if not rows:
        return None
    shown, hidden = rows[:_ROWS], rows[_ROWS:]
    columns = max(24, min(_COLUMNS, _CELLS // len(shown)))
    height = len(shown) * (_HEIGHT + _GAP) + 22
    counts = Counter(piece.kind for row in rows for piece in row.pieces)
    left = 12 + _LETTER * max(len(_short(row.label)) for row in shown)
    drawn = [_row(row, at, columns, left) for at, row in enumerate(shown)]
    picture = e(
        "svg",
        e("title", "Chunks by partition and offset"),
        _patterns(),
        drawn,
        e("text", "offsets behind the start of each partition's window →", x=left, y=height - 4, cls="axis"),
        viewBox=f"0 0 {_ACROSS} {height}",
        cls="map",
        role="img",
    )
    told = e(
        "p",
        "Each cell is a chunk of the log as the source has it; point at one for its offsets. "
        "Rows of a topic share a scale.",
    )
    more = (
        e("p", f"{render_counted_noun(len(hidden), 'row')} more, after those with something amiss.", cls="more")
        if hidden
        else None
    )
    return render_section("Chunks", told, _legend(counts), e("div", picture, cls="scroll"), more)


def _rows(partitions: Sequence[Mapping[str, Any]], chunks: Sequence[Mapping[str, Any]]) -> list[MapRow]:
    """Those with something amiss first where not all can be drawn."""
    by_place: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for c in chunks:
        by_place.setdefault(_place(c), []).append(c)
    share = -(-len(partitions) // _ROWS)
    rows = []
    flows = {p["flow"] for p in partitions}
    for (flow, topic, _), of_topic in groupby(sorted(partitions, key=_place), key=lambda p: _place(p)[:3]):
        own = list(of_topic)
        pieces = {p["partition"]: list(_pieces(p, by_place.get(_place(p), ()))) for p in own}
        scale = max((piece.at + piece.end - piece.start for some in pieces.values() for piece in some), default=1)
        for first in range(0, len(own), share):
            numbers = [p["partition"] for p in own[first : first + share]]
            label = f"{topic}-{numbers[0]}" + (f"…{numbers[-1]}" if len(numbers) > 1 else "")
            label = f"{flow}: {label}" if len(flows) > 1 else label
            rows.append(MapRow(label, max(1, scale), tuple(piece for number in numbers for piece in pieces[number])))
    if len(rows) > _ROWS:
        rows.sort(key=lambda row: min((_WORST.index(_status(p.kind)) for p in row.pieces), default=len(_WORST)))
    return rows


def _pieces(partition: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]]) -> Iterator[_MapSegment]:
    starts = [c["source_start"] for c in chunks]
    begin = min(starts) if partition["source_start"] is None and starts else partition["source_start"] or 0
    begin = min([begin, *starts])
    name = f"{partition['topic']}-{partition['partition']}"
    for c in sorted(chunks, key=lambda c: (c["source_start"], c["source_end"])):
        kind = c["status"] if c["status"] != "equal" else c["by"] if c["by"] in _SAID else "records"
        if kind == "state" and count_differing(partition):  # one of its keys differs, and nobody says in which chunk
            kind = "different"
        told = partial(_told, name, kind, c)
        yield _MapSegment(
            partition["partition"], c["source_start"], c["source_end"], c["source_start"] - begin, kind, told
        )
    end, barrier = partition["source_end"], partition["barrier"]
    if end is not None and barrier is not None and barrier > end and partition["pending"]:
        told = partial(
            "{}: offsets {}: {:,} records pending".format, name, render_offset_range(end, barrier), partition["pending"]
        )
        yield _MapSegment(partition["partition"], end, barrier, end - begin, "pending", told)


def _told(name: str, kind: str, c: Mapping[str, Any]) -> str:
    return (
        f"{name}: offsets {render_offset_range(c['source_start'], c['source_end'])} → "
        f"{render_offset_range(c['target_start'], c['target_end'])}: "
        f"{_SAID.get(kind, kind)}; {c['source_records']:,} records"
        + (f", {render_counted_noun(c['reads'], 'read')}" if c["reads"] else "")
        + (f"; {c['why']}" if c["why"] else "")
    )


def _row(row: MapRow, at: int, columns: int, left: float) -> Element:
    y = at * (_HEIGHT + _GAP)
    label = e("title", row.label), _short(row.label)
    return e(
        "g",
        e("text", label, x=left - 8, y=y + _HEIGHT - 3, text_anchor="end", cls="label"),
        e("rect", x=left, y=y, width=_ACROSS - left, height=_HEIGHT, cls="ground"),
        [_cell(*cell, y, left, (_ACROSS - left) / columns) for cell in _cells(row, columns)],
    )


def _cells(row: MapRow, columns: int) -> Iterator[tuple[tuple[_MapSegment, ...], int, int]]:
    """(what lies in it, first column, column behind the last): neighbouring columns with the same content are one."""
    slots: list[list[_MapSegment]] = [[] for _ in range(columns)]
    for piece in row.pieces:
        first = min(columns - 1, round(piece.at * columns / row.scale))
        last = max(first + 1, round((piece.at + piece.end - piece.start) * columns / row.scale))
        for column in range(first, min(columns, last)):
            slots[column].append(piece)
    column = 0
    for _, same in groupby(slots, key=lambda pieces: tuple(map(id, pieces))):
        content = list(same)
        if content[0]:
            yield tuple(content[0]), column, column + len(content)
        column += len(content)


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST // 2 - 1]}…{label[-_LONGEST // 2 :]}"


def _cell(pieces: tuple[_MapSegment, ...], first: int, last: int, y: int, left: float, step: float) -> Element:
    worst = min(pieces, key=lambda piece: _WORST.index(_status(piece.kind)))
    told = worst.told()
    if len(pieces) > 1:
        counts = Counter(_SAID.get(piece.kind, piece.kind) for piece in pieces)
        told = "; ".join(f"{count:,} × {said}" for said, count in counts.most_common())
        told = f"{render_counted_noun(len(pieces), 'chunk')} ({told}), the worst: {told}"
    width = max(1.0, (last - first) * step - 1)
    return e(
        "rect",
        e("title", told),
        x=left + first * step,
        y=y,
        width=width,
        height=_HEIGHT,
        cls=f"cell {_class(worst.kind)}",
    )


def _legend(counts: Mapping[str, int]) -> Element:
    return e(
        "ul",
        [
            e(
                "li",
                e(
                    "svg",
                    e("rect", width=14, height=14, cls=f"cell {_class(kind)}"),
                    width=14,
                    height=14,
                    aria_hidden="true",
                ),
                f" {said}: ",
                e("b", counts.get(kind, 0)),
            )
            for kind, said in _SAID.items()
            if counts.get(kind) or kind == "different"
        ],
        cls="legend",
    )


def _patterns() -> Element:
    """What differs is hatched, so that nobody needs to see colours."""
    return e(
        "defs",
        e(
            "pattern",
            e("rect", width=6, height=6, cls="different-ground"),
            e("path", d="M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2", cls="different-line"),
            id="p-different",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        ),
        e(
            "pattern",
            e("rect", width=5, height=5, cls="unverifiable-ground"),
            e("circle", cx=2.5, cy=2.5, r=1.2, cls="unverifiable-dot"),
            id="p-unverifiable",
            width=5,
            height=5,
            patternUnits="userSpaceOnUse",
        ),
        e(
            "pattern",
            e("path", d="M0,0 l0,6", cls="pending-line"),
            id="p-pending",
            width=4,
            height=6,
            patternUnits="userSpaceOnUse",
        ),
    )


def _class(kind: str) -> str:
    return kind if kind in _SAID else "different"


def _status(kind: str) -> str:
    return kind if kind in _WORST else "equal" if kind in _SAID else "different"


def _place(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["flow"], line["topic"], line["target_topic"], line["partition"]
