"""Whether selections share a topic, decided on the patterns themselves (product of automata), never by sampling.

A constraint is a selection seen through a rename: it holds for a birth name X when it selects `before + X + after`.
Include, exclude and the internal names are all part of it, so the answer is exact; when the product grows beyond its
bound the answer is "perhaps" and says so. Names end at 249 letters, so the search does too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache

from watershed.topology import pattern_automaton
from watershed.topology.pattern_automaton import UnionAutomaton
from watershed.topology.regex import MAX_TOPIC_NAME_LETTERS
from watershed.topology.selectors import (
    INTERNAL_TOPIC_GLOBS,
    Selector,
    Selectors,
    TopicSelection,
    drop_covered_prefixes,
)

NameConstraint = tuple[str, str, TopicSelection]
# Units of work: about a microsecond each. The same question always costs the same.
_MAX_WORK = 100_000
_MAX_TOTAL = 500_000
# The work that comparing the patterns of one file may cost: see `limit_overlap_work_for`.
_MAX_WORK_PER_FLOW = 300
# Renames pile constraints up, hop by hop; a question with few of them is not worth counting.
_FEW = 8
_WORK_PER_CONSTRAINT = 8


@dataclass(frozen=True, slots=True)
class _SelectionOverlap:
    """found: some name satisfies all constraints. name: the shortest one; certain: the search was complete."""

    found: bool
    name: str | None = None
    certain: bool = True


_PERHAPS = _SelectionOverlap(True, None, certain=False)


def find_shortest_overlap(constraints: frozenset[NameConstraint]) -> _SelectionOverlap:
    """The shortest name, the same on every machine."""
    purse = _PURSE.get()
    if purse is None:
        return _alone(constraints)
    known = purse.known.get(constraints)
    if known is None:
        known, work = _search(constraints, min(_MAX_WORK, purse.left))
        purse.left -= work
        purse.known[constraints] = known
    return known


@contextmanager
def limit_overlap_work(work: int = _MAX_TOTAL) -> Iterator[None]:
    """All comparisons inside share `work` units; after that every answer is "perhaps".

    For one file: the order of its comparisons is the same on every machine, and so are the answers.
    """
    token = _PURSE.set(_Purse(work))
    try:
        yield
    finally:
        _PURSE.reset(token)


def limit_overlap_work_for(flows: int) -> AbstractContextManager[None]:
    """`limit_overlap_work` for a file with so many flows: linear in them, so a large file is compared as well."""
    return limit_overlap_work(_MAX_TOTAL + _MAX_WORK_PER_FLOW * flows)


def find_overlap(constraints: frozenset[NameConstraint]) -> _SelectionOverlap:
    """Like `common`, without promising the shortest name: most answers come from the fixed beginnings of patterns and
    from a few names that the patterns themselves suggest, in microseconds instead of milliseconds."""
    purse = _PURSE.get()
    if purse is not None and len(constraints) > _FEW and constraints not in purse.piled:
        purse.piled.add(constraints)
        purse.left -= _WORK_PER_CONSTRAINT * len(constraints)
        if purse.left < 0:
            return _PERHAPS
    if purse is not None and (told := purse.shared.get(constraints)) is not None:
        return told
    found = _SHARES.get(constraints)
    if found is None:
        quick = _quick(constraints)
        if quick is None and purse is not None and purse.left <= 0:
            return _PERHAPS
        found = (quick, 0) if quick is not None else _search(constraints, _MAX_WORK)
        if len(_SHARES) > 500_000:
            _SHARES.clear()
        _SHARES[constraints] = found
    if purse is None:
        return found[0]
    # A cached answer costs the same work as a fresh one. Otherwise the result for a file would depend on the files
    # that were checked before it.
    told = found[0] if found[1] <= max(purse.left, 0) else _PERHAPS
    purse.left -= found[1]
    purse.shared[constraints] = told
    return told


_SHARES: dict[frozenset[NameConstraint], tuple[_SelectionOverlap, int]] = {}  # with the work that the search took


@lru_cache(maxsize=65_536)
def find_fixed_prefixes(constraints: frozenset[NameConstraint]) -> tuple[str, ...]:
    """Beginnings, one of which every birth name of the constraints has; sorted. Empty when no name can satisfy them."""
    whole: tuple[str, ...] | None = None
    for before, after, selection in constraints:
        found = selection.prefixes
        if before or after:
            found = drop_covered_prefixes(
                inner for text in found if (inner := _behind(before, text, after)) is not None
            )
        whole = found if whole is None else _intersect_prefixes(whole, found)
    return whole or ()


def _intersect_prefixes(ones: Sequence[str], twos: Sequence[str]) -> tuple[str, ...]:
    """Beginnings of the names that begin with one of each; all three are sorted, and none begins with another one."""
    few, many = (ones, twos) if len(ones) <= len(twos) else (twos, ones)
    found: list[str] = []
    for text in few:
        place = bisect_right(many, text)
        if place and text.startswith(many[place - 1]):  # in such a list nothing stands between a beginning and this
            found.append(text)
            continue
        while place < len(many) and many[place].startswith(text):
            found.append(many[place])
            place += 1
    return tuple(found)


def _quick(constraints: frozenset[NameConstraint]) -> _SelectionOverlap | None:
    """The answer where it is plain to see, else None."""
    if not find_fixed_prefixes(constraints):
        return _SelectionOverlap(False)
    candidates = set()
    for before, after, selection in constraints:
        for text in selection.examples:
            if text.startswith(before) and text.endswith(after) and len(text) > len(before) + len(after):
                candidates.add(text[len(before) : len(text) - len(after)])
    for text in sorted(candidates, key=lambda each: (len(each), each)):
        if is_satisfied_by(constraints, text):
            return _SelectionOverlap(True, text)
    return None


def _behind(before: str, text: str, after: str) -> str | None:
    """What a name X begins with when `before + X + after` begins with `text`; None when it cannot."""
    if not text.startswith(before):
        return "" if before.startswith(text) else None
    inner = text[len(before) :]
    ends = (end for end in range(len(inner)) if after.startswith(inner[end:]))
    return inner[: next(ends, len(inner))]


def build_prefix_constraint(before: str, selection: TopicSelection) -> NameConstraint:
    """The constraint (before, "", selection). When the selection is `*` only the internal names are left to look at,
    and of `before` only the end says anything about them: a chain of renames then piles up no constraints."""
    if selection != _EVERYTHING or not pattern_automaton.has_only_topic_letters(before) or not _no_beginning(before):
        return before, "", selection
    tail = _tail(before[-_LONGEST_END:])
    return before if tail is None else tail, "", selection


_EVERYTHING = TopicSelection((Selector("glob", "*"),))
_BEGINNINGS = tuple(text.removesuffix("*") for text in INTERNAL_TOPIC_GLOBS if not text.startswith("*"))
_ENDS = tuple(text.removeprefix("*") for text in INTERNAL_TOPIC_GLOBS if text.startswith("*"))
_LONGEST_END = max(map(len, _ENDS))


@lru_cache(maxsize=4_096)
def _tail(before: str) -> str | None:
    """The shortest end of `before` behind which the same names are internal; None when that is all of it."""
    tails = (before[start:] for start in range(len(before), -1, -1))
    return next((tail for tail in tails if _no_beginning(tail) and _overlaps(tail) == _overlaps(before)), None)


def _no_beginning(before: str) -> bool:
    """Whether no internal name is known by a beginning that begins like this."""
    return not before.startswith(_BEGINNINGS) and not any(text.startswith(before) for text in _BEGINNINGS)


def _overlaps(before: str) -> frozenset[str]:
    """Names X that make `before + X` internal by its end although X alone is not."""
    return frozenset(end[cut:] for end in _ENDS for cut in range(1, len(end) + 1) if before.endswith(end[:cut]))


def is_satisfied_by(constraints: frozenset[NameConstraint], name: str) -> bool:
    """Whether this birth name satisfies all of them."""
    return all(selection.selects(f"{before}{name}{after}") for before, after, selection in constraints)


@dataclass(slots=True)
class _Purse:
    left: int
    known: dict[frozenset[NameConstraint], _SelectionOverlap] = field(default_factory=dict)
    shared: dict[frozenset[NameConstraint], _SelectionOverlap] = field(default_factory=dict)
    piled: set[frozenset[NameConstraint]] = field(default_factory=set)


_PURSE: ContextVar[_Purse | None] = ContextVar("work on overlaps", default=None)


@lru_cache(maxsize=65_536)
def _alone(constraints: frozenset[NameConstraint]) -> _SelectionOverlap:
    return _search(constraints, _MAX_WORK)[0]


def _search(constraints: frozenset[NameConstraint], allowed: int) -> tuple[_SelectionOverlap, int]:
    """Breadth first over the product, and the work that it was; the first hit is the shortest name."""
    ordered = list(constraints)
    halves = [half for _, _, each in ordered for half in (_included(each.include), _excluded(each.exclude))]
    afters = [after for _, after, _ in ordered]
    work = sum(10 + half.size // 20 for half in halves)
    if work > allowed:
        return _PERHAPS, work
    starts = {half: half.begin() for half in halves}
    befores = [before for before, _, _ in ordered for _ in range(2)]
    begin = [half.run(before, starts[half]) for half, before in zip(halves, befores, strict=True)]
    if not all(begin[::2]):
        return _SelectionOverlap(False), work
    chars = pattern_automaton.pick_letter_per_kind(
        pattern_automaton.merge_letter_kinds([half.kinds for half in halves])
    )
    todo: list[tuple[tuple[int, ...], str]] = [(tuple(begin), "")]
    seen = {tuple(begin)}
    for states, text in todo:
        if text and _accepts(halves, afters, states):
            return _SelectionOverlap(True, text), work
        if len(text) == MAX_TOPIC_NAME_LETTERS:
            continue
        work += sum(half.cost(state, len(chars)) for half, state in zip(halves, states, strict=True))
        if work > allowed:
            return _PERHAPS, work
        for char in chars:
            following = tuple([half.step(state, char) for half, state in zip(halves, states, strict=True)])
            if following in seen or not all(following[::2]):
                continue
            if not any(half.endless(state) for half, state in zip(halves[1::2], following[1::2], strict=True)):
                seen.add(following)
                todo.append((following, text + char))
    return _SelectionOverlap(False), work


def _accepts(halves: list[UnionAutomaton], afters: list[str], states: tuple[int, ...]) -> bool:
    for index, after in enumerate(afters):
        inside, outside = halves[2 * index], halves[2 * index + 1]
        if not inside.accepts(inside.run(after, states[2 * index])):
            return False
        if outside.accepts(outside.run(after, states[2 * index + 1])):
            return False
    return True


@lru_cache(maxsize=1024)
def _included(selectors: tuple[Selector, ...]) -> UnionAutomaton:
    names = frozenset(selector.text for selector in selectors if selector.kind == "literal")
    return UnionAutomaton(names, tuple(selector.automaton() for selector in selectors if selector.kind != "literal"))


@lru_cache(maxsize=1024)
def _excluded(selectors: tuple[Selector, ...]) -> UnionAutomaton:
    internal = tuple(Selector("glob", pattern) for pattern in INTERNAL_TOPIC_GLOBS)
    return _included(Selectors((*internal, *selectors)))
