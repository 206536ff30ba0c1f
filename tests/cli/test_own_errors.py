"""An error of ours without an exit code is told as it is, and not as a defect."""

from __future__ import annotations

import pytest

from watershed.cli.errors import report_error


def test_an_error_of_ours_is_no_defect(capsys: pytest.CaptureFixture[str]) -> None:
    ours = type("Refusal", (ValueError,), {"__module__": "watershed.topology.plan"})
    assert report_error(ours("the plan has no flows")) == 2
    assert capsys.readouterr().err == "topology: the plan has no flows\n"
    assert report_error(ValueError("no")) == 2
    assert "This is a defect of Watershed" in capsys.readouterr().err


def test_a_part_that_is_not_installed_is_no_package_for_pip(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(ModuleNotFoundError("no", name="watershed.plugins")) == 2
    told = capsys.readouterr().err
    assert "needs `watershed.plugins`, which this installation of Watershed does not have" in told
    assert "pip install" not in told
