"""`tests/` says by its folders what a test needs: pure ones lie in `tests/ROOM/`, others in a folder below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.process_groups import PAIRS, SESSIONS, name_group

TESTS = Path(__file__).resolve().parents[1]
ALL_NEED_IT = {"airflow", "soak"}  # rooms in which every test needs the same: an Airflow; minutes
NEEDS = {
    "brokers": re.compile(r"mark\.kafka\b|\b(?:kafka_pair|own_pair|registry_pair)\b"),
    "spark": re.compile(r"mark\.spark\b"),
}


def place_of(text: str, room: str) -> str:
    """The folder below `tests/ROOM/` for a test file with this text; empty for a pure one."""
    if NEEDS["spark"].search(text):
        return "sessions" if room == "spark" else "spark"
    return "brokers" if NEEDS["brokers"].search(text) else ""


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_a_test_file_lies_where_its_needs_say(path: Path) -> None:
    room, *folder = path.relative_to(TESTS).parent.parts
    if room not in ALL_NEED_IT and path != Path(__file__):
        needed = place_of(path.read_text(), room)
        assert "/".join(folder) == needed, f"move it to tests/{room}/{needed}"


def test_files_that_share_what_is_dear_are_groups_and_every_other_file_is_one() -> None:
    files = {path.relative_to(TESTS.parent).as_posix(): path.read_text() for path in TESTS.rglob("test_*.py")}
    for pair, sharing in PAIRS.items():
        fixture = pair.split()[0]  # `faulty`, `guarded`; some files have one of this name that is their own
        taken = re.compile(rf"^def test_\w+\(\s*(?:[^()]*\W)?{fixture}\b", re.M)
        using = {file for file, text in files.items() if taken.search(text) and f"def {fixture}(" not in text}
        assert {file for file in using if "/brokers/" in file} == set(sharing)
        assert {name_group(file) for file in sharing} == {pair}
    with_session = {file for file in files if file.startswith(SESSIONS)}
    assert len({name_group(file) for file in with_session}) == 2
    alone = files.keys() - with_session - {file for sharing in PAIRS.values() for file in sharing}
    assert all(name_group(file) == file for file in alone)
