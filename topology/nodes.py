"""YAML text as a tree that still knows where everything stands and how it was written.

Built from parser events without recursion, so that size, depth and node limits hold whatever the input; scalars stay
text until a shape says what they should be. Anchors, aliases, tags and several documents are not part of the language:
what a line says must not depend on a line elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from topology.finding import Label, Problem, Span

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 200_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Node:
    """plain: a scalar without quotes. entries keep order and duplicates (key, value)."""

    kind: Literal["scalar", "list", "map"]
    span: Span
    text: str = ""
    plain: bool = False
    items: list[Node] = field(default_factory=list)
    entries: list[tuple[Node, Node]] = field(default_factory=list)
    key: Node | None = None

    @property
    def what(self) -> str:
        if self.kind != "scalar":
            return "a list" if self.kind == "list" else "a mapping"
        return f"`{self.text}`" if self.text else "nothing"


def parse(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """The first document's tree (None when it has none, or does not parse) and what is wrong with the YAML."""
    problems: list[Problem] = []
    builder = _Builder(file, problems)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if not builder.take(event):
                break
    except yaml.YAMLError as error:
        problems.append(_syntax(error, file, text))
        return None, problems
    if builder.broken:
        return None, problems
    return builder.root, problems


class _Builder:
    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        self.root: Node | None = None
        self.broken = False
        self.stack: list[Node] = []
        self.nodes = 0
        self.documents = 0

    def take(self, event: Any) -> bool:
        """Whether to go on."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._refuse(event, "a second document in one file", "keep one topology a file")
                return False
        elif isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"alias `*{event.anchor}`", "write the value out, or use `defaults:`")
            self._add(Node("scalar", self._span(event), text="", plain=True))
        elif isinstance(event, yaml.ScalarEvent):
            self._features(event)
            self._add(Node("scalar", self._span(event), text=event.value, plain=bool(event.implicit[0])))
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._features(event)
            node = Node("map" if isinstance(event, yaml.MappingStartEvent) else "list", self._span(event))
            self._add(node)
            self.stack.append(node)
            if len(self.stack) > MAX_DEPTH:
                return self._too_much(event, f"nesting deeper than {MAX_DEPTH} levels")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            node = self.stack.pop()
            end: Any = event.end_mark
            node.span = Span(self.file, node.span.line, node.span.column, end.line + 1, end.column + 1)
        if self.nodes > MAX_NODES:
            return self._too_much(event, f"more than {MAX_NODES} values in one file")
        return True

    def _add(self, node: Node) -> None:
        self.nodes += 1
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if parent.kind == "list":
            parent.items.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            parent.entries.append((parent.key, node))
            parent.key = None

    def _features(self, event: Any) -> None:
        if event.anchor:
            self._refuse(event, f"anchor `&{event.anchor}`", "write the value out where it is needed")
        if event.tag and event.tag != "!":
            self._refuse(event, f"tag `{event.tag}`", "leave the tag out")

    def _refuse(self, event: Any, what: str, help_: str) -> None:
        self.problems.append(
            Problem("SYN014", f"{what} is not part of the language", (Label(self._span(event)),), help=help_)
        )

    def _too_much(self, event: Any, what: str) -> bool:
        self.broken = True
        self.problems.append(Problem("SYN001", what, (Label(self._span(event)),), help="split the file"))
        return False

    def _span(self, event: Any) -> Span:
        start, end = event.start_mark, event.end_mark
        return Span(self.file, start.line + 1, start.column + 1, end.line + 1, end.column + 1)


def _syntax(error: yaml.YAMLError, file: str, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = str(getattr(error, "problem", None) or "") or str(error).splitlines()[0]
    lines = text.splitlines() or [""]
    line = min(mark.line + 1 if mark else 1, len(lines))
    column = min(mark.column + 1 if mark else 1, len(lines[line - 1]) + 1)
    help_ = ""
    if "\\t" in what or (mark and lines[line - 1][:column].strip(" ").startswith("\t")):
        help_ = "indent with spaces, not tabs"
    elif "mapping values are not allowed" in what:
        help_ = "quote the text that holds `: `, or check the indentation above"
    return Problem("SYN001", what, (Label(Span(file, line, column, line, column + 1)),), help=help_)
