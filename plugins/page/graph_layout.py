"""Where the page draws clusters and flows: columns as in `topology graph`, every arrow with a place of its own.

An arrow has its own height at both of its boxes, so that a hub of fifty clusters is a tall box with fifty parallel
arrows and no two labels meet. Flows from one cluster to another are one arrow as soon as they are more than FEW, or all
flows together more than MANY.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from watershed.topology.picture.layout import arrange_columns

_FEW = 4  # flows between two clusters, in one direction, that are drawn one by one
_MANY = 40  # flows from which each pair of clusters has one arrow in each direction
MAX_DRAWN_ARROWS = 400  # arrows; more are only listed
_MARGIN, _BOX_WIDTH, _BOX_HEIGHT, _GAP = 16.0, 176.0, 54.0, 18.0
_PORT, _TIGHT_PORT = 44.0, 36.0  # between two arrows at a box: a label of two lines
_TIGHT = 24  # arrows at one box from which they are drawn closer
_ACROSS = 330.0  # between two columns
_BULGE = 64.0  # how far an arrow inside one column swings out
_LEVEL = 122.0  # half of what runs level, under the label
_FOLD = 12  # boxes in a column beside one hub from which they stand at both of its sides


@dataclass(frozen=True, slots=True)
class FlowArrow:
    """Flows of one direction between two clusters, drawn as one."""

    source: str
    target: str
    flows: tuple[str, ...]

    @property
    def key(self) -> str:
        """The flow's id, or `source → target` for several flows."""
        return self.flows[0] if len(self.flows) == 1 else f"{self.source} → {self.target}"


def build_flow_arrows(flows: Iterable[tuple[str, str, str]]) -> list[FlowArrow]:
    """flows: id, source and target."""
    between: dict[tuple[str, str], list[str]] = defaultdict(list)
    ordered = sorted(flows)
    for flow, source, target in ordered:
        between[source, target].append(flow)
    few = _FEW if len(ordered) <= _MANY else 1
    found = []
    for (source, target), ids in sorted(between.items()):
        parts = [(flow,) for flow in ids] if len(ids) <= few else [tuple(ids)]
        found += [FlowArrow(source, target, part) for part in parts]
    return found


def lay_out_graph(
    clusters: Sequence[str], drawn: Sequence[FlowArrow], forward: Iterable[tuple[str, str]] | None = None
) -> dict[str, Any]:
    """Boxes by cluster and arrows by key, in pixels; `d` is the path of an arrow, `at` the middle of its label.

    forward: from which cluster to which the picture reads from left to right, where flows go in both directions; None:
    as all flows say together."""
    ways = {(each.source, each.target) for each in drawn}
    if forward is not None:
        kept = set(forward)
        ways = {way for way in ways if way in kept or way[::-1] not in ways}
    rows = _folded(arrange_columns(clusters, ways))
    level = {name: number for number, row in enumerate(rows) for name in row}
    sides = _sides(drawn, level)
    ports = {name: max((len(sides[name, side]) for side in (-1, 1)), default=0) for name in level}
    pitch = _TIGHT_PORT if max(ports.values(), default=0) >= _TIGHT else _PORT
    height = {name: max(_BOX_HEIGHT, ports[name] * pitch) for name in level}
    tall = max((sum(height[name] + _GAP for name in row) - _GAP for row in rows), default=0.0)
    for row in rows:
        if len(row) == 1 and ports[row[0]] > 1:
            height[row[0]] = tall  # its arrows run level
    boxes: dict[str, dict[str, float]] = {}
    for number, row in enumerate(rows):
        y = _MARGIN + (tall - sum(height[name] + _GAP for name in row) + _GAP) / 2
        for name in row:
            x = _MARGIN + number * (_BOX_WIDTH + _ACROSS)
            boxes[name] = {"x": x, "y": round(y, 1), "w": _BOX_WIDTH, "h": height[name]}
            y += height[name] + _GAP
    ends = _ends(sides, boxes, pitch)
    paths = {each.key: _path(ends[each.key, "from"], ends[each.key, "to"]) for each in drawn}
    within = any(level[each.source] == level[each.target] for each in drawn)
    width = _MARGIN * 2 + len(rows) * _BOX_WIDTH + max(0, len(rows) - 1) * _ACROSS + (_ACROSS if within else 0)
    return {"width": width, "height": tall + 2 * _MARGIN, "boxes": boxes, "arrows": paths}


def _folded(rows: list[list[str]]) -> list[list[str]]:
    """A star has its hub in the middle; half of the others stand at either side."""
    if len(rows) != 2 or min(map(len, rows)) != 1 or max(map(len, rows)) <= _FOLD:
        return rows
    hub, around = sorted(rows, key=len)
    half = -(-len(around) // 2)
    return [around[:half], hub, around[half:]]


_Side = dict[tuple[str, int], list[tuple[str, str, str]]]


def _sides(drawn: Sequence[FlowArrow], level: dict[str, int]) -> _Side:
    """(arrow, which end, other cluster) at the left (-1) and right (1) of each box."""
    found: _Side = defaultdict(list)
    for each in drawn:
        right = level[each.target] > level[each.source]
        same = level[each.target] == level[each.source]
        found[each.source, 1 if right or same else -1].append((each.key, "from", each.target))
        found[each.target, -1 if right else 1].append((each.key, "to", each.source))
    return found


def _ends(sides: _Side, boxes: dict[str, dict[str, float]], pitch: float) -> dict[tuple[str, str], tuple[float, ...]]:
    """x, y and side of every arrow's two ends; at a box in the order of the boxes on the other side."""
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    for (name, side), at in sides.items():
        box = boxes[name]
        at.sort(key=lambda end: (boxes[end[2]]["y"] + boxes[end[2]]["h"] / 2, end[0], end[1]))
        room = box["h"] / len(at) if len(at) > 1 else box["h"]
        step = max(room, pitch) if len(at) > 1 else room
        top = box["y"] + (box["h"] - step * len(at)) / 2
        x = box["x"] + (box["w"] if side > 0 else 0)
        for number, (key, which, _) in enumerate(at):
            found[key, which] = (x, round(top + step * (number + 0.5), 1), float(side))
    return found


def _path(start: tuple[float, ...], end: tuple[float, ...]) -> dict[str, Any]:
    """A curve that runs level where its label is: in the middle between two columns, or outside of one."""
    (x1, y1, s1), (x2, y2, s2) = start, end
    tip = x2 + s2 * 7  # the head of the arrow
    middle = (y1 + y2) / 2
    if s1 == s2:
        out = x1 + s1 * _BULGE
        d = f"M{x1:g},{y1:g} C{out:g},{y1:g} {out:g},{y2:g} {tip:g},{y2:g}"
        return {"d": d, "at": [x1 + s1 * (_BULGE * 0.75 + _LEVEL), middle], "head": [tip, y2, s2]}
    across = (x1 + x2) / 2
    near, far = across - s1 * _LEVEL, across + s1 * _LEVEL
    bend, back = (x1 + near) / 2, (tip + far) / 2
    d = (
        f"M{x1:g},{y1:g} C{bend:g},{y1:g} {bend:g},{middle:g} {near:g},{middle:g} L{far:g},{middle:g} "
        f"C{back:g},{middle:g} {back:g},{y2:g} {tip:g},{y2:g}"
    )
    return {"d": d, "at": [across, round(middle, 1)], "head": [tip, y2, s2]}
