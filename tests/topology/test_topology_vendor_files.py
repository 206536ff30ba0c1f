"""The files of docs/vendors.md can be used as they are: each is linted, compiled, and named by the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from watershed.topology import compile_path
from watershed.topology.lint import lint_path

DOCS = Path(__file__).parents[2] / "docs"
FILES = sorted((DOCS / "vendors").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_vendor_s_file_has_no_fault(path: Path) -> None:
    found = lint_path(path)
    assert [finding.message for finding in found.findings if finding.severity in ("error", "warning")] == []
    [first, *_] = path.read_text().splitlines()
    assert first == f"# Flows: {', '.join(flow.id for flow in compile_path(path).flows)}"


def test_the_page_names_every_file_and_no_other() -> None:
    named = re.findall(r"\]\(vendors/([a-z-]+\.yaml)\)", (DOCS / "vendors.md").read_text())
    assert sorted(named) == [path.name for path in FILES]
