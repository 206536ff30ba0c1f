"""tests/cases/lint: a file and the text report that it gives. `pytest tests/topology --update` rewrites the reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.reports.text import render_frames

CASES = Path(__file__).parents[1] / "cases" / "lint"


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_case(path: Path, request: pytest.FixtureRequest) -> None:
    report = (
        "\n\n".join(render_frames(lint_topology(parse_topology(path.read_text(encoding="utf-8"), path.name)))) + "\n"
    )
    expected = path.with_suffix(".txt")
    if request.config.getoption("--update", default=False):
        expected.write_text(report, encoding="utf-8")
    assert report == expected.read_text(encoding="utf-8")
