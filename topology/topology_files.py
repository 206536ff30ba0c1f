"""Which files a topology is made of. DAG files ask this at every parse, so nothing of the language is imported here."""

from __future__ import annotations

from pathlib import Path

from watershed.topology.errors import UnreadableTopology
from watershed.topology.text_escaping import escape_controls

TOPOLOGY_SUFFIXES = (".yaml", ".yml")
LINT_CONFIGURATION_FILE = "topology.lint.yaml"


def is_topology_file_name(path: Path) -> bool:
    """Whether a file of this name is a part of a topology; the file itself is not looked at."""
    return path.suffix in TOPOLOGY_SUFFIXES and path.name != LINT_CONFIGURATION_FILE


def list_topology_files(path: Path) -> tuple[Path, ...]:
    """The path itself, or the YAML files directly in a directory, sorted. Raises UnreadableTopology."""
    if not path.is_dir():
        return (path,)
    found = tuple(sorted(each for each in path.iterdir() if is_topology_file_name(each) and each.is_file()))
    if not found:
        why = "a directory without topology files (*.yaml); name one, or a file"
        raise UnreadableTopology(f"{escape_controls(str(path))}: {why}")
    return found
