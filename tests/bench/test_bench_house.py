"""The counts of `make house`, on trees of a few lines in which every figure is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.bench.house import (
    House,
    check_house,
    find_import_cycles,
    list_complex_functions,
    list_largest,
    measure_house,
    read_house,
)

PROJECT = '[tool.mypy]\nstrict = true\nfiles = ["topology", "clusters"]\n'
BRANCHES = "".join(f"    if n == {number}:\n        return {number}\n" for number in range(10))
PLAN = '''"""."""
def read(n):
    """Yes."""

MOST = 3
_OWN = 4
class Plan:
    a: int
    b: int
'''
LINT = f"from watershed.topology.plan import read\n\ndef read_plan(n):\n{BRANCHES}    return n\n\ndef read(): ...\n"


@pytest.fixture
def house(tmp_path: Path) -> House:
    files = {
        "pyproject.toml": PROJECT,
        "README.md": "one\ntwo\n",
        "topology/__init__.py": "",
        "topology/plan.py": PLAN,
        "topology/lint.py": LINT,
        "clusters/admin.py": "def main():\n    from watershed.clusters import wire\n    return wire\n",
        "clusters/wire.py": "import watershed.clusters.admin\n\nMOST = 5\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return read_house(tmp_path)


def test_every_row_is_counted(house: House) -> None:
    assert measure_house(house) == {
        "public top-level names": "6",  # read, MOST, Plan, read_plan, read, MOST
        "of these, defined in two or more modules": "4 (66.7%)",
        "public functions at top level": "3",
        "of these, with a name of one word": "2 (66.7%)",
        "public functions and classes without a docstring, top level": "4 (80.0%)",  # main is asked for one, too
        "the same with methods": "4 (80.0%)",
        "functions over complexity 10": "1",
        "import cycles, imports inside functions counted": "1",
        "rooms under strict mypy": "2 of 10",
        "classes with more than 12 fields": "0",
        "lines of README.md": "2",
        "source files, tests left out": "5",
        "source lines, tests left out": str(9 + 26 + 3 + 3),
    }


def test_a_cycle_names_its_modules_also_through_a_function(house: House) -> None:
    assert find_import_cycles(house.sources) == [["watershed.clusters.admin", "watershed.clusters.wire"]]


def test_what_is_too_complex_is_named_with_its_place(house: House) -> None:
    [found] = list_complex_functions(house.root)
    assert found.startswith("lint.py:3 `read_plan` is too complex (11 > 10)")


def test_the_largest_are_named_with_lines_and_fields(house: House) -> None:
    largest = list_largest(house)
    assert largest["modules"][0] == "26 topology/lint.py"
    assert largest["functions"][0] == "22 topology/lint.py read_plan"
    assert largest["classes"] == ["3 topology/plan.py Plan, 2 fields"]


def test_a_new_cycle_and_a_new_double_name_fail_the_check(house: House) -> None:
    cycle, most = check_house(house)  # not `read`, which modules may share
    assert cycle.startswith("watershed.clusters.admin, watershed.clusters.wire: these modules import each other")
    assert most.startswith("watershed.topology.plan, watershed.clusters.wire: each defines the public name MOST;")


def test_one_more_function_with_a_one_word_name_fails_the_check(tmp_path: Path) -> None:
    known = "".join(f"def {letter * 3}(): ...\n" for letter in "abcde")
    command = "@click.command()\ndef lint(): ...\n@lab.command('up')\ndef up(): ...\n"
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "lint.py").write_text(command + known)
    assert check_house(read_house(tmp_path)) == []
    (tmp_path / "cli" / "more.py").write_text("def landed(): ...\n")
    [fault] = check_house(read_house(tmp_path))
    assert fault.startswith("6 public functions have a name of one word, 5 are known: watershed.cli.lint.aaa, ")
    assert "cli.more.landed" in fault


def test_a_docstring_that_promises_a_class_which_is_not_there_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "cli").mkdir()
    asks = 'def ask_broker():\n    """→ {}, read back. Raises KeyError, {} or\n    TimeoutError."""\n'
    errors = tmp_path / "cli" / "errors.py"
    (tmp_path / "cli" / "ask.py").write_text(asks.format("BrokerAnswer", "NotAsked"))
    errors.write_text("class BrokerAnswer: ...\nclass NotAsked(Exception): ...\n")
    assert check_house(read_house(tmp_path)) == []
    errors.write_text('class Answer:\n    """Formerly BrokerAnswer."""\n')
    [fault] = check_house(read_house(tmp_path))
    assert fault.startswith(
        "watershed.cli.ask.ask_broker: its docstring names BrokerAnswer, NotAsked, which no module has"
    )
