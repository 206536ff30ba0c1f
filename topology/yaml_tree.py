"""YAML text as a tree that still knows where everything stands and how it was written.

Built from parser events without recursion, so that size, depth and node limits hold whatever the input; scalars stay
text until a shape says what they should be. Anchors, aliases, tags and several documents are not part of the language:
what a line says must not depend on a line elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from watershed.topology.finding import FileSpan, Label, Problem
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.yaml_syntax_help import explain_yaml_error

MAX_FILE_BYTES = 1 << 20
_MAX_DEPTH = 32
_MAX_NODES = 200_000
MAX_FILE_PROBLEMS = 1_000
# what YAML 1.2 (5.1) allows in a file; the rest can only be written as an escape
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# libyaml reads YAML 1.1, where these three end a line as well; str.splitlines knows more, which YAML does not
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_VARIABLE = re.compile("[A-Z][A-Z0-9_]*")
_SECRET_KEY = re.compile(r"(?i)pass|pwd|^pw$|secret|token|cred|key|jaas|userinfo|auth")
YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class YamlNode:
    """plain: a scalar without quotes. entries keep order and duplicates (key, value). refused: an alias or a tag, which
    a problem already names; nothing more is said of the value."""

    kind: Literal["scalar", "list", "map"]
    span: FileSpan
    text: str = ""
    plain: bool = False
    items: list[YamlNode] = field(default_factory=list)
    entries: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)
    refused: bool = False

    @property
    def what(self) -> str:
        """The node for a message: `a list`, `a mapping`, its short text in backquotes, or `nothing`."""
        if self.kind != "scalar":
            return "a list" if self.kind == "list" else "a mapping"
        return f"`{shorten_and_escape(self.text)}`" if self.text else "nothing"


def split_yaml_lines(text: str) -> list[str]:
    """The lines as the spans count them: what frames a finding must split the text like this."""
    return _BREAK.split(text)


def parse_yaml(text: str, file: str) -> tuple[YamlNode | None, list[Problem]]:
    """The first document's tree (None when it has none, or does not parse) and what is wrong with the YAML."""
    problems: list[Problem] = []
    if (bad := _UNPRINTABLE.search(text)) is not None:
        return None, [_unprintable(bad, file)]
    builder = _Builder(file, problems)
    try:
        for event in yaml.parse(text, Loader=YAML_LOADER):
            if not builder.take(event):
                break
    except yaml.YAMLError as error:
        problems.append(_syntax(error, file, text))
        return None, problems
    if builder.broken:
        return None, problems
    return builder.root, problems


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end was not seen yet. below: a list's items; of a mapping, keys and values in turn."""

    node: YamlNode
    below: list[YamlNode]


class _Builder:
    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        self.root: YamlNode | None = None
        self.broken = False
        self.stack: list[_Open] = []
        self.nodes = 0
        self.documents = 0

    def take(self, event: Any) -> bool:
        """Whether to go on."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._features(event)
            self._open("map" if kind is yaml.MappingStartEvent else "list", event)
            if len(self.stack) > _MAX_DEPTH:
                return self._too_much(event, f"nesting deeper than {_MAX_DEPTH} levels")
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            name = self._named(event.anchor)
            help_ = f'for a glob, write `{{glob: "*{name}"}}`; otherwise write the value out, or use `defaults:`'
            self._refuse(event, f"alias `*{name}`", help_)
            self._add(YamlNode("scalar", self._span(event), "", True, refused=True))
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self._refuse(event, "a second document in one file", "keep one topology a file")
                return False
        if self.nodes > _MAX_NODES:
            return self._too_much(event, f"more than {_MAX_NODES} values in one file")
        if len(self.problems) > MAX_FILE_PROBLEMS:
            return self._too_much(event, f"more than {MAX_FILE_PROBLEMS} problems up to here", "mend those above first")
        return True

    def _scalar(self, event: Any) -> None:
        node = YamlNode("scalar", self._span(event), event.value, bool(event.implicit[0]))
        if event.anchor or event.tag:
            self._features(event)
            node.refused = bool(event.tag) and event.tag != "!"
            if event.tag == "!env" and _VARIABLE.fullmatch(event.value):
                node.text = ""  # a variable's name and no secret: the rules for secrets need not look at it
        self._add(node)

    def _add(self, node: YamlNode) -> None:
        self.nodes += 1
        if self.stack:
            self.stack[-1].below.append(node)
        else:
            self.root = node

    def _open(self, kind: Literal["list", "map"], event: Any) -> None:
        node = YamlNode(kind, self._span(event))
        self._add(node)
        self.stack.append(_Open(node, node.items if kind == "list" else []))

    def _close(self, event: Any) -> None:
        whole, end = self.stack.pop(), event.end_mark
        node, start = whole.node, whole.node.span
        node.span = FileSpan(self.file, start.line, start.column, end.line + 1, end.column + 1)
        if node.kind == "map":
            node.entries = list(zip(whole.below[::2], whole.below[1::2], strict=True))

    def _features(self, event: Any) -> None:
        if event.anchor:
            self._refuse(event, f"anchor `&{self._named(event.anchor)}`", "write the value out where it is needed")
        if event.tag and event.tag != "!":
            name = event.tag.removeprefix("!")
            known = name in ("env", "file", "airflow_connection")
            help_ = f"write `{{{name}: …}}`" if known else "leave the tag out"
            if name == "env" and _VARIABLE.fullmatch(getattr(event, "value", "")):
                help_ = f"write `{{env: {shorten_and_escape(event.value)}}}`"
            self._refuse(event, f"tag `{event.tag if known else self._named(event.tag)}`", help_)

    def _named(self, name: str) -> str:
        """The name, unless it stands where a secret does: a password may begin with `*`, `&` or `!`."""
        keys = (each.below[-1].text for each in self.stack if each.node.kind == "map" and len(each.below) % 2)
        return "…" if any(_SECRET_KEY.search(key) for key in keys) else shorten_and_escape(name)

    def _refuse(self, event: Any, what: str, help_: str) -> None:
        self.problems.append(
            Problem("SYN014", f"{what} is not part of the language", (Label(self._span(event)),), help=help_)
        )

    def _too_much(self, event: Any, what: str, help_: str = "split the file") -> bool:
        self.broken = True
        mark = event.start_mark
        span = FileSpan(self.file, mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 2)
        self.problems.append(Problem("SYN001", what, (Label(span),), help=help_))
        return False

    def _span(self, event: Any) -> FileSpan:
        start, end = event.start_mark, event.end_mark
        return FileSpan(self.file, start.line + 1, start.column + 1, end.line + 1, end.column + 1)


def _unprintable(bad: re.Match[str], file: str) -> Problem:
    before = split_yaml_lines(bad.string[: bad.start()])
    line, column = len(before), len(before[-1]) + 1
    return Problem(
        "SYN001",
        f"the character {shorten_and_escape(bad[0])} cannot stand in a YAML file",
        (Label(FileSpan(file, line, column, line, column + 1)),),
        help="delete it (an editor may hide it); inside double quotes an escape such as `\\e` can stand for it",
    )


def _syntax(error: yaml.YAMLError, file: str, text: str) -> Problem:
    lines = split_yaml_lines(text)
    found = explain_yaml_error(error, lines)
    line = min(found.line, len(lines))
    column = min(found.column, len(lines[line - 1]) + 1)
    return Problem("SYN001", found.message, (Label(FileSpan(file, line, column, line, column + 1)),), help=found.help)
