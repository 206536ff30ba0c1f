"""A regular expression over topic names as a tree: literals, `.`, classes, groups, alternation and repetition.

This is what RE2 accepts without assertions: back-references, look-around, flags and anchors inside are refused, so a
pattern is a regular language and a match never backtracks. Reading costs time in the text's length whatever the
repetitions say: a tree knows how many characters it holds once they are written out, and is refused when those are too
many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from watershed.topology.errors import BadSelector
from watershed.topology.text_escaping import shorten_and_escape

# a topic's letters: apache/kafka Topic.java LEGAL_CHARS
MAX_TOPIC_NAME_LETTERS = 249  # apache/kafka Topic.java
TOPIC_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
LETTER_BITS = {char: 1 << index for index, char in enumerate(TOPIC_LETTERS)}
ANY_LETTER_MASK = (1 << len(TOPIC_LETTERS)) - 1
_CLASSES = {
    "d": sum(LETTER_BITS[c] for c in "0123456789"),
    "w": ANY_LETTER_MASK & ~LETTER_BITS["."] & ~LETTER_BITS["-"],
    "s": 0,
}
_MAX_REPEAT = 250
MAX_PATTERN_LETTERS = 2_000
_MAX_LINKS = 100_000
_MAX_TEXT = 10_000
_MAX_GROUPS = 50


@dataclass(frozen=True, slots=True)
class RegexPart:
    """char: one letter of `mask`. cat, alt: of `parts`. rep: parts[0], `low` to `high` times (-1: without end).
    size: letters when every repetition is written out; a part of size 0 is the empty text. empty: it can be the empty
    text. ends: at how many letters it can end; links: how many pairs of neighbours it has, at most."""

    kind: Literal["char", "cat", "alt", "rep"]
    size: int
    mask: int = 0
    parts: tuple[RegexPart, ...] = ()
    low: int = 1
    high: int = 1
    empty: bool = False
    ends: int = 1
    links: int = 0

    def __post_init__(self) -> None:
        if self.size > MAX_PATTERN_LETTERS or self.links > _MAX_LINKS:
            raise BadSelector(
                f"the pattern is too large: written out it has more than {MAX_PATTERN_LETTERS} letters or too "
                f"many optional "
                "parts in a row; use `*`, `+` or smaller repetitions, or write several selectors"
            )


_EMPTY = RegexPart("cat", 0, empty=True, ends=0)


def build_letter(mask: int) -> RegexPart:
    """One letter of a set; a set without letters matches nothing."""
    return RegexPart("char", 1, mask)


def build_sequence(parts: Iterable[RegexPart]) -> RegexPart:
    """One after the other. Raises BadSelector when it is too large."""
    filled = tuple(part for part in parts if part.size)
    if len(filled) < 2:
        return filled[0] if filled else _EMPTY
    size = ends = links = 0
    for part in filled:
        size, links = size + part.size, links + part.links + ends
        ends = part.ends + (ends if part.empty else 0)
    return RegexPart("cat", size, parts=filled, empty=all(part.empty for part in filled), ends=ends, links=links)


def build_alternatives(parts: list[RegexPart]) -> RegexPart:
    """One of them. Raises BadSelector when it is too large."""
    filled = tuple(part for part in parts if part.size)
    if not filled:
        return _EMPTY
    either = filled[0]
    if len(filled) > 1:
        size, ends, links = (sum(each) for each in zip(*((p.size, p.ends, p.links) for p in filled), strict=True))
        empty = any(part.empty for part in filled)
        either = RegexPart("alt", size, parts=filled, empty=empty, ends=ends, links=links)
    return either if len(filled) == len(parts) else build_repetition(either, 0, 1)


def build_repetition(part: RegexPart, low: int, high: int) -> RegexPart:
    """low to high times, high -1 for any number. Raises BadSelector when it is too large."""
    if not part.size or high == 0:
        return _EMPTY
    if (low, high) == (1, 1):
        return part
    copies = max(low, high, 1)
    ends = part.ends * (copies if part.empty else copies - max(low, 1) + 1)
    size, links = part.size * copies, (part.links + part.ends) * copies
    return RegexPart(
        "rep", size, parts=(part,), low=low, high=high, empty=part.empty or not low, ends=ends, links=links
    )


def parse_regex(text: str) -> RegexPart:
    """Raises BadSelector for anything that is not a regular language, not well formed or too large."""
    if len(text) > _MAX_TEXT:
        raise BadSelector(f"the regex has {len(text)} characters, more than {_MAX_TEXT}; write several selectors")
    reader = _Reader(text)
    tree = reader.alternatives(0)
    if reader.position < len(text):
        raise reader.error("`)` without its `(`")
    return tree


class _Reader:
    """Recursive descent, one level of calls for each group."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def error(self, what: str) -> BadSelector:
        return BadSelector(f"regex `{shorten_and_escape(self.text)}`, character {self.position + 1}: {what}")

    def alternatives(self, depth: int) -> RegexPart:
        if depth > _MAX_GROUPS:
            raise self.error(f"groups nested deeper than {_MAX_GROUPS}; leave the needless parentheses out")
        parts = [self._sequence(depth)]
        while self._peek() == "|":
            self.position += 1
            parts.append(self._sequence(depth))
        return build_alternatives(parts)

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _sequence(self, depth: int) -> RegexPart:
        parts = []
        while (letter := self._peek()) and letter not in "|)":
            if (letter == "^" and self.position == 0) or (letter == "$" and self.position == len(self.text) - 1):
                self.position += 1  # a full match is anchored anyway
                continue
            parts.append(self._repeated(depth))
        return build_sequence(parts)

    def _repeated(self, depth: int) -> RegexPart:
        part = self._atom(depth)
        low, high = 1, 1
        letter = self._peek()
        if letter and letter in "*+?":
            low, high = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[letter]
            self.position += 1
        elif letter == "{":
            low, high = self._bounds()
        else:
            return part
        if self._peek() and self._peek() in "?+*":
            if self._peek() != "?":
                raise self.error("two repetitions in a row; use a group")
            self.position += 1  # lazy: the same language
        return build_repetition(part, low, high)

    def _bounds(self) -> tuple[int, int]:
        close = self.text.find("}", self.position)
        inside = self.text[self.position + 1 : close] if close > 0 else ""
        low, comma, high = inside.partition(",")
        if not _digits(low) or (high and not _digits(high)):
            raise self.error("`{` begins a repetition: write `{2}`, `{2,}` or `{2,5}`")
        if max(len(low), len(high)) > len(str(_MAX_REPEAT)):
            raise self.error(f"repetition out of range (at most {_MAX_REPEAT})")
        bounds = int(low), (int(high) if high else -1) if comma else int(low)
        if max(bounds) > _MAX_REPEAT or (bounds[1] != -1 and bounds[0] > bounds[1]):
            raise self.error(f"repetition out of range (at most {_MAX_REPEAT})")
        self.position = close + 1
        return bounds

    def _atom(self, depth: int) -> RegexPart:
        letter = self._peek()
        if letter == "(":
            return self._group(depth)
        if letter in "*+?{":
            raise self.error(f"`{letter}` repeats nothing")
        if letter in "^$":
            raise self.error(f"`{letter}` in the middle; a regex here always matches the whole name")
        self.position += 1
        if letter == ".":
            return build_letter(ANY_LETTER_MASK)
        if letter == "[":
            return build_letter(self._class())
        return build_letter(self._escape() if letter == "\\" else LETTER_BITS.get(letter, 0))

    def _group(self, depth: int) -> RegexPart:
        self.position += 1
        if self._peek() == "?":
            if not self.text.startswith("?:", self.position):
                raise self.error("look-around, flags and named groups are not part of the language; use `(?:…)`")
            self.position += 2
        inside = self.alternatives(depth + 1)
        if self._peek() != ")":
            raise self.error("`(` is never closed")
        self.position += 1
        return inside

    def _escape(self) -> int:
        letter = self._peek()
        self.position += 1
        if letter and letter.lower() in _CLASSES:
            return _CLASSES[letter] if letter.islower() else ANY_LETTER_MASK & ~_CLASSES[letter.lower()]
        if not letter or letter.isalnum():
            self.position -= 1
            raise self.error(f"`\\{letter}` is not part of the language (no back-references, no assertions)")
        return LETTER_BITS.get(letter, 0)

    def _class(self) -> int:
        negated = self._peek() == "^"
        self.position += negated
        mask, first = 0, True
        while first or self._peek() != "]":
            first = False
            begin = self._peek()
            if not begin:
                raise self.error("`[` is never closed")
            self.position += 1
            if begin == "\\":
                mask |= self._escape()
                continue
            if self._peek() == "-" and self.text[self.position + 1 : self.position + 2] not in ("]", ""):
                end = self.text[self.position + 1]
                if end == "\\" or end < begin:
                    raise self.error(f"bad range `{shorten_and_escape(begin)}-{shorten_and_escape(end)}`")
                self.position += 2
                mask |= sum(bit for letter, bit in LETTER_BITS.items() if begin <= letter <= end)
            else:
                mask |= LETTER_BITS.get(begin, 0)
        self.position += 1
        return ANY_LETTER_MASK & ~mask if negated else mask


def _digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()
