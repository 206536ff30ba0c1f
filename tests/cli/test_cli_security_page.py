"""The table in docs/security.md says a thing only together with a test that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
TESTS = sorted(set(re.findall(r"`(tests/[^`]+\.py(?:::[^`]+)?)`", PAGE)))


def rows() -> dict[int, list[str]]:
    """The cells of every row of the table of attacks, by the number that it begins with."""
    table = PAGE.split("## What an attacker tried", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in table.splitlines() if re.match(r"\| [0-9]", line)]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    numbers = [int(each[0].split()[0]) for each in cells]
    assert sorted(set(numbers)) == sorted(numbers), "a number has two rows"
    return dict(zip(numbers, cells, strict=True))


def test_all_nineteen_findings_have_a_row_of_four_cells_that_say_something() -> None:
    found = rows()
    assert sorted(found) == list(range(1, 20))
    assert {number: len(cells) for number, cells in found.items() if len(cells) != 4 or not all(cells)} == {}


def test_every_row_names_a_test() -> None:
    assert [number for number, cells in rows().items() if not re.search(r"`tests/[^`]+`", cells[3])] == []


@pytest.mark.parametrize("named", TESTS)
def test_a_test_that_the_page_names_is_there(named: str) -> None:
    file, *inside = named.split("::")
    path = ROOT / file
    assert path.is_file(), f"docs/security.md names {file}, which is not there"
    there = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        each.name for each in ast.walk(there) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    if not inside:
        assert any(name.startswith("test_") for name in found), f"{file} holds no test"
    for name in inside:
        assert name.split("[")[0] in found, f"docs/security.md names {named}, which is not there"
