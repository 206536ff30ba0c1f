"""A page as Markdown (GitHub's tables)."""

from __future__ import annotations

import re

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


def render_markdown_page(page: BlockPage) -> str:
    """Blocks with an empty line between them. Names of clusters and topics are escaped: they cannot become markup."""
    return "\n\n".join(map(_block, page)) + "\n"


def _block(block: PageBlock) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {_safe(text)}"
        case Sentence(text, tone):
            return {"plain": "{}", "note": "*{}*", "warning": "> **{}**"}[tone].format(_safe(text))
        case Bullets(items):
            return "\n".join(f"- {_safe(item)}" for item in items)
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    lines = [table.head, tuple("---:" if is_right_aligned(table, at) else "---" for at in range(len(table.head)))]
    lines += [tuple(map(_cell, row)) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    return _safe(f"{cell.text} ({cell.note})" if cell.note else cell.text)


def _safe(text: str) -> str:
    """Names come from clusters: nothing in them may become markup or break a row."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", escape_controls(re.sub(r"[^\S\x1c-\x1f]", " ", text)))
