"""docs/capabilities.md names keys, commands and tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from watershed.cli.main import topology
from watershed.topology.language import build_language_schema

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "capabilities.md"
QUOTED = re.compile(r"`([^`]+)`")
SCHEMA = build_language_schema()


class Row(NamedTuple):
    """A row of the page, cell by cell."""

    capability: str
    others: str
    ours: str
    tests: str


def read_rows() -> list[Row]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [Row(*(cell.strip() for cell in line.strip("|").split(" | "))) for line in lines]
    return [row for row in rows if row.capability != "capability"]


ROWS = read_rows()


def parts(kind: str) -> list[Any]:
    """(what is quoted in the cell, the row's capability)."""
    return [
        pytest.param(quoted, id=f"{row.capability}: {quoted}")
        for row in ROWS
        for quoted in QUOTED.findall(getattr(row, kind))
    ]


def test_each_capability_is_one_row_with_a_key_and_a_test() -> None:
    assert len(ROWS) > 50
    assert len({row.capability for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.others, row
        assert QUOTED.findall(row.ours), row
        assert QUOTED.findall(row.tests), row


@cache
def list_tests(path: Path) -> frozenset[str]:
    """The names of a file's tests."""
    return frozenset(
        node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    )


@pytest.mark.parametrize("test", parts("tests"))
def test_each_test_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file()
    assert name.startswith("test_")
    assert name in list_tests(ROOT / path)


@pytest.mark.parametrize("quoted", parts("ours"))
def test_each_key_and_command_is_there(quoted: str) -> None:
    if quoted.startswith("topology "):
        require_command(quoted.split()[1:])
    else:
        require_key(quoted)


def require_command(words: list[str]) -> None:
    command: click.Command = topology
    for word in words:
        if word.startswith("-"):
            assert any(word in option.opts for option in command.params), word
            continue
        assert isinstance(command, click.Group), word
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found


def require_key(key: str) -> None:
    """A path in the language; of a flow's setting without `flows[].`."""
    steps = key.replace("[]", ".[]").split(".")
    if steps[0] not in SCHEMA["properties"]:
        steps = ["flows", "[]", *steps]
    assert has_path(SCHEMA, steps), key


def has_path(schema: dict[str, Any], steps: list[str]) -> bool:
    if "$ref" in schema:
        return has_path(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], steps)
    if not steps:
        return True
    below = {"*": schema.get("additionalProperties"), "[]": schema.get("items")}
    found = below.get(steps[0]) or schema.get("properties", {}).get(steps[0])
    return (isinstance(found, dict) and has_path(found, steps[1:])) or any(
        has_path(each, steps) for each in schema.get("oneOf", ())
    )
