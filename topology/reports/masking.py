"""A source line without anything that looks like a secret, and where everything else then stands."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

# None of them looks at a letter again for every place before it: a line may have a million letters.
_SECRET = re.compile(
    r"(?i)((?:password|passwd|passphrase|\bpwd|\bpass|\bpw|secret|token|sasl[._]jaas[._]config|api[._-]?key"
    r"|(?:access|private|secret)[._-]?key|userinfo|\bcreds?|\bcredential)[\"']?\s*[:=]\s*)(\S.*)"
)
_CREDENTIALS = re.compile(r"(credentials\s*:\s+)([^{\s].*)")
_URL = re.compile(r"(://)([^/@\s]+)@")
_PEM = re.compile(r"()(-----BEGIN.*|[A-Za-z0-9+/]{48,}={0,2})")
_TOKEN = re.compile(r"(\b(?:Bearer|Basic)\s+)([\w.~+/=-]{16,})")
_KEY = re.compile(r"()(\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w.-]{8,}|\bgh[pousr]_\w+)")


@dataclass(frozen=True, slots=True)
class _MaskedLine:
    """`text` is the line with `…` for each hole; begins and ends are the holes' places in the line, in order; shifts[n]
    is by how much text behind n holes has moved to the left."""

    text: str
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    shifts: tuple[int, ...] = (0,)

    def at(self, index: int) -> int:
        """Where in `text` a place of the line is; all of a hole is at its `…`."""
        number = bisect_right(self.begins, index)
        if number and index < self.ends[number - 1]:
            return self.begins[number - 1] - self.shifts[number - 1]
        return index - self.shifts[number]


@lru_cache(maxsize=64)
def mask_secrets(line: str) -> _MaskedLine:
    """Remembers a few lines: the findings of a file in one line all ask for the same."""
    begins: list[int] = []
    ends: list[int] = []
    for begin, end in sorted(_holes(line)):
        if ends and begin <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            begins.append(begin)
            ends.append(end)
    if not begins:
        return _MaskedLine(line)
    kept = [line[end:begin] for end, begin in zip([0, *ends], [*begins, len(line)], strict=True)]
    shifts = [0]
    for begin, end in zip(begins, ends, strict=True):
        shifts.append(shifts[-1] + end - begin - 1)
    return _MaskedLine("…".join(kept), tuple(begins), tuple(ends), tuple(shifts))


def _holes(line: str) -> Iterator[tuple[int, int]]:
    for pattern in (_TOKEN, _KEY, _PEM, _URL, _CREDENTIALS, _SECRET):
        for match in pattern.finditer(line):
            yield match.span(2)
