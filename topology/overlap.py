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
