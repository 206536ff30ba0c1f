"""Files that a command writes: all of them whole, or none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click


def require_writable(path: Path | None) -> None:
    """Refuse before any work is done what could not be written after it. Raises UsageError."""
    if path is None:
        return
    if path.is_dir():
        raise click.UsageError(f"{path} is a directory; name a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise click.UsageError(f"{path} cannot be written: {path.parent} is no directory that this user may write to")


def write_output_files(texts: Mapping[Path, str]) -> None:
    """Write beside and rename, so that nobody ever reads half a file. Raises OSError."""
    written: list[tuple[Path, Path]] = []
    try:
        for path, text in texts.items():
            if path.exists() and not path.is_file():  # a pipe or a terminal cannot be renamed over
                path.write_text(text, encoding="utf-8")
                continue
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            written.append((beside, path))
            beside.write_text(text, encoding="utf-8")
        for beside, path in written:
            beside.replace(path)
    finally:
        for beside, _ in written:
            beside.unlink(missing_ok=True)
