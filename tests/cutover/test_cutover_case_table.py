"""docs/cutover-cases.md names every case of the catalogue, and only tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cutover-cases.md"
CASES = [f"C{number:02}" for number in range(1, 33)]
ROW = re.compile(r"^\| (C\d\d) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_case_stands_there_once_and_in_order() -> None:
    assert [row[0] for row in ROW.findall(PAGE.read_text())] == CASES


def test_every_case_names_a_test_and_every_named_test_exists() -> None:
    missing = []
    for case, _what, by in ROW.findall(PAGE.read_text()):
        named = TEST.findall(by)
        assert named, f"{case} names no test"
        missing += [f"{case}: {p}::{t}" for p, t in named if not (ROOT / p).exists() or t not in functions_of(p)]
    assert not missing
