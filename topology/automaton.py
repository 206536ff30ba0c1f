"""Globs and regular expressions over topic names, as small automata: linear matching and exact intersection.

The alphabet is Kafka's: letters, digits, `.`, `_`, `-` (apache/kafka Topic.java LEGAL_CHARS). A set of characters is
one integer used as a bit mask. The regex language is what RE2 accepts without assertions: literals, `.`, classes,
groups, alternation and repetition; back-references and look-around are refused, so a match never backtracks.
"""

from __future__ import annotations

from functools import lru_cache

from topology.errors import BadSelector

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
BIT = {char: 1 << index for index, char in enumerate(ALPHABET)}
ANY = (1 << len(ALPHABET)) - 1
CLASSES = {
    "d": sum(BIT[c] for c in "0123456789"),
    "w": ANY & ~BIT["."] & ~BIT["-"],
    "s": 0,
}
_STRIPPED = str.maketrans("", "", ALPHABET)
MAX_REPEAT = 250
MAX_STATES = 5_000


class Automaton:
    """A nondeterministic automaton; a run is a frozen set of states, so matching costs time in the name's length."""

    __slots__ = ("_steps", "accept", "edges", "empty", "start")

    def __init__(self) -> None:
        self.edges: list[list[tuple[int, int]]] = []  # state -> (mask, next)
        self.empty: list[list[int]] = []  # state -> next without reading
        self.start: frozenset[int] = frozenset()
        self.accept = -1
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def state(self) -> int:
        if len(self.edges) >= MAX_STATES:
            raise BadSelector("the pattern is too large; write several smaller ones")
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def closure(self, states: set[int]) -> frozenset[int]:
        todo = list(states)
        while todo:
            for following in self.empty[todo.pop()]:
                if following not in states:
                    states.add(following)
                    todo.append(following)
        return frozenset(states)

    def step(self, states: frozenset[int], char: str) -> frozenset[int]:
        known = self._steps.get((states, char))
        if known is None:
            bit = BIT[char]
            known = self.closure({to for state in states for mask, to in self.edges[state] if mask & bit})
            self._steps[states, char] = known
        return known

    def run(self, text: str, states: frozenset[int]) -> frozenset[int]:
        """The states after reading `text`."""
        for char in text:
            if char not in BIT or not states:
                return frozenset()
            states = self.step(states, char)
        return states

    def accepts(self, states: frozenset[int]) -> bool:
        return self.accept in states

    def matches(self, text: str) -> bool:
        return self.accepts(self.run(text, self.start))

    def masks(self) -> set[int]:
        """The character sets it distinguishes."""
        return {mask for edges in self.edges for mask, _ in edges}


def is_name(text: str) -> bool:
    """Whether it has only characters of the alphabet."""
    return not text.translate(_STRIPPED)


@lru_cache(maxsize=4096)
def literal(text: str) -> Automaton:
    """The automaton of exactly this name."""
    return _chain([(_bit(char, text), False) for char in text])


@lru_cache(maxsize=4096)
def glob(text: str) -> Automaton:
    """`*` is any text (also none), `?` one character, everything else itself. Raises BadSelector."""
    return _chain([(ANY, char == "*") if char in "*?" else (_bit(char, text), False) for char in text])


@lru_cache(maxsize=4096)
def regex(text: str) -> Automaton:
    """Full match. Raises BadSelector for anything that is not a regular language, or not well formed."""
    parser = _Regex(text)
    automaton = parser.automaton
    first, last = parser.alternatives()
    if parser.position < len(text):
        raise parser.error("`)` without its `(`")
    automaton.start, automaton.accept = automaton.closure({first}), last
    return automaton


def union(parts: tuple[Automaton, ...]) -> Automaton:
    """Accepts what any part accepts; nothing when there is none."""
    whole = Automaton()
    whole.accept = whole.state()
    starts: set[int] = set()
    for part in parts:
        offset = len(whole.edges)
        for edges, empty in zip(part.edges, part.empty, strict=True):
            whole.edges.append([(mask, to + offset) for mask, to in edges])
            whole.empty.append([to + offset for to in empty])
        whole.empty[part.accept + offset].append(whole.accept)
        starts |= {state + offset for state in part.start}
    whole.start = whole.closure(starts)
    return whole


def letters(masks: set[int]) -> list[str]:
    """One character for each class of characters that no mask tells apart, in alphabet order."""
    ordered, seen, chosen = sorted(masks), set(), []
    for char in ALPHABET:
        signature = tuple(bool(mask & BIT[char]) for mask in ordered)
        if signature not in seen:
            seen.add(signature)
            chosen.append(char)
    return chosen


def _bit(char: str, text: str) -> int:
    if char not in BIT:
        raise BadSelector(
            f"`{char}` in `{text}` cannot be part of a topic name (letters, digits, `.`, `_`, `-`)"
            + ("; in a glob only `*` and `?` are special" if char in "[]{}" else "")
        )
    return BIT[char]


def _chain(parts: list[tuple[int, bool]]) -> Automaton:
    automaton = Automaton()
    here = first = automaton.state()
    for mask, loop in parts:
        if loop:
            automaton.edges[here].append((mask, here))
        else:
            following = automaton.state()
            automaton.edges[here].append((mask, following))
            here = following
    automaton.start, automaton.accept = frozenset({first}), here
    return automaton


class _Regex:
    """Recursive descent; each method builds its part and returns (first state, last state)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.automaton = Automaton()

    def error(self, what: str) -> BadSelector:
        return BadSelector(f"regex `{self.text}`, character {self.position + 1}: {what}")

    def alternatives(self) -> tuple[int, int]:
        first, last = self.automaton.state(), self.automaton.state()
        while True:
            begin, end = self._sequence()
            self.automaton.empty[first].append(begin)
            self.automaton.empty[end].append(last)
            if self._peek() != "|":
                return first, last
            self.position += 1

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _sequence(self) -> tuple[int, int]:
        first = here = self.automaton.state()
        while (char := self._peek()) and char not in "|)":
            if (char == "^" and self.position == 0) or (char == "$" and self.position == len(self.text) - 1):
                self.position += 1  # a full match is anchored anyway
                continue
            here = self._repeated(here)
        return first, here

    def _repeated(self, here: int) -> int:
        begin_text = self.position
        low, high = 1, 1
        self._skip_atom()
        end_text = self.position
        char = self._peek()
        if char and char in "*+?":
            low, high = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[char]
            self.position += 1
        elif char == "{":
            low, high = self._bounds()
        if self._peek() and self._peek() in "?+*" and end_text != self.position:
            if self._peek() != "?":
                raise self.error("two repetitions in a row; use a group")
            self.position += 1  # lazy: the same language
        after = self.position
        for number in range(max(low, high, 1)):
            if number == 0 and high == 0:
                break
            begin, end = self._atom(begin_text)
            self.automaton.empty[here].append(begin)
            following = self.automaton.state()
            self.automaton.empty[end].append(following)
            if number >= low:
                self.automaton.empty[here].append(following)
            if high == -1 and number == max(low, 1) - 1:
                self.automaton.empty[end].append(begin)
            here = following
        self.position = after
        return here

    def _skip_atom(self) -> None:
        spare, self.automaton = self.automaton, Automaton()
        try:
            self._atom(self.position)
        finally:
            self.automaton = spare

    def _bounds(self) -> tuple[int, int]:
        close = self.text.find("}", self.position)
        inside = self.text[self.position + 1 : close] if close > 0 else ""
        low, comma, high = inside.partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()):
            raise self.error("`{` begins a repetition: write `{2}`, `{2,}` or `{2,5}`")
        bounds = int(low), (int(high) if high else -1) if comma else int(low)
        if max(bounds) > MAX_REPEAT or (bounds[1] != -1 and bounds[0] > bounds[1]):
            raise self.error(f"repetition out of range (at most {MAX_REPEAT})")
        self.position = close + 1
        return bounds

    def _atom(self, position: int) -> tuple[int, int]:
        self.position = position
        char = self._peek()
        if char == "(":
            return self._group()
        if char in "*+?{":
            raise self.error(f"`{char}` repeats nothing")
        if char in "^$":
            raise self.error(f"`{char}` in the middle; a regex here always matches the whole name")
        self.position += 1
        if char == ".":
            mask = ANY
        elif char == "[":
            mask = self._class()
        elif char == "\\":
            mask = self._escape()
        else:
            mask = BIT.get(char, 0)
        first, last = self.automaton.state(), self.automaton.state()
        self.automaton.edges[first].append((mask, last))
        return first, last

    def _group(self) -> tuple[int, int]:
        self.position += 1
        if self._peek() == "?":
            if self.text.startswith("?:", self.position):
                self.position += 2
            else:
                raise self.error("look-around, flags and named groups are not part of the language; use `(?:…)`")
        first, last = self.alternatives()
        if self._peek() != ")":
            raise self.error("`(` is never closed")
        self.position += 1
        return first, last

    def _escape(self) -> int:
        char = self._peek()
        self.position += 1
        if char.lower() in CLASSES and char:
            return CLASSES[char] if char.islower() else ANY & ~CLASSES[char.lower()]
        if not char or char.isalnum():
            self.position -= 1
            raise self.error(f"`\\{char}` is not part of the language (no back-references, no assertions)")
        return BIT.get(char, 0)

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
                    raise self.error(f"bad range `{begin}-{end}`")
                self.position += 2
                mask |= sum(bit for char, bit in BIT.items() if begin <= char <= end)
            else:
                mask |= BIT.get(begin, 0)
        self.position += 1
        return ANY & ~mask if negated else mask
