"""Which format a foreign file is in, decided by its content and never by its name, and who reads it.

A new format is a module with `recognises(document)` and `read(documents)` and a row in FORMATS. `recognises` sees one
file and must be sure: two formats never recognise the same file. `read` gets all files of the path (one, unless a
directory was named) and raises UnreadableTopology for what cannot be judged at all.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import FileSpan, Problem
from watershed.topology.interop.imported_topology import ImportedTopology, NotCarried
from watershed.topology.yaml_tree import MAX_FILE_BYTES, YamlNode, parse_yaml

IMPORT_SUFFIXES = (".properties", ".yaml", ".yml", ".json", ".tf", ".conf", ".config", ".cfg")
_MAX_FILES = 200


class ForeignDocument:
    """One foreign file: its text, and its tree when it is YAML or JSON with a mapping or a list on top."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text

    @cached_property
    def _parsed(self) -> tuple[YamlNode | None, list[Problem]]:
        return parse_yaml(replace_json_tabs(self.text), self.file)

    @property
    def tree(self) -> YamlNode | None:
        """None for a scalar, for what does not parse, and for an empty file; `problems` says why."""
        node = self._parsed[0]
        return node if node is not None and node.kind != "scalar" else None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What the YAML or JSON parser found wrong."""
        return tuple(self._parsed[1])

    def said(self, *keys: str) -> str | None:
        """The scalar at a path of keys of the tree, or None."""
        node = self.tree
        for name in keys:
            node = find_child_node(node, name)
        return node.text if node is not None and node.kind == "scalar" else None


def replace_json_tabs(text: str) -> str:
    """JSON may be indented with tabs, which a YAML reader refuses; columns stay."""
    return text.replace("\t", " ") if text.lstrip()[:1] in ("{", "[") else text


def find_child_node(node: YamlNode | None, name: str) -> YamlNode | None:
    """The last value under this key (as YAML and JSON readers have it), or None."""
    if node is None or node.kind != "map":
        return None
    return next((value for key, value in reversed(node.entries) if key.text == name), None)


@dataclass(frozen=True, slots=True)
class _ImportFormat:
    """`what` completes `this reads …` for people; `module` has `recognises` and `read`."""

    name: str
    what: str
    module: str

    @property
    def recognises(self) -> Callable[[ForeignDocument], bool]:
        function: Callable[[ForeignDocument], bool] = importlib.import_module(self.module).recognises
        return function

    @property
    def read(self) -> Callable[[tuple[ForeignDocument, ...]], ImportedTopology]:
        function: Callable[[tuple[ForeignDocument, ...]], ImportedTopology] = importlib.import_module(self.module).read
        return function


IMPORT_FORMATS: tuple[_ImportFormat, ...] = (
    _ImportFormat(
        "terraform", "Terraform files with a confluent_cluster_link", "watershed.topology.interop.terraform_import"
    ),
    _ImportFormat(
        "strimzi", "a Strimzi KafkaMirrorMaker2 resource (v1beta2, v1)", "watershed.topology.interop.strimzi_import"
    ),
    _ImportFormat(
        "connect", "Connect connectors of MirrorMaker 2 (JSON, properties)", "watershed.topology.interop.connect_import"
    ),
    _ImportFormat(
        "mm2", "MirrorMaker 2 properties (connect-mirror-maker.properties)", "watershed.topology.interop.mm2_import"
    ),
    _ImportFormat(
        "replicator",
        "Confluent Replicator's connectors (JSON, properties)",
        "watershed.topology.interop.replicator_import",
    ),
    _ImportFormat(
        "mm1",
        "MirrorMaker 1 and uReplicator (properties of consumer, producer, clusters; a topic mapping)",
        "watershed.topology.interop.legacy_mirror_import",
    ),
    _ImportFormat(
        "cluster-linking",
        "cluster links (properties, filters, mirror topics)",
        "watershed.topology.interop.linking_import",
    ),
)


def import_path(path: Path, wanted: str | None = None) -> ImportedTopology:
    """Read a foreign file, or all files directly in a directory. `wanted`: a format's name, instead of detection.

    Raises UnreadableTopology for what is none of the formats, not text, too large, or several formats at once.
    """
    documents = tuple(ForeignDocument(str(file), _read_foreign_text(file)) for file in _files(path))
    if wanted is not None:
        return next(each for each in IMPORT_FORMATS if each.name == wanted).read(documents)
    found = [(document, _detect_import_format(document)) for document in documents]
    known = [(document, each) for document, each in found if each is not None]
    if not known:
        raise UnreadableTopology(f"{path}: {_nothing(documents)}; `topology import` reads {_list()}")
    formats = {each.name: each for _, each in known}
    if len(formats) > 1:
        raise UnreadableTopology(f"{path}: files of several formats ({', '.join(sorted(formats))}); name one file")
    [chosen] = formats.values()
    imported = chosen.read(tuple(document for document, _ in known))
    unread = tuple(_note_unread_file(document, chosen) for document, each in found if each is None)
    return replace(imported, not_carried=(*imported.not_carried, *unread))


def _note_unread_file(document: ForeignDocument, chosen: _ImportFormat) -> NotCarried:
    why = f"nothing in it is read: {_nothing((document,))}; the other files are {chosen.what}"
    return NotCarried("the whole file", why, FileSpan(document.file, 1, 1, 1, 1))


def import_text(text: str, file: str) -> ImportedTopology:
    """The same for a text. Raises UnreadableTopology."""
    document = ForeignDocument(file, text)
    chosen = _detect_import_format(document)
    if chosen is None:
        raise UnreadableTopology(f"{file}: {_nothing((document,))}; `topology import` reads {_list()}")
    return chosen.read((document,))


def _detect_import_format(document: ForeignDocument) -> _ImportFormat | None:
    return next((each for each in IMPORT_FORMATS if each.recognises(document)), None)


def _read_foreign_text(path: Path) -> str:
    """UTF-8, or else ISO 8859-1, in which Java reads properties. Raises UnreadableTopology."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UnreadableTopology(f"{path}: {size} bytes; a file to import has at most {MAX_FILE_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableTopology(f"{path}: {error.strerror or error}") from None
    if b"\0" in data or len(re.findall(rb"[\x01-\x08\x0e-\x1f]", data)) > 8:
        raise UnreadableTopology(f"{path}: not a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _files(path: Path) -> tuple[Path, ...]:
    if not path.is_dir():
        return (path,)
    found = tuple(sorted(each for each in path.iterdir() if each.suffix in IMPORT_SUFFIXES and each.is_file()))
    if not found:
        raise UnreadableTopology(f"{path}: a directory without files to import ({', '.join(IMPORT_SUFFIXES)})")
    if len(found) > _MAX_FILES:
        raise UnreadableTopology(f"{path}: {len(found)} files; at most {_MAX_FILES} are imported at once")
    return found


def _nothing(documents: tuple[ForeignDocument, ...]) -> str:
    if not any(document.text.strip() for document in documents):
        return "the file is empty"
    for document in documents:
        kind = document.said("kind")
        if kind is not None:
            return f"this is a {kind}" if kind.isidentifier() else "this is some other YAML document"
        if document.text.lstrip()[:1] in "{[" and document.tree is None and document.problems:
            first = document.problems[0]
            return f"this is not complete JSON (line {first.labels[0].span.line}: {first.message})"
    return "none of the formats is recognised in it"


def _list() -> str:
    return "; ".join(each.what for each in IMPORT_FORMATS)
