"""Where an archive's files lie. A file is written whole or not at all, and no object is ever overwritten."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Final, Protocol

from watershed.clusters.private_files import FILE_MODE, make_folder
from watershed.spark.errors import Unwritable, WrongUse

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # never through a link that stands there
_TEMPORARY: Final = ".tmp-"
_LOCK_FILE: Final = ".lock"


class ReusedMemory:
    """Memory for one object after the other; of one thread. Fresh memory of 32 MiB for each costs more than to encode
    or to hash it: the system hands it out page by page, and clears each."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, size: int) -> bytearray:
        """At least `size` bytes; what was taken before holds other content from now on."""
        if len(self._held) < size:
            self._held = bytearray(size)
        return self._held


class ArchiveStorage(Protocol):
    """Files by their path below the archive's root, `/` between folders. Raises OSError where reading fails, Unwritable
    where writing does."""

    def locate(self, path: str) -> str:
        """The path as people find it."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        ...

    def read_into(self, path: str, memory: ReusedMemory) -> memoryview:
        """The whole file, valid until the memory is used again. Raises FileNotFoundError."""
        ...

    def list_names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; empty where there is no such folder. Temporary files are left out."""
        ...

    def write_new(self, path: str, content: bytes | memoryview) -> None:
        """A file that is not there yet. Once this returns it survives a loss of power."""
        ...

    def replace(self, path: str, content: bytes | memoryview) -> None:
        """A file that may be there: a reader finds the former content or this, whole."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Holds the archive for one run, where the place has locks. Raises WrongUse while another run holds it."""
        ...


class FolderStorage:
    """A local folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def locate(self, path: str) -> str:
        """The path as people find it."""
        return str(self.root / path)

    def read(self, path: str) -> bytes:
        """The whole file; never through a link. Raises OSError."""
        with self._open(path) as file:
            return file.read()

    def read_into(self, path: str, memory: ReusedMemory) -> memoryview:
        """The whole file, valid until the memory is used again; never through a link. Raises OSError."""
        with self._open(path) as file:
            room = memoryview(memory.take(os.fstat(file.fileno()).st_size + 1))
            end = 0
            while read := file.readinto(room[end:]):
                end += read
            return room[:end] if end < len(room) else memoryview(bytes(room) + file.read())  # it grows meanwhile

    def _open(self, path: str) -> BufferedReader:
        opened = os.open(self.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        return os.fdopen(opened, "rb")

    def list_names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted."""
        try:
            return sorted(name for name in os.listdir(self.root / folder) if not name.startswith(_TEMPORARY))
        except FileNotFoundError:
            return []

    def write_new(self, path: str, content: bytes | memoryview) -> None:
        """Raises Unwritable, also for a file that is there: it is not touched."""
        if os.path.lexists(self.root / path):
            raise Unwritable(f"{self.locate(path)} is there already, and objects are never overwritten")
        self.replace(path, content)

    def replace(self, path: str, content: bytes | memoryview) -> None:
        """Writes under a temporary name, then renames; both are on the disk before this returns. Raises Unwritable."""
        final = self.root / path
        beside = final.with_name(f"{_TEMPORARY}{final.name}")  # one name, so that a killed run's rest is written over
        try:
            make_folder(final.parent)
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, _NEW, FILE_MODE), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(final)
            _sync_folders(final.parent, self.root)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise _build_unwritable(error, final) from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the folder for one run. Raises WrongUse while another run holds it, Unwritable."""
        try:
            make_folder(self.root)
            held = os.open(self.root / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise _build_unwritable(error, self.root) from None
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise WrongUse(f"another run writes to {self.root} now. Wait until it has ended") from None
        finally:
            os.close(held)


def _sync_folders(folder: Path, root: Path) -> None:
    """A name, too, has to reach the disk; so do the names of folders that were made for it."""
    while True:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
        if folder == root or folder == folder.parent:
            return
        folder = folder.parent


def _build_unwritable(error: OSError, path: Path) -> Unwritable:
    return Unwritable(
        f"cannot write {error.filename or path}: {error.strerror or error}. Make room or give this user the right to "
        "write there, then run it again: what is complete stays, what is half is written again"
    )
