"""NAM306 unescaped-dot: a `.` in a regex stands between parts of a name, where the character `.` is most likely meant.

Why: in a regex `.` is any character, so `eu.orders` takes `eu-orders` and `euXorders` as well, and nobody notices until
such a topic comes to be.

Source: own; topic names are full of dots, MirrorMaker 2 reads every topic list as regexes (apache/kafka
DefaultTopicFilter.java)
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import FileSpan, Label, Problem
from topology.model import CheckedValue, Flow, Topology
from topology.rule import Rule, RuleContext
from topology.rules.nam.flows_by_value import group_flows_by_value, list_flow_ids
from topology.text_escaping import shorten_and_escape

_SECTIONS = (("topics",), *(("sync", name) for name in ("acls", "groups", "quotas", "schemas")))
_BEFORE = frozenset({"name", "class", "escape", "close", "repeat"})
_AFTER = frozenset({"name", "class", "escape", "open"})
_KINDS = {"(": "open", ")": "close", ".": "dot", "*": "repeat", "+": "repeat", "?": "repeat", "|": "bar"}


def check(context: RuleContext) -> Iterator[Problem]:
    if context.topology is None:
        return
    found: dict[FileSpan, tuple[CheckedValue, str, tuple[str, ...]]] = {
        value.span: (value, f"{flows[0].path}.topics", list_flow_ids(flows))
        for value, flows in group_flows_by_value(context.topology.flows, _selectors)
    }
    for path, value in _declared(context.topology):
        found.setdefault(value.span, (value, path, ()))
    for span in sorted(found):
        value, path, about = found[span]
        if value.data.kind == "regex" and (dots := find_unescaped_dots(value.data.text)):
            yield _problem(value, dots, path, about)


def _problem(value: CheckedValue, dots: list[int], path: str, about: tuple[str, ...]) -> Problem:
    text = value.data.text
    meant = "".join("\\." if index in set(dots) else char for index, char in enumerate(text))
    first = dots[0]
    return Problem(
        "NAM306",
        f"in the regex `{shorten_and_escape(text)}` the `.` at character {first + 1} is any character"
        + (f" ({len(dots) - 1} more like it)" if len(dots) > 1 else ""),
        (Label(value.where("regex")),),
        path=path,
        ids=(*about, text),
        help=f"write `{shorten_and_escape(meant, 200)}`; where any character is meant, `[a-zA-Z0-9._-]` says so",
    )


def _selectors(flow: Flow) -> Iterator[CheckedValue]:
    for section in _SECTIONS:
        for key in ("include", "exclude"):
            yield from flow.settings.list(*section, key)


def _declared(topology: Topology) -> Iterator[tuple[str, CheckedValue]]:
    for alias in topology.clusters:
        cluster = topology.root.at("clusters", alias)
        for index, entry in enumerate(cluster.list("topics") if cluster is not None else ()):
            if (match := entry.at("match")) is not None:
                yield f"clusters.{alias}.topics[{index}].match", match


def find_unescaped_dots(regex: str) -> list[int]:
    """Where a `.` stands alone between two parts of a name: not repeated, and with no escaped dot beside it, which
    would show that its author knows the difference."""
    parts = list(_parts(regex))
    dots = []
    for before, (start, kind, _), after in zip(parts, parts[1:], parts[2:], strict=False):
        beside = {before[2], after[2]}
        if kind == "dot" and before[1] in _BEFORE and after[1] in _AFTER and "\\." not in beside:
            dots.append(start)
    return dots


def _parts(regex: str) -> Iterator[tuple[int, str, str]]:
    """Start, kind and text of each part; the regex is known to be well formed."""
    index = 0
    while index < len(regex):
        start, char = index, regex[index]
        if char == "\\":
            index += 2
            yield start, "escape", regex[start:index]
        elif char == "[":
            index = _class_end(regex, start)
            yield start, "class", regex[start:index]
        elif char == "{":
            index = regex.find("}", start) + 1 or len(regex)
            yield start, "repeat", regex[start:index]
        else:
            index += 3 if regex.startswith("(?:", start) else 1
            kind = _KINDS.get(char, "name" if char not in "^$" else "anchor")
            yield start, kind, regex[start:index]


def _class_end(regex: str, start: int) -> int:
    """Behind the `]`; one that comes first, or behind a backslash, is a letter of the class."""
    index = start + (2 if regex.startswith("[^", start) else 1)
    first = index
    while index < len(regex) and (regex[index] != "]" or index == first):
        index += 2 if regex[index] == "\\" else 1
    return index + 1


RULE = Rule("NAM306", "unescaped-dot", "warning", __doc__, check)
