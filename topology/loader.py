"""Loads topology files and collects all their problems at once.

Files of one folder with the same `metadata.name` form one topology: their clusters and flows are put together, every
other section may stand in one file only. `UnreadableTopology` (exit 2) is raised for a file that is missing, larger
than 1 MiB, no text, or another kind of document, and for a directory without topology files. Everything else, syntax
errors included, is a problem with a line and a column.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from watershed.topology import language
from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import Problem
from watershed.topology.model import CheckedValue, Topology
from watershed.topology.problem_collector import ProblemCollector
from watershed.topology.resolver import resolve_topology
from watershed.topology.text_escaping import escape_controls, shorten_and_escape
from watershed.topology.topology_files import list_topology_files
from watershed.topology.yaml_tree import MAX_FILE_BYTES, YamlNode, parse_yaml

_MAX_TOGETHER = 4 * MAX_FILE_BYTES
STDIN_PATH = Path("-")
# one of our sections at the start of a line
_SECTION = re.compile(
    r"^(?:[^\S\n]|[{\"'-])*+(?:apiVersion|kind|metadata|clusters?|defaults|patterns?|flows?|migration)\b", re.MULTILINE
)
_FENCE = re.compile("^(?:```|~~~)", re.MULTILINE)
_JOINED_SECTIONS = ("clusters", "flows", "external_flows", "metadata")


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """One file as YAML. root: None if the file does not parse; `problems` says why."""

    file: str
    text: str
    root: YamlNode | None
    problems: tuple[Problem, ...]

    @property
    def name(self) -> str | None:
        """The value of `metadata.name`; None if the file has none."""
        metadata = _entry(self.root, "metadata")
        name = _entry(metadata, "name")
        return name.text if name is not None and name.kind == "scalar" and name.text else None


@dataclass(frozen=True, slots=True)
class LoadedTopology:
    """topology is None when the YAML does not parse. sources: file → text, for reports; nodes: the raw trees of all
    files. `file` stands for all of them: the file, or the first of several."""

    file: str
    sources: Mapping[str, str]
    topology: Topology | None
    problems: tuple[Problem, ...]
    nodes: tuple[YamlNode, ...] = field(default=(), repr=False)


def load_topology(path: Path) -> LoadedTopology:
    """One topology: a file, or a directory whose files form one. Raises UnreadableTopology."""
    found = load_topologies(path)
    if len(found) > 1:
        names = ", ".join(sorted({f"{one.topology.name if one.topology else '?'} ({one.file})" for one in found}))
        raise _unreadable(path, f"{len(found)} topologies are in this directory; name one file: {names}")
    return found[0]


def load_topologies(path: Path) -> list[LoadedTopology]:
    """All topologies of a path, in the order of their first files. Raises UnreadableTopology."""
    found, unreadable = load_readable_topologies(path)
    if unreadable:
        raise unreadable[0]
    return found


def load_readable_topologies(path: Path) -> tuple[list[LoadedTopology], list[UnreadableTopology]]:
    """All topologies of a path that can be judged, and why the other files cannot."""
    groups: dict[str, list[ParsedFile]] = {}
    unreadable: list[UnreadableTopology] = []
    try:
        files = list_topology_files(path)
    except UnreadableTopology as error:
        return [], [error]
    for file in files:
        try:
            part = _parse_topology_file(read_topology_text(file), str(file))
        except UnreadableTopology as error:
            unreadable.append(error)
        else:
            groups.setdefault(part.name or f"{file} alone", []).append(part)
    found = []
    for parts in groups.values():
        size = sum(len(part.text) for part in parts)
        if size > _MAX_TOGETHER:
            name = shorten_and_escape(parts[0].name or "?")
            message = (
                f"{path}: the {len(parts)} files of {name} have {size} characters together, at most {_MAX_TOGETHER}"
            )
            unreadable.append(UnreadableTopology(message))
        else:
            found.append(_join_parsed_files(parts))
    return found, unreadable


def parse_topology(text: str, file: str = "topology.yaml") -> LoadedTopology:
    """Raises UnreadableTopology for another kind of document."""
    return _join_parsed_files([_parse_topology_file(text, file)])


def _parse_topology_file(text: str, file: str) -> ParsedFile:
    """Raises UnreadableTopology for another kind of document."""
    node, problems = parse_yaml(text, file)
    if node is None and not problems:
        raise _unreadable(file, f"the file is empty; a topology begins with {_head()}")
    if node is None and any(map(str.isalpha, text)) and _SECTION.search(_FENCE.split(text)[0]) is None:
        line = problems[0].labels[0].span.line
        why = f"no YAML (line {line}: {problems[0].message}), and none of a topology's sections is in it"
        raise _unreadable(file, f"{why}; one begins with {_head()}")
    if node is not None:
        _check_kind(node, file)
    return ParsedFile(file, text, node, tuple(problems))


def _join_parsed_files(parts: Iterable[ParsedFile]) -> LoadedTopology:
    """One topology from its files; at least one."""
    parts = list(parts)
    sources = {part.file: part.text for part in parts}
    problems = tuple(problem for part in parts for problem in part.problems)
    roots = [part.root for part in parts if part.root is not None]
    if len(roots) < len(parts):
        return LoadedTopology(parts[0].file, sources, None, problems, tuple(roots))
    reader = ProblemCollector()
    root = language.TOPOLOGY_SHAPE.read(roots[0] if len(roots) == 1 else _together(roots), "", reader)
    assert root is not None, "a mapping always gives a value"
    topology, more = resolve_topology(root, parts[0].file)
    before = (*problems, *reader.problems)
    more = [each for each in more if not _is_consequence(each, before, root)]
    return LoadedTopology(parts[0].file, sources, topology, (*before, *more), tuple(roots))


def read_topology_text(path: Path) -> str:
    """A topology file's text, 1 MiB at most. Raises UnreadableTopology, saying why it cannot be."""
    return read_text_file(path, MAX_FILE_BYTES)


def read_text_file(path: Path, limit: int = 1 << 30) -> str:
    """Any text file, or standard input for `-`. Raises UnreadableTopology."""
    try:
        if path.is_dir():
            raise _unreadable(path, "a directory; name one file")
        if path.exists() and not path.is_file():
            raise _unreadable(path, "not a regular file")
        if path != STDIN_PATH and path.stat().st_size > limit:
            raise _unreadable(path, f"{path.stat().st_size} bytes; such a file has at most {limit}")
        data = path.read_bytes() if path != STDIN_PATH else sys.stdin.buffer.read(limit + 1)
    except OSError as error:
        raise _unreadable(path, f"{error.strerror or error}") from None
    if len(data) > limit:
        raise _unreadable(path, f"more than {limit} bytes")
    return _decoded(data, path)


def _decoded(data: bytes, path: Path) -> str:
    wide = _detect_wide_encoding(data)
    if wide:
        raise _unreadable(path, f"this is {wide}; save it as UTF-8")
    if b"\0" in data:
        raise _unreadable(path, "not a text file (it holds zero bytes)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        why = f"line {line} holds a byte that is not UTF-8 (0x{byte:02x}); save the file as UTF-8"
        raise _unreadable(path, why) from None


def _detect_wide_encoding(data: bytes) -> str:
    """UTF-16 or UTF-32 by its mark, or UTF-16 by every second of the first bytes being zero; otherwise ""."""
    if data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "UTF-32"
    even, odd = data[:64:2], data[1:64:2]
    half = len(odd) > 3 and ((not any(even) and all(odd)) or (not any(odd) and all(even)))
    return "UTF-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) or half else ""


def _together(roots: list[YamlNode]) -> YamlNode:
    """One tree of several files. What may be said once only appears twice here, and the shapes then say so."""
    whole = YamlNode("map", roots[0].span)
    sections: dict[str, YamlNode] = {}
    for index, root in enumerate(roots):
        for key, value in root.entries:
            if index and key.text in ("apiVersion", "kind"):
                continue
            first = sections.get(key.text)
            if first is None or first.kind != value.kind or key.text not in _JOINED_SECTIONS:
                copy = YamlNode(value.kind, value.span, value.text, value.plain, list(value.items), list(value.entries))
                sections.setdefault(key.text, copy)
                whole.entries.append((key, copy))
            elif key.text == "metadata":
                said = {name.text: each.text for name, each in first.entries}
                first.entries += [(name, each) for name, each in value.entries if said.get(name.text) != each.text]
            else:
                first.items += value.items
                first.entries += value.entries
    return whole


def _entry(node: YamlNode | None, name: str) -> YamlNode | None:
    return next((value for key, value in node.entries if key.text == name), None) if node is not None else None


def _check_kind(node: YamlNode, file: str) -> None:
    """Another document than ours is one message, not a hundred unknown keys."""
    if node.kind != "map":
        raise _unreadable(file, f"this is {node.what}, not a topology; one begins with {_head()}")
    said = {key.text: value.text for key, value in node.entries if key.kind == value.kind == "scalar"}
    at = {key.text: key.span.line for key, _ in node.entries}
    version, kind = said.get("apiVersion"), said.get("kind")
    keys = {key.text for key, _ in node.entries}
    if kind is not None and kind != language.TOPOLOGY_KIND and kind.lower() == language.TOPOLOGY_KIND.lower():
        raise _unreadable(file, f"line {at['kind']}: `kind: {kind}` must be written `kind: {language.TOPOLOGY_KIND}`")
    if kind not in (None, language.TOPOLOGY_KIND) or (
        kind is None and not keys & {"apiVersion", "clusters", "flows", "pattern"}
    ):
        what = f"a {shorten_and_escape(kind)}" if kind else "some other YAML document"
        raise _unreadable(file, f"this is {what}, a {language.TOPOLOGY_KIND} is expected; one begins with {_head()}")
    if version is not None and version != language.TOPOLOGY_API_VERSION:
        why = (
            f"apiVersion {shorten_and_escape(version)} in line {at['apiVersion']}; this Watershed reads "
            f"`{language.TOPOLOGY_API_VERSION}`"
        )
        raise _unreadable(file, why)


def _is_consequence(problem: Problem, before: Iterable[Problem], root: CheckedValue) -> bool:
    """Whether something that was said is only missing because it was said wrongly."""
    if problem.message.endswith("says no `topics.include`"):
        return any("topics" in each.path for each in before)
    if not problem.path.endswith(".security"):
        return False
    span = root.where(*problem.path.split("."))
    return any(span.line <= each.labels[0].span.line <= span.end_line for each in before)


def _head() -> str:
    return f"`apiVersion: {language.TOPOLOGY_API_VERSION}` and `kind: {language.TOPOLOGY_KIND}`"


def _unreadable(path: Path | str, why: str) -> UnreadableTopology:
    return UnreadableTopology(f"{escape_controls(str(path))}: {why}")
