"""Files that others shall not read; links are not gone through."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from watershed.clusters import private_files


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_folders_are_not_for_everybody(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    private_files.make_folder(folder)
    private_files.replace_file(folder / "told.json", b"1")
    os.close(private_files.open_for_append(folder / "log"))
    assert [mode(folder), mode(folder.parent)] == [0o750, 0o750]
    assert [mode(folder / name) for name in ("told.json", "log")] == [0o640, 0o640]
    assert sorted(path.name for path in folder.iterdir()) == ["log", "told.json"]


def test_nothing_is_written_or_read_through_a_link(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_bytes(b"theirs")
    link.symlink_to(other)
    for act in (
        private_files.open_for_append,
        private_files.read_private_file,
        lambda path: private_files.read_file_end(path, 10),
    ):
        with pytest.raises(OSError, match="symbolic links"):
            act(link)
    private_files.replace_file(link, b"ours")
    assert (other.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"theirs", b"ours", False)


def test_a_file_is_read_up_to_a_bound_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    os.mkfifo(tmp_path / "pipe")
    assert private_files.read_private_file(tmp_path / "log", 4) == b"0123"
    assert private_files.read_file_end(tmp_path / "log", 4) == b"6789"
    assert private_files.read_file_end(tmp_path / "log", 40) == b"0123456789"
    assert private_files.read_private_file(tmp_path / "pipe") == b""
