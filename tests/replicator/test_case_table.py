"""docs/replicator-cases.md names every case, and only tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "replicator-cases.md"
ACCEPTANCE = chain(range(1, 32), range(40, 63), range(70, 78), range(80, 94))
CASES = {f"AC-{number:02}" for number in ACCEPTANCE} | {"AC-82b"} | {f"F{number:02}" for number in range(1, 43)}
ROW = re.compile(r"^\| ((?:AC-|F)\w+) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_case_stands_there_once() -> None:
    rows = [row[0] for row in ROW.findall(PAGE.read_text())]
    assert sorted(rows) == sorted(CASES)


def test_every_named_test_exists() -> None:
    named = TEST.findall(PAGE.read_text())
    assert named
    missing = {
        f"{path}::{name}" for path, name in named if not (ROOT / path).exists() or name not in functions_of(path)
    }
    assert not missing


def test_a_case_without_a_test_says_why() -> None:
    silent = [case for case, _what, by in ROW.findall(PAGE.read_text()) if not TEST.search(by) and len(by) < 10]
    assert not silent
