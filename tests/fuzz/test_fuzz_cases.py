"""Every input that `make fuzz` has found is tried again, each target gets a few hundred of one seed, and the harness
itself finds what was planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import planted
from tests.fuzz.__main__ import main
from tests.fuzz.child import Order
from tests.fuzz.kept import kept_folders, minimised
from tests.fuzz.target import NAMES
from tests.fuzz.watching import MEMORY, Finding, watch

pytestmark = pytest.mark.slow
FEW = {"files": 10, "imports": 30, "queries": 15}  # of the others a hundred; `make fuzz` tries for minutes
KEPT = {kept.name: kept for kept in kept_folders()}
HANG_S = 60.0  # of a neighbour's burden on this machine nothing is said here: `make fuzz` has 5 s


def tried(target: str, folder: Path, most: int, hang: float = HANG_S, only: str = "") -> list[Finding]:
    seconds = 0.0 if only else 600.0
    watched = watch(Order(target, "7/0", str(folder), seconds, most, MEMORY, only), hang=hang)
    assert watched.figures.inputs >= 1
    return list(watched.findings)


def test_a_kept_input_that_fails_again_is_found_among_others(tmp_path: Path) -> None:
    kept, order = tmp_path / "kept", tmp_path / "order"
    kept.mkdir()
    for name, data in (("a", b"well"), ("b", planted.BAD), ("c", b"well")):
        (kept / f"{name}.bin").write_bytes(data)
    watched = watch(Order("tests.fuzz.planted:raising", "7/0", str(order), 0.0, 0, MEMORY, str(kept)))
    assert [each.data for each in watched.findings] == [planted.BAD]
    assert watched.figures.inputs == 3


def test_there_are_cases() -> None:
    assert {"hooks", "batches", "answers"} <= KEPT.keys() <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_found_is_found_no_more_and_a_few_inputs_of_every_target(name: str, tmp_path: Path) -> None:
    """All of a target in one process, because some start for seconds; a finding says which input it was."""
    kept, few = KEPT.get(name), FEW.get(name, 100)
    before = len(list(kept.glob("*.bin"))) if kept else 0
    watched = watch(Order(name, "7", str(tmp_path), 600, before + few, MEMORY, str(kept or "")), hang=HANG_S)
    assert watched.findings == ()
    figures = watched.figures
    assert figures.inputs == before + few == figures.accepted + figures.refused
    assert figures.accepted > figures.accepted_kept, "everything is refused: nothing behind the first check is tried"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (planted.raising, "traceback"),
        (planted.hanging, "hang"),
        (planted.waiting, "hang"),
        (planted.eating, "memory"),
        (planted.eating_in_secret, "memory"),
        (planted.dying, "death"),
        (planted.lying, "oracle"),
        (planted.silent, "no message"),
    ],
)
def test_what_is_planted_is_found_with_its_input(fault: object, kind: str, tmp_path: Path) -> None:
    name = f"tests.fuzz.planted:{fault.__name__}"  # type: ignore[attr-defined]
    [found] = tried(name, tmp_path, 4, hang=0.3)
    assert (found.kind, found.data) == (kind, planted.BAD)


def test_a_sound_target_is_said_to_be_sound(tmp_path: Path) -> None:
    watched = watch(Order("tests.fuzz.planted:sound", "7/0", str(tmp_path), 600, 4, MEMORY))
    assert (watched.figures.accepted, watched.figures.refused, watched.findings) == (3, 1, ())


def test_a_finding_is_made_smaller() -> None:
    name = "tests.fuzz.planted:raising"
    [found] = _of(name, planted.BAD + b"x" * 500)
    assert minimised(found).data == planted.BAD


def _of(name: str, data: bytes) -> list[Finding]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input"
        path.write_bytes(data)
        found = tried(name, Path(folder), 1, only=str(path))
    return [Finding(name, each.kind, each.what, data) for each in found]


@pytest.mark.parametrize(
    "wrong", [{"FUZZ_TARGETS": "nothing"}, {"FUZZ_SEED": "x"}, {"FUZZ_MINUTES": "soon"}, {"FUZZ_INPUT": "/nowhere"}]
)
def test_wrong_use_is_told(wrong: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(wrong) == 2
    assert "make fuzz: " in capsys.readouterr().err
