"""NAM311 wildcard-consumer-trap: topics arrive under a prefix, and another topic of the target ends like one of them.

Why: under a prefix consumers read `orders` and its copies with `.*orders`, and then also read `preorders`, whose
records they do not know. A pattern with the separator, `(.*\\.)?orders`, does not take it.

Source: AWS MSK Replicator manual, topic naming
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from watershed.topology.finding import Problem
from watershed.topology.model import Flow
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names

_SEPARATORS = (".", "_", "-")
_LETTERS = (("0", "9~"), ("A", "Z~"), ("a", "z~"))  # `~` stands behind all that a name holds


@dataclass(slots=True)
class _There:
    """A target: names, by what follows a prefix that ends in a separator (many flows bring the same ones), and the
    prefixes of its flows."""

    names: dict[str, str] = field(default_factory=dict)
    befores: set[str] = field(default_factory=set)
    backwards: list[str] = field(default_factory=list)
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def caught(self, name: str) -> tuple[str, ...]:
        """Names with a letter or digit before this one's text, which is no flow's prefix; sorted."""
        if name not in self.known:
            self.backwards = self.backwards or sorted(each[::-1] for each in self.names)
            self.known[name] = tuple(sorted(self._ending(name)))
        return self.known[name]

    def _ending(self, name: str) -> Iterator[str]:
        end = name[::-1]
        for low, high in _LETTERS:
            for index in range(bisect_left(self.backwards, end + low), bisect_right(self.backwards, end + high)):
                other = self.backwards[index][::-1]
                if other.removesuffix(name) not in self.befores:
                    yield self.names[other]


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    prefixed = [each for each in context.facts.by_flow if each[0].plan.naming.before]
    there = {target: _There() for target in {flow.target for flow, _ in prefixed}}
    for flow, _ in prefixed:
        there[flow.target].befores.add(flow.plan.naming.before)
    _look_around(context, there)
    for flow, topics in prefixed:
        names = sorted({topic.name for topic in topics if topic.name is not None})
        if found := {name: caught for name in names if (caught := there[flow.target].caught(name))}:
            yield _problem(flow, found)


def _problem(flow: Flow, found: dict[str, tuple[str, ...]]) -> Problem:
    name = min(found)
    more = f", and {len(found) - 1} more names like it" if len(found) > 1 else ""
    strict = f"(.*{''.join(_escaped(char) for char in flow.plan.naming.before[-1])})?"
    return Problem(
        "NAM311",
        f"consumers of `.*{name}` at {flow.target} also read {render_some_names(found[name])}{more}",
        build_labels(
            (flow.settings.where("naming"), f"copies of {flow.source} get a prefix"), (flow.declared, "this flow")
        ),
        path=f"{flow.path}.naming",
        ids=(flow.id, name),
        help=f"let them subscribe to both names one by one, or to `{strict}{_escaped(name)}`",
    )


def _look_around(context: RuleContext, there: dict[str, _There]) -> None:
    """What is known at each target: seen, declared, or brought by a flow."""
    for alias, known in there.items():
        seen = context.inventory.cluster(alias) if context.inventory is not None else None
        for name in seen.topics if seen is not None else ():
            known.names[name] = name
        for match, _ in context.facts.declared(alias):
            if match.kind == "literal":
                known.names[match.text] = match.text
    for flow, topics in context.facts.by_flow:
        if flow.target in there:
            names, naming = there[flow.target].names, flow.plan.naming
            cut = len(naming.before) if naming.before.endswith(_SEPARATORS) else 0
            for topic in topics:
                if topic.name is not None:
                    arriving = topic.target_label
                    names[arriving[cut:]] = min(arriving, names.get(arriving[cut:], arriving))


def _escaped(text: str) -> str:
    return text.replace(".", "\\.")


RULE = Rule("NAM311", "wildcard-consumer-trap", "info", __doc__, check)
