"""A run that is left with Ctrl-C stays as it is, and the command says what can be done with it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from watershed.cli.run_command import tell_how_to_go_on


@pytest.mark.parametrize("left", [KeyboardInterrupt, click.Abort])
@pytest.mark.parametrize("kind", ["migrate", "rollback"])
def test_it_says_how_to_go_on(capsys: pytest.CaptureFixture[str], left: type[BaseException], kind: str) -> None:
    run: Any = SimpleNamespace(run_id="run-7", run_plan=SimpleNamespace(kind=kind))
    with pytest.raises(left), tell_how_to_go_on(run, Path("my orders.yaml")):
        raise left
    said = capsys.readouterr().err
    assert said.startswith("run run-7 is not finished: nothing is taken back")
    assert f"`topology {kind} 'my orders.yaml' --resume`" in said
    assert f"`topology {kind} 'my orders.yaml' --abandon`" in said


@pytest.mark.parametrize(("run_id", "problem"), [(None, KeyboardInterrupt), ("run-7", ValueError)])
def test_a_run_that_never_began_and_any_other_end_say_nothing(
    capsys: pytest.CaptureFixture[str], run_id: str | None, problem: type[BaseException]
) -> None:
    run: Any = SimpleNamespace(run_id=run_id, run_plan=SimpleNamespace(kind="migrate"))
    with pytest.raises(problem), tell_how_to_go_on(run, Path("orders.yaml")):
        raise problem
    assert capsys.readouterr().err == ""
