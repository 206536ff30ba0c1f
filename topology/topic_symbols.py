"""Topic symbols: one topic name, or all names that a pattern matches, as it moves from cluster to cluster."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from watershed.topology.naming import Naming
from watershed.topology.plan import PlanFlow
from watershed.topology.regex import MAX_TOPIC_NAME_LETTERS
from watershed.topology.selection_overlap import (
    NameConstraint,
    build_prefix_constraint,
    find_fixed_prefixes,
    find_overlap,
    is_satisfied_by,
)
from watershed.topology.selectors import Selector, Selectors, TopicSelection, sort_selectors


@dataclass(frozen=True, slots=True)
class TopicSymbol:
    """One topic, or all topics of a pattern, at one cluster.

    One topic: `birth` is its name at the cluster where it is produced, `now` its name here.
    A pattern: all names X that satisfy `constraints`; here they are called `before + X + after`.
    label: the names at the origin as a person would write them.
    """

    label: str
    birth: str | None = None
    now: str | None = None
    before: str = ""
    after: str = ""
    constraints: frozenset[NameConstraint] = field(default_factory=frozenset)

    def __str__(self) -> str:
        return self.now if self.now is not None else f"{self.before}{self.label}{self.after}"

    @property
    def certain(self) -> bool:
        """True if a topic of these names surely can exist."""
        return self.birth is not None or find_overlap(self.constraints).certain

    @property
    def shortest(self) -> int:
        """No name here has fewer characters."""
        return len(self.now) if self.now is not None else len(self.before) + len(self.after) + 1

    @property
    def prefixes(self) -> frozenset[str]:
        """Every name here begins with one of these."""
        if self.now is not None:
            return frozenset({self.now})
        return frozenset(self.before + prefix for prefix in find_fixed_prefixes(self.constraints))

    def holds_birth(self, name: str) -> bool:
        """True if the symbol contains the topic whose name at its origin is `name`."""
        return self.birth == name if self.birth is not None else is_satisfied_by(self.constraints, name)

    def grew_from(self, other: TopicSymbol) -> bool:
        """True if this name is the other name with more text before or after it."""
        if self.now is not None and other.now is not None:
            return len(self.now) > len(other.now) and other.now in self.now
        return len(self.before) + len(self.after) > len(other.before) + len(other.after)

    def meets(self, other: TopicSymbol) -> bool:
        """For two symbols of one birth place: whether some record has the same name under both."""
        if self.now is not None and other.now is not None:
            return self.birth == other.birth and self.now == other.now
        if self.birth is not None:
            return (
                is_satisfied_by(other.constraints, self.birth)
                and f"{other.before}{self.birth}{other.after}" == self.now
            )
        if other.birth is not None:
            return other.meets(self)
        both = self.constraints | other.constraints
        if (self.before, self.after) == (other.before, other.after):
            return find_overlap(both).found
        return any(is_satisfied_by(both, name) for name in _shifted(self, other))

    def covers(self, other: TopicSymbol) -> bool:
        """For two symbols of one birth place: True only if every record of the other has the same name under this one.

        Of two patterns only the constraints are compared, not their names: False may be said where it is so.
        """
        if other.birth is not None or self.birth is not None:
            return other.birth is not None and self.meets(other)
        same_rename = (self.before, self.after) == (other.before, other.after)
        return same_rename and self.constraints <= other.constraints

    def collides(self, other: TopicSymbol) -> bool:
        """For two symbols of any birth places: whether some name is called the same here."""
        if self.now is not None and other.now is not None:
            return self.now == other.now
        if self.now is not None:
            return other.is_called(self.now)
        if other.now is not None:
            return other.collides(self)
        before = max(self.before, other.before, key=len)
        after = max(self.after, other.after, key=len)
        if not (before.startswith(self.before) and before.startswith(other.before)):
            return False
        if not (after.endswith(self.after) and after.endswith(other.after)):
            return False
        if find_overlap(self._inside(before, after) | other._inside(before, after)).found:
            return True
        return any(self.is_called(name) and other.is_called(name) for name in _overlapping(before, after))

    def is_called(self, name: str) -> bool:
        """Whether some topic of a pattern symbol is called so here."""
        inner = self.strip(name)
        return inner is not None and is_satisfied_by(self.constraints, inner)

    def _inside(self, before: str, after: str) -> frozenset[NameConstraint]:
        """The constraints on what stands between a longer `before` and `after`."""
        head, tail = before[len(self.before) :], after[: len(after) - len(self.after)]
        return frozenset((first + head, tail + last, selection) for first, last, selection in self.constraints)

    def strip(self, name: str) -> str | None:
        """The X of a pattern symbol for a name here."""
        inner = name[len(self.before) : len(name) - len(self.after)] if name.startswith(self.before) else ""
        return inner if inner and f"{self.before}{inner}{self.after}" == name else None


def _overlapping(before: str, after: str) -> Iterator[str]:
    """Names that begin with `before` and end with `after` and have nothing between: the two may share characters."""
    for shared in range(min(len(before), len(after)) + 1):
        if before.endswith(after[:shared]):
            yield before + after[shared:]


def _shifted(one: TopicSymbol, two: TopicSymbol) -> Iterator[str]:
    """Birth names X that are called the same under two different renames, `b1 + X + a1 = b2 + X + a2`: the longer
    beginning moves X over by `step`, so X repeats itself every len(step) characters."""
    first, second = sorted((one, two), key=lambda symbol: len(symbol.before))
    step = second.before[len(first.before) :]
    added = len(first.before) + len(first.after)
    if not step or not second.before.startswith(first.before) or added != len(second.before) + len(second.after):
        return
    if not first.after.endswith(second.after):
        return
    tail = first.after[: len(first.after) - len(second.after)]
    for length in range(1, MAX_TOPIC_NAME_LETTERS - added + 1):
        name = (step * (length // len(step) + 1))[:length]
        if name + tail == step + name:
            yield name


def list_source_symbols(flow: PlanFlow) -> Iterator[TopicSymbol]:
    """What a flow can take at its source, one symbol a selector."""
    return list_selected_symbols(flow.topics)


def list_selected_symbols(topics: TopicSelection) -> Iterator[TopicSymbol]:
    """What a selection can take, one symbol a selector."""
    for selector in topics.include:
        if selector.kind == "literal" and topics.selects(selector.text):
            yield TopicSymbol(selector.text, birth=selector.text, now=selector.text)
    exclude = _without_literals(topics)
    for selector in topics.include:
        if selector.kind != "literal":
            selection = TopicSelection((selector,), exclude)
            constraints: frozenset[NameConstraint] = frozenset({("", "", selection)})
            if find_overlap(constraints).found:
                yield TopicSymbol(selector.text, constraints=constraints)


def carry_symbol(flow: PlanFlow, symbol: TopicSymbol) -> Iterator[TopicSymbol]:
    """What of a symbol at the flow's source arrives at its target, under its name there."""
    if symbol.now is not None:
        if flow.selects(symbol.now):
            yield replace(symbol, now=flow.target_topic(symbol.now))
        return
    bearer = _bearer(flow.topics, flow.naming)
    for name in bearer.named_within(symbol):
        inner = symbol.strip(name)
        if inner is not None and flow.selects(name) and is_satisfied_by(symbol.constraints, inner):
            yield TopicSymbol(inner, birth=inner, now=flow.target_topic(name))
    if bearer.patterns is not None:
        constraint = (symbol.before, symbol.after, bearer.patterns)
        seen = constraint if symbol.after else build_prefix_constraint(symbol.before, bearer.patterns)
        constraints = symbol.constraints | {seen}
        if find_overlap(constraints).found:
            before, after = flow.naming.before + symbol.before, symbol.after + flow.naming.after
            yield replace(symbol, constraints=constraints, before=before, after=after)


@dataclass(frozen=True, slots=True)
class _Bearer:
    """How a selection under a naming carries patterns. named: the names that travel one by one, sorted; patterns: what
    it selects beside them, None when nothing."""

    named: tuple[str, ...]
    patterns: TopicSelection | None

    def named_within(self, symbol: TopicSymbol) -> Iterator[str]:
        """Those that can be of the symbol, sorted."""
        for prefix in symbol.prefixes:
            for place in range(bisect_left(self.named, prefix), len(self.named)):
                if not self.named[place].startswith(prefix):
                    break
                yield self.named[place]


@lru_cache(maxsize=32_768)
def _bearer(topics: TopicSelection, naming: Naming) -> _Bearer:
    named = topics.included.literals | naming.there.keys()
    patterns = tuple(each for each in topics.include if each.kind != "literal")
    if not patterns:
        return _Bearer(tuple(sorted(named)), None)
    selection = TopicSelection(sort_selectors(patterns), _without_literals(topics, naming.there))
    return _Bearer(tuple(sorted(named)), selection)


def _without_literals(topics: TopicSelection, mapped: Collection[str] = ()) -> Selectors:
    """What a selection's patterns leave out: its excludes, and the names that travel one by one."""
    single = topics.included.literals.union(mapped)
    return sort_selectors((*topics.exclude, *(Selector("literal", name) for name in single)))
