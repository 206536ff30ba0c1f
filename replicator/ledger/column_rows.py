"""Rows of numbers in columns: a million runs are some 16 MB, not a million tuples.

A `Rows` reads like a tuple of its rows and is never changed once it was handed out.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import eq
from typing import Any, Final, Generic, TypeVar, overload

_Row = TypeVar("_Row", bound="tuple[int, ...]")

_SHOWN: Final = 8  # rows of a repr


class ColumnRows(Sequence[_Row], Generic[_Row]):
    """Rows of one NamedTuple of integers (64 bits, with a sign). columns: one array (typecode q) a field."""

    __slots__ = ("columns", "kind")

    def __init__(self, kind: type[_Row], columns: Iterable[array[int]]) -> None:
        self.kind, self.columns = kind, tuple(columns)

    @staticmethod
    def of(kind: type[_Row], rows: Iterable[_Row]) -> ColumnRows[_Row]:
        """These rows, as they are when they are columns already. Raises OverflowError beyond 64 bits."""
        if isinstance(rows, ColumnRows):
            return rows
        found = tuple(rows)
        fields = len(kind._fields)  # type: ignore[attr-defined]
        return ColumnRows(kind, (array("q", [row[at] for row in found]) for at in range(fields)))

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, at: int) -> _Row: ...
    @overload
    def __getitem__(self, at: slice) -> ColumnRows[_Row]: ...
    def __getitem__(self, at: int | slice) -> _Row | ColumnRows[_Row]:
        if isinstance(at, slice):
            return ColumnRows(self.kind, (column[at] for column in self.columns))
        make: Callable[..., _Row] = self.kind
        return make(*[column[at] for column in self.columns])

    def __iter__(self) -> Iterator[_Row]:
        return map(self.kind, *self.columns)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ColumnRows):
            return self.columns == other.columns
        if isinstance(other, Sequence):
            return len(self) == len(other) and all(map(eq, self, other))
        return NotImplemented

    def __hash__(self) -> int:
        return hash((len(self), self[-1] if self else ()))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, islice(self, _SHOWN)))
        return f"({shown}, … {len(self)} in all)" if len(self) > _SHOWN else f"({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnRows, (self.kind, self.columns)
