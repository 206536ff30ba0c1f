"""The known word that a mistyped one most likely meant."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_WORD = 64  # longer is no slip of the keyboard, and costs


def suggest_word(word: str, known: Iterable[str]) -> str | None:
    """Smallest edit distance, at most a third of the word; the first in sorted order on a tie; None if none is near."""
    if len(word) > _MAX_WORD:
        return None
    best, found = max(1, len(word) // 3) + 1, None
    for candidate in sorted(known):
        gap = _distance(word.lower(), candidate.lower(), best)
        if gap < best:
            best, found = gap, candidate
    return found


def _distance(a: str, b: str, bound: int) -> int:
    """Edits (with neighbours swapped as one) from a to b, or `bound` when there are at least so many."""
    if abs(len(a) - len(b)) >= bound:
        return bound
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, above, row = row, before, [i]
        for j, right in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return min(row[-1], bound)
