"""NAM311 wildcard-consumer-trap: topics arrive under a prefix, and another topic of the target ends like one of them.

Why: under a prefix consumers read `orders` and its copies with `.*orders`, and then also read `preorders`, whose
records they do not know. A pattern with the separator, `(.*\\.)?orders`, does not take it.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
        naming: {policy: prefix}
      - source: c
        target: b
        topics: {include: [preorders]}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
        naming: {policy: prefix}
      - source: c
        target: b
        topics: {include: [invoices]}

Source: AWS MSK Replicator manual, topic naming
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from topology.finding import Problem
from topology.model import Flow
from topology.rule import Context, Rule
from topology.rules.mention import labels, some, unique

SEPARATORS = "._-"


def check(context: Context) -> Iterator[Problem]:
    if context.topology is None:
        return
    prefixed = [each for each in context.facts.by_flow if each[0].plan.naming.before]
    targets = {flow.target for flow, _ in prefixed}
    backwards = {alias: sorted(name[::-1] for name in names) for alias, names in _known(context, targets).items()}
    befores: dict[str, set[str]] = {}
    for flow, _ in prefixed:
        befores.setdefault(flow.target, set()).add(flow.plan.naming.before)
    for flow, topics in prefixed:
        found: dict[str, list[str]] = {}
        for name in unique(topic.name for topic in topics if topic.name is not None):
            caught = list(_ending(backwards[flow.target], name, befores[flow.target]))
            if caught:
                found[name] = caught
        if found:
            yield _problem(flow, found)


def _problem(flow: Flow, found: dict[str, list[str]]) -> Problem:
    name = min(found)
    more = f", and {len(found) - 1} more names like it" if len(found) > 1 else ""
    strict = f"(.*{''.join(_escaped(char) for char in flow.plan.naming.before[-1])})?"
    return Problem(
        "NAM311",
        f"consumers of `.*{name}` at {flow.target} also read {some(found[name])}{more}",
        labels((flow.settings.where("naming"), f"copies of {flow.source} get a prefix"), (flow.declared, "this flow")),
        path=f"{flow.path}.naming",
        ids=(flow.id, name),
        help=f"let them subscribe to both names one by one, or to `{strict}{_escaped(name)}`",
    )


def _ending(backwards: list[str], name: str, befores: set[str]) -> Iterator[str]:
    """Names that end like this one and are not the name itself under a flow's prefix, in order."""
    end = name[::-1]
    caught = []
    for index in range(bisect_left(backwards, end), len(backwards)):
        if not backwards[index].startswith(end):
            break
        other = backwards[index][::-1]
        head = other.removesuffix(name)
        if head and head[-1] not in SEPARATORS and head not in befores:
            caught.append(other)
    yield from sorted(caught)


def _known(context: Context, targets: set[str]) -> dict[str, set[str]]:
    """Topics that are known at each target: seen, declared, or brought by a flow."""
    known: dict[str, set[str]] = {}
    for alias in targets:
        seen = context.inventory.cluster(alias) if context.inventory is not None else None
        declared = (match.text for match, _ in context.facts.declared(alias) if match.kind == "literal")
        known[alias] = {*declared, *(seen.topics if seen is not None else ())}
    for flow, topics in context.facts.by_flow:
        if flow.target in targets:
            known[flow.target].update(topic.target_label for topic in topics if topic.name is not None)
    return known


def _escaped(text: str) -> str:
    return text.replace(".", "\\.")


RULE = Rule("NAM311", "wildcard-consumer-trap", "info", __doc__, check)
