"""docs/glossary.md, docs/DESIGN.md and the questions for strangers name files and names that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
DESIGN = ROOT / "docs" / "DESIGN.md"
STRANGER = ROOT / "tests" / "cases" / "stranger.md"
NAMED = re.compile(r"`([\w.]+/[\w./-]+\.\w+)`(?: `([A-Za-z_]\w*)`)?")  # a file, and perhaps a name in it
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(title: str) -> list[list[str]]:
    """The cells of the table behind a heading of the glossary."""
    section = GLOSSARY.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(("title", "columns"), [("Kafka's words", 3), ("Our own words", 4)])
def test_every_word_has_one_row_with_a_file_and_words_are_in_order(title: str, columns: int) -> None:
    table = rows(title)
    words = [row[0] for row in table]
    assert words == sorted(set(words))
    assert [row for row in table if len(row) != columns or not all(row)] == []
    assert [row[0] for row in table if not NAMED.fullmatch(row[-1])] == []


@pytest.mark.parametrize("page", [GLOSSARY, DESIGN], ids=lambda page: page.name)
def test_named_files_exist_and_hold_the_names(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = []
    for path, name in NAMED.findall(text):
        if not (ROOT / path).is_file():
            wrong.append(f"{path}: no such file")
        elif name and not re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")):
            wrong.append(f"{path}: does not name {name}")
    for path, test in TEST.findall(text):
        if not (ROOT / path).is_file() or f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8"):
            wrong.append(f"{path}::{test}: no such test")
    assert not wrong


def test_questions_for_strangers_have_answers_and_do_not_tell_them() -> None:
    rows = [line.strip("|").split("|") for line in STRANGER.read_text(encoding="utf-8").splitlines() if "| `" in line]
    assert len(rows) == 45
    for question, right in rows:
        files = re.findall(r"`([^`]+)`", right)
        assert files
        assert [path for path in files if not (ROOT / path).exists()] == []
        told = {Path(path).stem for path in files} & set(re.findall(r"[\w-]+", question))
        assert not told, f"{question} tells {told}"


def test_older_words_are_only_where_the_glossary_says() -> None:
    """Pages for users have the words of today. "Out loud" is English; research and decisions keep theirs."""
    words = re.compile(r"\b(?:seats?|lanes?|loud|courses?|retraced|stretches)\b")
    pages = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page != GLOSSARY)]
    found = [
        f"{page.name}:{number}: {line.strip()}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(re.sub(r"`[^`]*`|out loud|\]\([^)]*\)", "", line))
    ]
    assert found == []
