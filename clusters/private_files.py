"""Files that others shall not read, in folders in which others may not follow links of ours: evidence, logs, state.

The group may read: Airflow's components can have accounts of their own. A link is never gone through, whoever made it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

FILE_MODE, _FOLDER_MODE = 0o640, 0o750
_LARGEST = 64 * 1024 * 1024  # bytes of a file that is read as a whole


def make_folder(path: Path) -> None:
    """The folder and those above it that are missing. Raises OSError."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Whole or not at all: a reader never sees half a file. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.unlink(missing_ok=True)  # it may be a link: it is not written through
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb") as file:
        file.write(content)
    fresh.replace(path)


def read_private_file(path: Path, most: int = _LARGEST, *, begin: int = 0) -> bytes:
    """At most so many bytes, behind the first `begin`. Raises OSError for a link, and for what is no file."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    with os.fdopen(opened, "rb") as file:
        if begin:
            file.seek(begin)
        return file.read(most)


def read_file_end(path: Path, most: int) -> bytes:
    """The last bytes of a file. Raises OSError for a link."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def open_for_append(path: Path) -> int:
    """A descriptor that appends to the file, made if missing. Raises OSError for a link."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
