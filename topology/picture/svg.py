"""The picture as one SVG file: no scripts, no fonts or images from elsewhere, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.sax import saxutils

from watershed.topology.picture.edge import Edge, Mesh, find_meshes
from watershed.topology.picture.layout import arrange_columns
from watershed.topology.text_escaping import escape_controls

_LETTER, _LABEL, _BOX, _GAP, _MARGIN = 7.6, 6.2, 30, 90, 24
_ROW, _CLOSE, _MANY = 52, 38, 16
_FAN = 4  # so many equal arrows at one box are labelled there, once
_LONGEST = 46
_STYLE = """
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1c2733}
.box{fill:#f4f7fa;stroke:#8496a8;stroke-width:1.2}.label{font-size:10.5px;fill:#3d5166}
.back{fill:#ffffff;fill-opacity:.86}.flow{fill:none;stroke:#4b77a8;stroke-width:1.5}
.paused{stroke:#8a96a3;stroke-dasharray:5 4}
.external{stroke:#8a5a00;stroke-dasharray:2 3}
.loop{stroke:#c62828;stroke-width:2.6}.title{font-size:15px;font-weight:600}
.arrow{fill:#4b77a8}.arrow-paused{fill:#8a96a3}.arrow-external{fill:#8a5a00}.arrow-loop{fill:#c62828}.paper{fill:#ffffff}
@media (prefers-color-scheme:dark){text{fill:#e4eaf0}.paper{fill:#12181f}.box{fill:#1e2832;stroke:#62758a}
.label{fill:#b4c4d4}.back{fill:#12181f}.flow{stroke:#7fa9d6}.paused{stroke:#7d8896}.external{stroke:#e0a84a}.loop{stroke:#ff6b6b}
.arrow{fill:#7fa9d6}.arrow-paused{fill:#7d8896}
.arrow-external{fill:#e0a84a}.arrow-loop{fill:#ff6b6b}}
"""


_MARKERS = (
    ("flow", "arrow"),
    ("paused", "arrow-paused"),
    ("external", "arrow-external"),
    ("loop", "arrow-loop"),
)


def escape_svg_text(text: str) -> str:
    """Text of an element: no markup, and nothing that a viewer would obey, reorder or hide."""
    return saxutils.escape(escape_controls(text))


def _quote_svg_attribute(text: str) -> str:
    """The same of an attribute, with its quotes."""
    return saxutils.quoteattr(escape_controls(text))


@dataclass(frozen=True, slots=True)
class _ClusterBox:
    name: str
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + _BOX / 2


def render_svg(title: str, edges: list[Edge], alone: Iterable[str] = ()) -> str:
    """Without a newline at the end."""
    names = sorted({name for edge in edges for name in (edge.source, edge.target)})
    rows = arrange_columns(names, [(edge.source, edge.target) for edge in edges])
    level = {name: index for index, row in enumerate(rows) for name in row}
    whole, _ = find_meshes(edges, _FAN)
    whole = [mesh for mesh in whole if len({level[name] for name in mesh.members}) == 1]
    framed = {(source, mesh.label, mesh.paused) for mesh in whole for source in mesh.members}
    arrows = [edge for edge in edges if (edge.source, edge.label, edge.paused) not in framed]
    labels = _labels(arrows, level)
    boxes = _boxes(rows, labels, arrows)
    left = list(alone)
    drawn = [*_frames(whole, boxes), *_paths(arrows, boxes), *map(_box, boxes.values())]
    drawn += [_label(label, boxes[label.box]) for label in labels]
    bottom = max((box.y + _BOX for box in boxes.values()), default=_MARGIN + 30.0) + 22
    if left:
        said = escape_svg_text(f"no flow: {', '.join(left)}")
        drawn.append(f'<text class="label" x="{_MARGIN}" y="{bottom + 14:.0f}">{said}</text>')
    width = max([len(title) * 9.5 + 2 * _MARGIN, *(_right_edge(box, labels, arrows, boxes) for box in boxes.values())])
    width = max(width, *(len(mesh.label) * _LABEL + 190 for mesh in whole)) if whole else width
    height = bottom + _MARGIN + (20 if left else 0)
    about = f"{len(names) + len(left)} boxes, {len(edges)} flows"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
            f"aria-label={_quote_svg_attribute(f'{title}: {about}')}>",
            f"<style>{_STYLE}</style>",
            _arrows(),
            '<rect class="paper" width="100%" height="100%"/>',
            f'<text class="title" x="{_MARGIN}" y="{_MARGIN}">{escape_svg_text(title)}</text>',
            *drawn,
            "</svg>",
        ]
    )


@dataclass(frozen=True, slots=True)
class _BoxLabel:
    """A text beside a box, on its right or left, on the line-th line there."""

    box: str
    right: bool
    line: int
    text: str


def _labels(edges: list[Edge], level: Mapping[str, int]) -> list[_BoxLabel]:
    """Equal arrows at one box are told once there, with their number; others at the end with fewer arrows."""
    out: Counter[tuple[str, str]] = Counter((edge.source, edge.label) for edge in edges)
    into: Counter[tuple[str, str]] = Counter((edge.target, edge.label) for edge in edges)
    busy = Counter(name for edge in edges for name in (edge.source, edge.target))
    lines: Counter[tuple[str, bool]] = Counter()
    found: dict[tuple[str, str, bool, bool], _BoxLabel] = {}
    # arrows to the right leave and arrive a little higher: their labels come first, on the upper line
    for edge in sorted(edges, key=lambda each: level[each.source] > level[each.target]):
        fan = max(out[edge.source, edge.label], into[edge.target, edge.label])
        at_source = out[edge.source, edge.label] == fan if fan >= _FAN else (busy[edge.source] <= busy[edge.target])
        box, other = (edge.source, edge.target) if at_source else (edge.target, edge.source)
        right = level[other] >= level[box]
        key = (box, edge.label, at_source, right)
        if key in found:
            continue
        text = _short(edge.label) + (f" (by {edge.tool})" if edge.tool else "") + (" (paused)" if edge.paused else "")
        if fan >= _FAN:
            text = f"{text} {'to' if at_source else 'from'} {fan}"
        found[key] = _BoxLabel(box, right, lines[box, right], text)
        lines[box, right] += 1
    return [label for label in found.values() if label.line < 3]  # the arrows' tooltips still say the others


def _boxes(rows: list[list[str]], labels: list[_BoxLabel], edges: list[Edge]) -> dict[str, _ClusterBox]:
    """Columns side by side, each centred on the highest one, with room for the labels between them."""
    tallest = max(map(len, rows), default=0)
    step = _CLOSE if tallest > _MANY else _ROW
    found: dict[str, _ClusterBox] = {}
    x = float(_MARGIN)
    for number, row in enumerate(rows):
        width = max(len(_short(name)) for name in row) * _LETTER + 22
        top = _MARGIN + 34 + (tallest - len(row)) * step / 2
        for index, name in enumerate(row):
            found[name] = _ClusterBox(name, x, top + index * step, width)
        beside = set(rows[number + 1]) if number + 1 < len(rows) else set()
        told = [len(each.text) for each in labels if each.box in row and each.right]
        told += [len(each.text) for each in labels if each.box in beside and not each.right]
        inside = any(edge.source in row and edge.target in row for edge in edges)
        x += width + _GAP + max(told, default=0) * _LABEL + min(len(row) * 12, 90) * inside
    return found


def _right_edge(
    box: _ClusterBox, labels: list[_BoxLabel], edges: list[Edge], boxes: Mapping[str, _ClusterBox]
) -> float:
    told = max((len(each.text) for each in labels if each.box == box.name and each.right), default=0) * _LABEL
    arcs = [
        24 + min(abs(boxes[edge.source].y - boxes[edge.target].y) * 0.35, 90)
        for edge in edges
        if box.name in (edge.source, edge.target) and boxes[edge.source].x == boxes[edge.target].x
    ]
    return box.x + box.width + max([told + 12, *arcs]) + _MARGIN


def _frames(whole: list[Mesh], boxes: Mapping[str, _ClusterBox]) -> Iterator[str]:
    """A mesh is a frame around its members."""
    for number, mesh in enumerate(whole):
        members = [boxes[name] for name in mesh.members]
        x, y = members[0].x - 10 - 4 * number, min(box.y for box in members) - 8 - 14 * number
        width = members[0].width + 20 + 8 * number
        height = max(box.y for box in members) + _BOX + 8 + 4 * number - y
        kind = " paused" if mesh.paused else ""
        said = f"each to each other: {_short(mesh.label)}{' (paused)' if mesh.paused else ''}"
        yield f'<rect class="flow{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="9"/>'
        yield f'<text class="label" x="{x + 4:.0f}" y="{y - 4:.0f}">{escape_svg_text(said)}</text>'


def _paths(edges: list[Edge], boxes: dict[str, _ClusterBox]) -> Iterator[str]:
    """Loops last, so that they lie above."""
    for edge in sorted(edges, key=lambda each: each.loop):
        kind = (" external" if edge.tool else "") + (" loop" if edge.loop else " paused" if edge.paused else "")
        marker = "loop" if edge.loop else "paused" if edge.paused else "external" if edge.tool else "flow"
        said = f"{edge.flow}: {edge.label}{edge.marks}"
        yield (
            f'<path class="flow{kind}" d="{_curve(boxes[edge.source], boxes[edge.target])}" '
            f'marker-end="url(#{marker})"><title>{escape_svg_text(said)}</title></path>'
        )


def _curve(source: _ClusterBox, target: _ClusterBox) -> str:
    """To the right out of the right side, to the left a little lower; within a column an arc on the right."""
    if source.x == target.x:
        x, bulge = source.x + source.width, 24 + min(abs(source.y - target.y) * 0.35, 90)
        one, two = source.middle - 4, target.middle + 4
        return f"M{x:.0f} {one:.0f}C{x + bulge:.0f} {one:.0f} {x + bulge:.0f} {two:.0f} {x + 7:.0f} {two:.0f}"
    forward = source.x < target.x
    shift = -5 if forward else 6
    x1 = source.x + source.width if forward else source.x
    x2 = target.x - 7 if forward else target.x + target.width + 7
    y1, y2 = source.middle + shift, target.middle + shift
    bend = (x2 - x1) / 2
    return f"M{x1:.0f} {y1:.0f}C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"


def _label(label: _BoxLabel, box: _ClusterBox) -> str:
    width = len(label.text) * _LABEL
    x = box.x + box.width + 10 if label.right else box.x - 10 - width
    y = box.middle + (-9 if label.line == 0 else 16 + 12 * (label.line - 1))
    return (
        f'<rect class="back" x="{x - 2:.0f}" y="{y - 9:.0f}" width="{width + 4:.0f}" height="12"/>'
        f'<text class="label" x="{x:.0f}" y="{y:.0f}">{escape_svg_text(label.text)}</text>'
    )


def _box(box: _ClusterBox) -> str:
    x, y = f"{box.x + 11:.0f}", f"{box.y + 20:.0f}"
    return (
        f'<rect class="box" x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{_BOX}" rx="5"/>'
        f'<text x="{x}" y="{y}">{escape_svg_text(_short(box.name))}<title>{escape_svg_text(box.name)}</title></text>'
    )


def _arrows() -> str:
    return (
        "<defs>"
        + "".join(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="7" markerHeight="7" orient="auto" '
            f'markerUnits="userSpaceOnUse"><path class="{css}" d="M0 0L8 4L0 8z"/></marker>'
            for name, css in _MARKERS
        )
        + "</defs>"
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
