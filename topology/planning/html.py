"""A page as one HTML file that needs nothing else: own style, light and dark, bars in plain CSS, no script."""

from __future__ import annotations

import html as entities

from watershed.topology.planning.page_blocks import (
    BlockPage,
    Bullets,
    Cell,
    Heading,
    PageBlock,
    Sentence,
    Table,
    is_right_aligned,
)
from watershed.topology.text_escaping import escape_controls

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --paper: #ffffff; --quiet: #5b6670; --line: #d9dee3;
  --bar: #b9d3ee; --head: #f3f5f7; --alarm: #8a3b00; --alarm-paper: #fff4e8; --alarm-line: #e08a3c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --paper: #14181c; --quiet: #98a4af; --line: #323a42;
  --bar: #2b4a6b; --head: #1d2329; --alarm: #ffc48a; --alarm-paper: #2c2015; --alarm-line: #b8671f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 82rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p, li { max-width: 56rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; }
ul { margin: .4rem 0; padding-left: 1.25rem; }
.note { color: var(--quiet); }
.warning { color: var(--alarm); background: var(--alarm-paper); border-left: 3px solid var(--alarm-line);
  padding: .45rem .75rem; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; min-width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem; border-bottom: 1px solid var(--line); }
th { background: var(--head); font-weight: 600; white-space: nowrap; }
td { overflow-wrap: break-word; max-width: 28rem; }
small { display: block; color: var(--quiet); }
.number { text-align: right; white-space: nowrap; }
.bar { display: block; height: 5px; margin: 3px 0 0 auto; background: var(--bar); border-radius: 2px; }
td.bars { min-width: 8rem; }
@media print { .scroll { overflow: visible; } h2 { break-after: avoid; } }
"""


def render_html_page(page: BlockPage) -> str:
    """A whole HTML page without external files or scripts. Texts are escaped."""
    title = next((block.text for block in page if isinstance(block, Heading)), "")
    body = "\n".join(map(_block, page))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape_html_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _block(block: PageBlock) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{escape_html_text(text)}</h{level}>"
        case Sentence(text, tone):
            return f'<p class="{tone}">{escape_html_text(text)}</p>'
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escape_html_text(item)}</li>" for item in items) + "</ul>"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_right(is_right_aligned(table, at))}>{escape_html_text(name)}</th>'
        for at, name in enumerate(table.head)
    )
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in table.rows)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>'


def _cell(cell: Cell) -> str:
    said = escape_html_text(cell.text) + (f"<small>{escape_html_text(cell.note)}</small>" if cell.note else "")
    if cell.share is None:
        return f"<td{_right(cell.number)}>{said}</td>"
    width = round(100 * min(max(cell.share, 0.0), 1.0), 1)
    return f'<td class="number bars">{said}<span class="bar" style="width: {width:g}%"></span></td>'


def _right(number: bool) -> str:
    return ' class="number"' if number else ""


def escape_html_text(text: str) -> str:
    """No markup, and nothing that a browser would obey, reorder or hide."""
    return entities.escape(escape_controls(text))
