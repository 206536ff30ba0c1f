"""Whether selections share a topic, decided on the patterns themselves (product of automata), never by sampling.

A constraint is a selection seen through a rename: it holds for a birth name X when it selects `before + X + after`.
Include, exclude and the internal names are all part of it, so the answer is exact; when the product grows beyond its
bound the answer is "perhaps" and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from topology import automaton
from topology.automaton import Automaton
from topology.selectors import INTERNAL, MAX_PRODUCT, Selector, TopicSelection

MAX_PAIRS = 10_000
MAX_EXAMPLES = 20
Constraint = tuple[str, str, TopicSelection]


@dataclass(frozen=True, slots=True)
class Common:
    """found: some name satisfies all constraints. name: the shortest one; certain: the search was complete."""

    found: bool
    name: str | None = None
    certain: bool = True


@lru_cache(maxsize=65_536)
def common(constraints: frozenset[Constraint]) -> Common:
    """Breadth first over the product; the first hit is the shortest name, the same on every machine."""
    ordered = sorted(constraints, key=lambda each: (each[0], each[1], str(each[2])))
    sides: list[tuple[Automaton, Automaton, str]] = []
    begin: list[frozenset[int]] = []
    masks: set[int] = set()
    for before, after, selection in ordered:
        inside, outside = _included(selection.include), _excluded(selection.exclude)
        sides.append((inside, outside, after))
        begin += [inside.run(before, inside.start), outside.run(before, outside.start)]
        masks |= inside.masks() | outside.masks()
    chars = automaton.letters(masks)
    todo: list[tuple[tuple[frozenset[int], ...], str]] = [(tuple(begin), "")]
    seen = {tuple(begin)}
    for states, text in todo:
        if text and _accepts(sides, states):
            return Common(True, text)
        for char in chars:
            following = tuple(
                side.step(state, char)
                for side, state in zip((half for side in sides for half in side[:2]), states, strict=True)
            )
            if all(following[::2]) and following not in seen:
                if len(seen) >= MAX_PRODUCT:
                    return Common(True, None, certain=False)
                seen.add(following)
                todo.append((following, text + char))
    return Common(False)


def shares(constraints: frozenset[Constraint]) -> Common:
    """Like `common`, without promising the shortest name: most answers come from the fixed beginnings of patterns and
    from a few names that the patterns themselves suggest, in microseconds instead of milliseconds."""
    known = _SHARES.get(constraints)
    if known is None:
        if len(_SHARES) > 500_000:
            _SHARES.clear()
        known = _SHARES[constraints] = _quick(constraints) or common(constraints)
    return known


_SHARES: dict[frozenset[Constraint], Common] = {}


def fixed(constraints: frozenset[Constraint]) -> tuple[str, ...]:
    """Beginnings, one of which every birth name of the constraints has; sorted. Empty when no name can satisfy them."""
    whole: tuple[str, ...] | None = None
    for before, after, selection in constraints:
        found = {inner for text in selection.prefixes if (inner := _behind(before, text, after)) is not None}
        if whole is None:
            whole = _outermost(found)
        elif len(whole) * len(found) <= MAX_PAIRS:
            pairs = ((one, two) for one in whole for two in found)
            whole = _outermost({max(one, two, key=len) for one, two in pairs if one[: len(two)] == two[: len(one)]})
    return whole or ()


def _quick(constraints: frozenset[Constraint]) -> Common | None:
    """The answer where it is plain to see, else None."""
    if not fixed(constraints):
        return Common(False)
    candidates = set()
    for before, after, selection in constraints:
        for text in selection.examples[:MAX_EXAMPLES]:
            if text.startswith(before) and text.endswith(after) and len(text) > len(before) + len(after):
                candidates.add(text[len(before) : len(text) - len(after)])
    for text in sorted(candidates, key=lambda each: (len(each), each)):
        if holds(constraints, text):
            return Common(True, text)
    return None


def _behind(before: str, text: str, after: str) -> str | None:
    """What a name X begins with when `before + X + after` begins with `text`; None when it cannot."""
    if not text.startswith(before):
        return "" if before.startswith(text) else None
    inner = text[len(before) :]
    ends = (end for end in range(len(inner)) if after.startswith(inner[end:]))
    return inner[: next(ends, len(inner))]


def _outermost(texts: set[str]) -> tuple[str, ...]:
    """Without those that begin with another one."""
    kept: list[str] = []
    for text in sorted(texts):
        if not kept or not text.startswith(kept[-1]):
            kept.append(text)
    return tuple(kept)


def holds(constraints: frozenset[Constraint], name: str) -> bool:
    """Whether this birth name satisfies all of them."""
    return all(selection.selects(f"{before}{name}{after}") for before, after, selection in constraints)


def _accepts(sides: list[tuple[Automaton, Automaton, str]], states: tuple[frozenset[int], ...]) -> bool:
    return all(
        inside.accepts(inside.run(after, states[2 * index]))
        and not outside.accepts(outside.run(after, states[2 * index + 1]))
        for index, (inside, outside, after) in enumerate(sides)
    )


@lru_cache(maxsize=4096)
def _included(selectors: tuple[Selector, ...]) -> Automaton:
    return automaton.union(tuple(selector.automaton() for selector in selectors))


@lru_cache(maxsize=4096)
def _excluded(selectors: tuple[Selector, ...]) -> Automaton:
    internal = tuple(automaton.glob(pattern) for pattern in INTERNAL)
    return automaton.union((*internal, *(selector.automaton() for selector in selectors)))
