"""From a path to a checked topology, with every problem of the file at once.

A file that cannot be judged at all is `UnreadableTopology` (exit 2): it is missing, a directory without topology files,
larger than 1 MiB, not text, or another kind of document. Everything else, syntax errors included, is a problem with a
line and a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from topology import language
from topology.errors import UnreadableTopology
from topology.finding import Problem
from topology.model import Topology
from topology.nodes import MAX_BYTES, Node, parse
from topology.resolve import resolve
from topology.shapes import Reader

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Loaded:
    """topology is None when the YAML does not parse. `text` is the source, for reports."""

    file: str
    text: str
    topology: Topology | None
    problems: tuple[Problem, ...]


def files_of(path: Path) -> tuple[Path, ...]:
    """The path itself, or the YAML files directly in a directory, sorted. Raises UnreadableTopology."""
    if path.is_dir():
        found = tuple(sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.is_file()))
        if not found:
            raise UnreadableTopology(f"{path}: a directory without topology files (*.yaml); name one, or a file")
        return found
    return (path,)


def load_path(path: Path) -> Loaded:
    """Raises UnreadableTopology."""
    return load_text(read_text(path), str(path))


def load_text(text: str, file: str = "topology.yaml") -> Loaded:
    """Raises UnreadableTopology for another kind of document."""
    node, problems = parse(text, file)
    if node is None:
        if not problems:
            raise UnreadableTopology(f"{file}: the file is empty; a topology begins with {_head()}")
        return Loaded(file, text, None, tuple(problems))
    _check_kind(node, file)
    reader = Reader()
    root = language.TOPOLOGY.read(node, "", reader)
    assert root is not None, "a mapping always gives a value"
    topology, more = resolve(root, file)
    return Loaded(file, text, topology, (*problems, *reader.problems, *more))


def read_text(path: Path) -> str:
    """The file's text. Raises UnreadableTopology, saying why it cannot be."""
    try:
        if path.is_dir():
            raise UnreadableTopology(f"{path}: a directory; name one topology file")
        if path.stat().st_size > MAX_BYTES:
            raise UnreadableTopology(f"{path}: {path.stat().st_size} bytes; a topology file has at most {MAX_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableTopology(f"{path}: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableTopology(f"{path}: not a text file (byte {error.start} is not UTF-8)") from None
    if "\0" in text:
        raise UnreadableTopology(f"{path}: not a text file (it holds zero bytes)")
    return text


def _check_kind(node: Node, file: str) -> None:
    """Another document than ours is one message, not a hundred unknown keys."""
    if node.kind != "map":
        raise UnreadableTopology(f"{file}: this is {node.what}, not a topology; one begins with {_head()}")
    said = {key.text: value.text for key, value in node.entries if key.kind == value.kind == "scalar"}
    version, kind = said.get("apiVersion"), said.get("kind")
    keys = {key.text for key, _ in node.entries}
    if kind not in (None, language.KIND) or (
        kind is None and not keys & {"apiVersion", "clusters", "flows", "pattern"}
    ):
        what = f"a {kind}" if kind else "some other YAML document"
        raise UnreadableTopology(f"{file}: this is {what}, a {language.KIND} is expected; one begins with {_head()}")
    if version is not None and version != language.API_VERSION:
        raise UnreadableTopology(f"{file}: apiVersion {version}; this Watershed reads {language.API_VERSION}")


def _head() -> str:
    return f"`apiVersion: {language.API_VERSION}` and `kind: {language.KIND}`"
