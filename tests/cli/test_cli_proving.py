"""The proofs of a run in a terminal: by the application that waits, or by a new one; always about this run's plan.

The application is a small program in place of `spark.verify`; `test_cli_proving_spark.py` starts the real one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cutover.world import a_plan
from watershed.cli.proof_process import ProofProcess
from watershed.cutover.actions import RequestProof
from watershed.cutover.driver import RunEvent
from watershed.cutover.run_plan import plan_migration

PLAN = "sha256:this"
# Says in its summary which process proved what, and does what the file `mood` says.
APPLICATION = """
import json, os, sys, time
from pathlib import Path

def prove(words):
    out, mood = Path(words[words.index("--out") + 1]), Path("mood").read_text().split()
    final = "--final" in words
    if final and "dies" in mood and "--stay" in sys.argv:
        os._exit(9)
    verdict = "error" if final and "fails" in mood and "--stay" in sys.argv else "proven"
    plan = "sha256:other" if final and "changed" in mood else "sha256:this"
    summary = {"verdict": verdict, "unproven": 0, "plan_hash": plan, "proof_root": f"{os.getpid()} {' '.join(words)}"}
    (out / ".new").write_text(json.dumps(summary))
    (out / ".new").rename(out / "summary.json")

words = sys.argv[1:]
print("began")
prove(words)
if "--stay" in words:
    for line in sys.stdin:
        told = json.loads(line)
        if "hangs" in Path("mood").read_text():
            time.sleep(600)
        Path(told[told.index("--out") + 1], "verify.log").touch()
        prove(told)
    Path("ended").touch()
"""
HISTORY = RequestProof("a-to-b", ("orders", "paid"), "L1", False, None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "watershed" / "spark").mkdir(parents=True)
    (tmp_path / "watershed" / "__init__.py").touch()
    (tmp_path / "watershed" / "spark" / "__init__.py").touch()
    (tmp_path / "watershed" / "spark" / "verify.py").write_text(APPLICATION)
    (tmp_path / "mood").write_text("well")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tail(since: str | None) -> RequestProof:
    return RequestProof("a-to-b", ("orders", "paid"), "L2", True, since)


def pid_of(seen: object) -> int:
    return int(str(getattr(seen, "proof_root", "")).split()[0])


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_the_application_of_the_history_proves_the_tail(here: Path) -> None:
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        history = proofs.prove(here / "history", HISTORY)
        found = proofs.prove(here / "tail", tail(history.summary))
        assert (history.verdict, found.verdict) == ("proven", "proven")
        assert pid_of(found) == pid_of(history)
        words = str(found.proof_root)
        assert words.endswith(
            f"--out {here / 'tail'} --flow a-to-b --topics orders,paid --level L2 --final --since {history.summary}"
        )
        assert found.summary == str(here / "tail" / "summary.json")
    assert gone(pid_of(history))


@pytest.mark.parametrize("mood", ["dies", "fails", "hangs"])
def test_one_that_comes_to_no_verdict_is_replaced(here: Path, mood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watershed.cli.proof_process._BEGIN", 0.5)
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        history = proofs.prove(here / "history", HISTORY)
        (here / "mood").write_text(mood)
        found = proofs.prove(here / "tail", tail(history.summary))
        assert found.verdict == "proven"
        assert pid_of(found) != pid_of(history)
        assert gone(pid_of(history))


def test_one_that_was_killed_is_replaced(here: Path) -> None:
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        history = proofs.prove(here / "history", HISTORY)
        os.killpg(pid_of(history), signal.SIGKILL)
        found = proofs.prove(here / "tail", tail(history.summary))
        assert (found.verdict, pid_of(found) == pid_of(history)) == ("proven", False)


def test_an_older_summary_and_another_plans_never_count(here: Path) -> None:
    (here / "tail").mkdir()
    old = {"verdict": "proven", "unproven": 0, "plan_hash": PLAN, "proof_root": "0 old"}
    (here / "tail" / "summary.json").write_text(json.dumps(old))
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        history = proofs.prove(here / "history", HISTORY)
        assert pid_of(proofs.prove(here / "tail", tail(None))) == pid_of(history)
        (here / "mood").write_text("changed")
        found = proofs.prove(here / "tail", tail(history.summary))
        assert found.verdict == "error"
        assert "sha256:other" in found.message


def test_one_that_leaves_nothing_tells_its_last_words(here: Path) -> None:
    (here / "watershed" / "spark" / "verify.py").write_text("raise SystemExit('no Java here')")
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        seen = proofs.prove(here / "alone", HISTORY)
    assert seen.verdict == "error"
    assert "no Java here" in seen.message


def test_it_ends_with_the_run_that_is_interrupted(here: Path) -> None:
    found: list[int] = []

    def interrupted() -> None:
        with ProofProcess(here / "t.yaml", PLAN) as proofs:
            found.append(pid_of(proofs.prove(here / "history", HISTORY)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(found[0])


def going_on(proofs: ProofProcess, here: Path, *steps: str) -> tuple[list[str], Callable[[str], None]]:
    """A run that goes on behind its history's proof: what is said, and what begins the next step."""
    said: list[str] = []
    course = plan_migration(a_plan())
    heard = proofs.wrap_with_warm_up(lambda event: said.append(event.text), course, lambda: here)
    for name, outcome in (
        ("preflight", {"partitions": {"orders": 2, "paid": 1}}),
        ("history_proof", {"level": "L1", "summary": str(here / "history" / "summary.json")}),
        *((step, {}) for step in steps),
    ):
        heard(RunEvent(0, "r1", name, "skipped", name, outcome))
    return said, lambda step: heard(RunEvent(0, "r1", step, "begin", step))


def test_a_run_that_goes_on_has_an_application_before_producers_are_fenced(here: Path) -> None:
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        _, begin = going_on(proofs, here, "approval")
        begin("stop_consumers")
        assert proofs._process is not None, "begun with the first step that is not done"
        begun = proofs._process.pid
        begin("fence_producers")
        assert (here / "again" / "summary.json").exists(), "producers write on meanwhile"
        again = json.loads((here / "again" / "summary.json").read_text())["proof_root"]
        assert f"--topics orders,paid --level L1 --since {here / 'history' / 'summary.json'} --stay" in again
        found = proofs.prove(here / "tail", tail(None))
        assert (found.verdict, pid_of(found)) == ("proven", begun)
    assert gone(begun)


def test_a_run_that_goes_on_behind_the_fence_has_one_begun_meanwhile(here: Path) -> None:
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        said, begin = going_on(proofs, here, "approval", "fence_producers")
        begin("standstill")
        assert proofs._process is not None
        begun = proofs._process.pid
        assert said[-1] == "standstill", "nobody waits here"
        assert pid_of(proofs.prove(here / "tail", tail(None))) == begun


@pytest.mark.parametrize("step", ["preflight", "history_proof", "tail_proof", "canary", "undo_fence_producers"])
def test_what_needs_no_application_begins_none(here: Path, step: str) -> None:
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        if step in ("preflight", "history_proof"):
            heard = proofs.wrap_with_warm_up(lambda _: None, plan_migration(a_plan()), lambda: here)
            heard(RunEvent(0, "r1", step, "begin", ""))
        else:
            going_on(proofs, here)[1](step)
        assert proofs._process is None


def test_one_that_could_not_be_made_ready_is_replaced(here: Path) -> None:
    with ProofProcess(here / "t.yaml", PLAN) as proofs:
        _, begin = going_on(proofs, here)
        (here / "watershed" / "spark" / "verify.py").write_text("raise SystemExit('no Java here')")
        begin("fence_producers")
        (here / "watershed" / "spark" / "verify.py").write_text(APPLICATION)
        assert proofs.prove(here / "tail", tail(None)).verdict == "proven"
