"""The log of a proof that was ordered is its reader's alone, and is not written through a link."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from watershed.spark import verify


@pytest.fixture(autouse=True)
def proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_prove", lambda *_: 0)


def ordered(out: Path) -> None:
    warm: Any = None
    verify._ordered(warm, ["--topology", "x.yaml", "--out", str(out)])


def test_it_is_not_for_everybody_and_begins_anew(tmp_path: Path) -> None:
    for _ in range(2):
        ordered(tmp_path / "new")
    log = tmp_path / "new" / verify.LOG_FILE
    assert log.read_text(encoding="utf-8").count("ordered of") == 1
    assert stat.S_IMODE(log.stat().st_mode) & 0o137 == 0
    assert stat.S_IMODE(log.parent.stat().st_mode) & 0o027 == 0


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("untouched", encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    (out / verify.LOG_FILE).symlink_to(theirs)
    with pytest.raises(OSError, match=verify.LOG_FILE):
        ordered(out)
    assert theirs.read_text(encoding="utf-8") == "untouched"
