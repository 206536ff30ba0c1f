"""Every regex that a topology selects by, once, and its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watershed.topology.finding import FileSpan
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.rules.nam.flows_by_value import group_flows_by_value, list_flow_ids

_SECTIONS = (("topics",), *(("sync", name) for name in ("acls", "groups", "quotas", "schemas")))
_KINDS = {"(": "open", ")": "close", ".": "dot", "*": "repeat", "+": "repeat", "?": "repeat", "|": "bar"}


@dataclass(frozen=True, slots=True)
class DeclaredRegex:
    """`span` is that of the text; `flows` are the ids of the flows that it is written for, none for a cluster's."""

    text: str
    span: FileSpan
    path: str
    flows: tuple[str, ...]


def list_declared_regexes(topology: Topology) -> Iterator[DeclaredRegex]:
    """In the order of the file. A selector that several flows share, as in `defaults`, comes once."""
    found: dict[FileSpan, tuple[CheckedValue, str, tuple[str, ...]]] = {
        value.span: (value, f"{flows[0].path}.topics", list_flow_ids(flows))
        for value, flows in group_flows_by_value(topology.flows, _selectors)
    }
    for path, value in _declared(topology):
        found.setdefault(value.span, (value, path, ()))
    for span in sorted(found):
        value, path, flows = found[span]
        if value.data.kind == "regex":
            yield DeclaredRegex(value.data.text, value.where("regex"), path, flows)


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


def split_regex(regex: str) -> Iterator[tuple[int, str, str]]:
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
