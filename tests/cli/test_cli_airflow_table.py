"""docs/airflow-operations.md names where each command is in Airflow: none is missing, and what is named is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from watershed.cli.main import COMMAND_TABLE, topology
from watershed.cutover.operations.catalogue import DECIDE, OPERATE
from watershed.plugins.operation_params import DECIDE_MEANINGS, OPERATE_MEANINGS
from watershed.plugins.steps.command_runs import INSPECTIONS, build_inspection
from watershed.plugins.supervisor_queues import SUPERVISE_KINDS

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = {"operate": set(OPERATE), "decide": set(DECIDE), "inspect": set(INSPECTIONS)}
PARAMS = {
    "flow": "a-to-b",
    "topic": "orders",
    "partition": 0,
    "offset": 42,
    "cluster": "a",
    "role": "worker",
    "group": "billing",
    "reverse": True,
}


def rows() -> list[tuple[str, str, str]]:
    """Command (without `topology`), where, how."""
    page = (ROOT / "docs" / "airflow-operations.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `topology ([^`]+)` \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    return [(command, where, how) for command, where, how in found]


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that does something, by its words."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def test_every_command_is_in_the_table() -> None:
    told = {command.partition(" --")[0] for command, _, _ in rows()}
    assert told == set(commands(topology))
    assert len(COMMAND_TABLE) > 20


@pytest.mark.parametrize(("command", "where", "how"), rows())
def test_what_the_table_names_is_there(command: str, where: str, how: str) -> None:
    kinds = re.findall(r"`(\w+)__NAME`", f"{where} {how}")
    made = {kind for path in (ROOT / "dags").glob("*.py") for kind in re.findall(r'"(\w+)", build_', path.read_text())}
    made |= {*SUPERVISE_KINDS}
    assert kinds or where in ("page", "-"), command
    assert set(kinds) <= made
    for kind, operations in OPERATIONS.items():
        named = set(re.findall(r"operation `([\w-]+)`", how)) if kinds[-1:] == [kind] else set()
        assert named <= operations, command


def test_every_operation_is_in_the_table_and_in_the_form() -> None:
    named = set(re.findall(r"operation `([\w-]+)`", " ".join(how for _, _, how in rows())))
    assert named == set().union(*OPERATIONS.values())
    assert (list(OPERATE_MEANINGS), list(DECIDE_MEANINGS)) == (list(OPERATE), list(DECIDE))


@pytest.mark.parametrize("operation", list(INSPECTIONS))
def test_an_inspection_is_a_command_that_is_understood(operation: str, tmp_path: Path) -> None:
    """Parsed, not run. A name that looks like an option stays a name."""
    for params in (PARAMS, PARAMS | {"topic": "--reveal", "group": "--yes"}):
        words = build_inspection(operation, tmp_path / "orders.yaml", tmp_path, params)
        context, command = click.Context(topology), topology
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None
            command = found
        if operation == "trace" and params["topic"].startswith("--"):
            words[-1] = "x:0:42"  # a place that is none is refused by the command itself
        parsed = command.make_context("x", words, parent=click.Context(topology))
        assert not parsed.params.get("reveal")
        assert not parsed.params.get("yes")


def test_an_inspection_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="translate needs flow, topic, partition, offset: say it and trigger again"):
        build_inspection("translate", tmp_path / "orders.yaml", tmp_path, {"topic": "", "partition": None})
