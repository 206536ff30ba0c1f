"""Globs and regular expressions over topic names, as small automata: linear matching and exact intersection.

The alphabet is Kafka's (`topology.regex`). A machine is made of the pattern's letters (Glushkov 1961): a state is a set
of letters just read, as the bits of one integer, so a step is one union and one mask however ambiguous a pattern is.
Machines are built when they are first asked something; that a pattern is legal is known before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from functools import cached_property, lru_cache

from watershed.topology import regex as tree
from watershed.topology.errors import BadSelector
from watershed.topology.regex import (
    ANY_LETTER_MASK,
    LETTER_BITS,
    MAX_PATTERN_LETTERS,
    MAX_TOPIC_NAME_LETTERS,
    TOPIC_LETTERS,
    RegexPart,
)
from watershed.topology.text_escaping import shorten_and_escape

_ONE = tuple(
    1 << position for position in range(MAX_PATTERN_LETTERS + 1)
)  # shared: most states are followed by one other
_START = 1
DEAD_STATE = 0
_STRIPPED = str.maketrans("", "", TOPIC_LETTERS)


class Automaton:
    """A pattern that can be run. States are integers: bit 0 before the first letter, bit n for the n-th."""

    def __init__(self, pattern: RegexPart) -> None:
        self.pattern = pattern
        self._followed: dict[int, int] = {}

    start: int = _START

    @property
    def size(self) -> int:
        """Its letters, repetitions written out."""
        return self.pattern.size

    def step(self, state: int, char: str) -> int:
        """`char` is of the alphabet."""
        following = self._followed.get(state)
        if following is None:
            following, follow = 0, self._built.follow
            for position in _positions(state):
                following |= follow[position]
            if len(self._followed) > 10_000:
                self._followed.clear()
            self._followed[state] = following
        return following & self._reads[char]

    def run(self, text: str, state: int) -> int:
        """The state after reading `text`; DEAD when nothing in the language begins like that."""
        for char in text:
            if char not in LETTER_BITS or not state:
                return DEAD_STATE
            state = self.step(state, char)
        return state

    def accepts(self, state: int) -> bool:
        """True if the text that leads to this state is a name of the language."""
        return bool(state & self._built.last)

    def endless(self, state: int) -> bool:
        """Whether everything that begins like this is accepted, as behind the last `*` of `orders*`."""
        return bool(state & self._built.endless)

    def matches(self, text: str) -> bool:
        """True if the language contains this name."""
        return self.accepts(self.run(text, self.start))

    def is_empty(self) -> bool:
        """Whether no name is in the language: what it needs is no letter of a topic's name, such as `/`."""
        readable = 0
        for positions in self._reads.values():
            readable |= positions
        seen = todo = self.start
        while todo:
            following = 0
            for position in _positions(todo):
                following |= self._built.follow[position]
            todo = following & readable & ~seen
            seen |= todo
        return not self.accepts(seen)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """A number for each letter of the alphabet; letters of one number are never told apart."""
        known: dict[int, int] = {}
        return tuple(known.setdefault(self._reads[char], len(known)) for char in TOPIC_LETTERS)

    @cached_property
    def _built(self) -> _Build:
        return _Build(self.pattern)

    @cached_property
    def _reads(self) -> dict[str, int]:
        """char -> the positions that read it."""
        by_mask: dict[int, int] = {}
        for position, mask in enumerate(self._built.masks):
            by_mask[mask] = by_mask.get(mask, 0) | _ONE[position]
        reads = dict.fromkeys(TOPIC_LETTERS, 0)
        for mask, positions in by_mask.items():
            for index in _positions(mask):
                reads[TOPIC_LETTERS[index]] |= positions
        return reads


class _NameSetAutomaton:
    """Accepts some exact names, however many. A state is (first, end, length): a range of the sorted names that begin
    with the same `length` letters."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = sorted(name for name in names if LETTER_BITS.keys() >= set(name))
        self.start = (0, len(self.names), 0)

    @property
    def size(self) -> int:
        return len(self.names)

    def step(self, state: tuple[int, int, int], char: str) -> tuple[int, int, int] | None:
        first, end, length = state
        text = self.names[first][:length] + char
        first = bisect_left(self.names, text, first, end)
        end = bisect_left(self.names, text + "\x7f", first, end)
        return (first, end, length + 1) if first < end else None

    def endless(self, state: tuple[int, int, int]) -> bool:
        return False

    def accepts(self, state: tuple[int, int, int]) -> bool:
        return state[0] < state[1] and len(self.names[state[0]]) == state[2]

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        used = set().union(*self.names)
        return tuple(index + 1 if char in used else 0 for index, char in enumerate(TOPIC_LETTERS))


class UnionAutomaton:
    """Accepts what any part accepts. States are small integers, DEAD when no part goes on."""

    def __init__(self, names: frozenset[str], patterns: tuple[Automaton, ...]) -> None:
        self.parts: tuple[_NameSetAutomaton | Automaton, ...] = (
            (_NameSetAutomaton(names),) if names else ()
        ) + patterns
        self.size = sum(part.size for part in self.parts)
        self._forget()

    def _forget(self) -> None:
        self._states: list[tuple[tuple[int, Hashable], ...]] = [()]
        self._numbers: dict[tuple[tuple[int, Hashable], ...], int] = {(): DEAD_STATE}
        self._steps: dict[tuple[int, str], int] = {}
        self._weight = [0]
        self._endless = [False]
        self._weights = 0
        self.start = self._number(tuple((index, part.start) for index, part in enumerate(self.parts)))

    def begin(self) -> int:
        """The first state of a search; states of the search before are forgotten when they have become too many."""
        if self._weights > 200_000 or len(self._steps) > 200_000:
            self._forget()
        return self.start

    def step(self, state: int, char: str) -> int:
        """The state after one more letter; DEAD_STATE if no name begins like that."""
        known = self._steps.get((state, char))
        if known is None:
            following = []
            for index, inside in self._states[state]:
                after = self.parts[index].step(inside, char)  # type: ignore[arg-type]  # a part's own state
                if after:
                    following.append((index, after))
            known = self._steps[state, char] = self._number(tuple(following))
        return known

    def run(self, text: str, state: int) -> int:
        """The state after reading `text`."""
        for char in text:
            if char not in LETTER_BITS or not state:
                return DEAD_STATE
            state = self.step(state, char)
        return state

    def accepts(self, state: int) -> bool:
        """True if one of the parts accepts."""
        return any(self.parts[index].accepts(inside) for index, inside in self._states[state])  # type: ignore[arg-type]

    def endless(self, state: int) -> bool:
        """Whether everything that begins like this is accepted; it may be so and not be seen."""
        return self._endless[state]

    def cost(self, state: int, letters: int) -> int:
        """How much work a step from a state by each of `letters` letters is, the same on every machine."""
        return self._weight[state] + letters * (1 + len(self._states[state]) // 3)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """As `kinds` of one automaton: letters of one number are the same to every part."""
        return merge_letter_kinds([part.kinds for part in self.parts])

    def _number(self, state: tuple[tuple[int, Hashable], ...]) -> int:
        known = self._numbers.get(state)
        if known is None:
            known = self._numbers[state] = len(self._states)
            self._states.append(state)
            weight = sum(inside.bit_count() if isinstance(inside, int) else 1 for _, inside in state)
            self._weight.append(weight)
            self._endless.append(any(self.parts[index].endless(inside) for index, inside in state))  # type: ignore[arg-type]
            self._weights += weight
        return known


def merge_letter_kinds(kinds: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Kinds of letters that none of several machines tells apart."""
    known: dict[tuple[int, ...], int] = {}
    return tuple(known.setdefault(each, len(known)) for each in zip(*kinds, strict=True)) or (0,) * len(TOPIC_LETTERS)


def pick_letter_per_kind(kinds: tuple[int, ...]) -> list[str]:
    """One letter of each kind, in alphabet order."""
    first = dict(zip(reversed(kinds), reversed(TOPIC_LETTERS), strict=True))
    return sorted(first.values(), key=TOPIC_LETTERS.index)


def has_only_topic_letters(text: str) -> bool:
    """Whether it has only characters of the alphabet."""
    return not text.translate(_STRIPPED)


@lru_cache(maxsize=1024)
def compile_literal(text: str) -> Automaton:
    """The automaton of exactly this name. Raises BadSelector."""
    return Automaton(tree.build_sequence(tree.build_letter(_bit(char, text)) for char in text))


@lru_cache(maxsize=1024)
def compile_glob(text: str) -> Automaton:
    """`*` is any text (also none), `?` one character, everything else itself. Raises BadSelector."""
    if len(text) > MAX_PATTERN_LETTERS:
        raise BadSelector(f"the glob has {len(text)} characters; a topic's name has at most {MAX_TOPIC_NAME_LETTERS}")
    star = tree.build_repetition(tree.build_letter(ANY_LETTER_MASK), 0, -1)
    parts = []
    for index, char in enumerate(text):
        if char != "*":
            parts.append(tree.build_letter(ANY_LETTER_MASK if char == "?" else _bit(char, text)))
        elif text[index - 1 : index] != "*":
            parts.append(star)
    return Automaton(tree.build_sequence(parts))


@lru_cache(maxsize=1024)
def compile_regex(text: str) -> Automaton:
    """Full match. Raises BadSelector for anything that is not a regular language, not well formed or too large."""
    return Automaton(tree.parse_regex(text))


def _bit(char: str, text: str) -> int:
    if char not in LETTER_BITS:
        raise BadSelector(
            (
                f"`{shorten_and_escape(char)}` in `{shorten_and_escape(text)}` cannot be part of a topic name "
                f"(letters, digits, `.`, `_`, `-`)"
            )
            + ("; in a glob only `*` and `?` are special" if char in "[]{}" else "")
        )
    return LETTER_BITS[char]


def _positions(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class _Build:
    """masks: position -> the letters it reads. follow: position -> the positions that may come next. last: where the
    language ends; endless: those of them that read on whatever comes. Position 0 stands before the first letter."""

    def __init__(self, pattern: RegexPart) -> None:
        self.masks = [0]
        self.follow = [0]
        first, last, empty = self._part(pattern)
        self._link(_START, first)
        self.last = last | (_START if empty else 0)
        loops = (bit for bit in map(_ONE.__getitem__, _positions(last)) if self.follow[bit.bit_length() - 1] & bit)
        self.endless = sum(bit for bit in loops if self.masks[bit.bit_length() - 1] == ANY_LETTER_MASK)

    def _part(self, part: RegexPart) -> tuple[int, int, bool]:
        """(positions it can begin with, positions it can end with, whether it can be empty)."""
        if part.kind == "char":
            self.masks.append(part.mask)
            self.follow.append(0)
            here = _ONE[len(self.masks) - 1]
            return here, here, False
        if part.kind == "alt":
            return self._either(part)
        return self._repeated(part) if part.kind == "rep" else self._sequence(part)

    def _either(self, part: RegexPart) -> tuple[int, int, bool]:
        first, last, empty = 0, 0, False
        for each in part.parts:
            begins, ends, nothing = self._part(each)
            first, last, empty = first | begins, last | ends, empty or nothing
        return first, last, empty

    def _sequence(self, part: RegexPart) -> tuple[int, int, bool]:
        first, last, empty = 0, 0, True
        for each in part.parts:
            begins, ends, nothing = self._part(each)
            self._link(last, begins)
            first |= begins if empty else 0
            last = ends | (last if nothing else 0)
            empty = empty and nothing
        return first, last, empty

    def _repeated(self, part: RegexPart) -> tuple[int, int, bool]:
        """Copies in a row; each may be the last once there are enough. Copies that can be empty count as not there."""
        first, last, empty = begins, ends, _ = self._part(part.parts[0])
        low = 0 if empty else part.low
        last = ends if low <= 1 else 0
        for number in range(2, max(part.low, part.high, 1) + 1):
            before = ends
            begins, ends, _ = self._part(part.parts[0])
            self._link(before, begins)
            last |= ends if number >= low else 0
        if part.high == -1:
            self._link(ends, begins)
        return first, last, low == 0

    def _link(self, ends: int, begins: int) -> None:
        for position in _positions(ends):
            self.follow[position] = self.follow[position] | begins if self.follow[position] else begins
