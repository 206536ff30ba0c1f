"""A run that one version has begun is finished by the other: for every order of steps, taken back, and rolled back
afterwards. Versions take turns; `make soak` stops at every step boundary, in both directions."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.upgrade import two_version_runs
from tests.upgrade.two_version_runs import STORIES, Scene
from watershed.lab.previous_version import InstalledRelease


class OtherVersion:
    """`two_version_runs` as a program of another version."""

    def __init__(self, release: InstalledRelease) -> None:
        program = [str(release.python), "-P", two_version_runs.__file__]
        self._process = subprocess.Popen(
            program, env=release.build_environ(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "failed" not in told, told
        return told

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class ThisVersion:
    """The same in this process."""

    def ask(self, **order: Any) -> dict[str, Any]:
        return two_version_runs.answer_order(json.loads(json.dumps(order)))


@pytest.fixture(scope="module")
def versions(previous: InstalledRelease) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("watershed.cutover.driver.write_run_evidence", two_version_runs.name_evidence_only)
        older = OtherVersion(previous)
        yield {"older": older, "newer": ThisVersion()}
        older.end()


def find_boundaries(entries: list[dict[str, Any]], skipped: int) -> list[int]:
    """Behind which of its own entries a run has finished a step."""
    own = entries[skipped:]
    return [
        at for at, each in enumerate(own) if each["kind"] == "outcome" and not each["deed"] and each["step"] != "run"
    ]


def count_entries_before(strategy: str, end: str) -> int:
    return len(Scene.begin(strategy, end).log.records)


@pytest.mark.soak
@pytest.mark.parametrize(("first", "second"), [("older", "newer"), ("newer", "older")])
@pytest.mark.parametrize(("strategy", "end"), STORIES)
def test_a_run_goes_on_under_the_other_version_behind_every_step(
    versions: dict[str, Any], strategy: str, end: str, first: str, second: str
) -> None:
    whole = versions[first].ask(strategy=strategy, end=end, holder="alone")
    boundaries = find_boundaries(whole["entries"], count_entries_before(strategy, end))
    assert len(boundaries) > 10
    for at in boundaries:
        goes_on(versions, strategy, end, first, second, at)


def goes_on(versions: dict[str, Any], strategy: str, end: str, first: str, second: str, at: int) -> None:
    """The program that drives judges the world at the end."""
    left = versions[first].ask(strategy=strategy, end=end, holder="first", crash_at=at)
    assert left["state"] == "crashed"
    done = versions[second].ask(scene=left["scene"], holder="second")
    assert done["state"] == ("rolled_back" if end == "back" else "done"), (at, left["entries"][-1])


@pytest.mark.parametrize(("strategy", "end"), STORIES)
def test_versions_take_turns_step_by_step(versions: dict[str, Any], strategy: str, end: str) -> None:
    """Each writes a few entries and dies, until one of them is at the end. Each time more: steps begin again."""
    left = versions["older"].ask(strategy=strategy, end=end, holder="turn 0", crash_at=5)
    turn = 0
    while left["state"] == "crashed":
        turn += 1
        at_turn = versions[("older", "newer")[turn % 2]]
        left = at_turn.ask(scene=left["scene"], holder=f"turn {turn}", crash_at=5 + turn)
    assert turn > 4
    assert {each["holder"] for each in left["entries"]} >= {f"turn {each}" for each in range(turn)}


@pytest.mark.soak
def test_the_program_of_the_other_version_uses_nothing_of_this_one(previous: InstalledRelease) -> None:
    asked = "import tests.cutover.world, watershed.cutover.driver as d; print(d.__file__, tests.cutover.world.__file__)"
    told = subprocess.run(
        [str(previous.python), "-P", "-c", asked], env=previous.build_environ(os.environ), capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert all(Path(each).is_relative_to(previous.root) for each in told.stdout.split())
