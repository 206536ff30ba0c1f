"""A page before it is Markdown or HTML: headings, sentences, lists, tables whose cells may carry a bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Heading:
    """level 1 is the page's title."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """tone `warning` where the reader should stop."""

    text: str
    tone: Literal["plain", "note", "warning"] = "plain"


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of short texts."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """share, from 0 to 1, draws a bar; number: set to the right; note: said smaller below."""

    text: str
    share: float | None = None
    number: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A column is set to the right when its first cell is a number."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


PageBlock = Heading | Sentence | Bullets | Table
BlockPage = tuple[PageBlock, ...]


def is_right_aligned(table: Table, column: int) -> bool:
    """Whether a column is set to the right."""
    return bool(table.rows) and table.rows[0][column].number
