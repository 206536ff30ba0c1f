"""What README.md and docs/ tell people to type, to open and to count is there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import click
import pytest

from watershed.cli.main import COMMAND_TABLE, topology
from watershed.topology.rules import RULES

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"),
]
ROOMS = (
    "bench",
    "cli",
    "clusters",
    "cutover",
    "dags",
    "docker",
    "docs",
    "lab",
    "plugins",
    "replicator",
    "requirements",
)
ROOMS += ("requirements", "spark", "tests", "topology", ".github", "changelog.d")

FENCED = re.compile(r"^ {0,3}```.*?\n(.*?)^ {0,3}```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# The language's version looks like a path, and words in capitals stand for something else.
PATH = rf"(?!topology/v1alpha1$|.*\b[A-Z]+\b)(?:{'|'.join(map(re.escape, ROOMS))})/[\w./-]+"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def typed(page: Path) -> Iterator[str]:
    """Every command line of a page: in blocks (with or without a prompt), and in the text between backticks."""
    text = page.read_text(encoding="utf-8")
    for block in FENCED.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.removeprefix("$ ").removeprefix(".venv/bin/").strip()
    for quoted in INLINE.findall(FENCED.sub("", text)):
        yield " ".join(quoted.split()).removeprefix(".venv/bin/")


def words_of(line: str) -> list[str]:
    """Without the shell's comment, redirection and what follows a pipe."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # prose with an apostrophe
        return []
    return list(takewhile(lambda word: word not in ("|", ">", "&&", "||", ";") and not word.startswith(">"), words))


@cache
def command(*names: str) -> click.Command:
    found: click.Command = topology
    for name in names:
        assert isinstance(found, click.Group), names
        below = found.get_command(click.Context(found), name)
        assert below is not None, f"topology {' '.join(names)}: there is no {name}"
        found = below
    return found


def complaint(words: list[str]) -> str | None:
    """What is wrong with `topology WORDS`, as click would see it; values are not looked at."""
    names: tuple[str, ...] = ()
    for word in words:
        if not isinstance(command(*names), click.Group) or word.startswith("-") or not word.islower():
            break
        if word not in command(*names).list_commands(click.Context(command(*names))):  # type: ignore[attr-defined]
            return f"no command {word}"
        names += (word,)
    known = {option for param in command(*names).params for option in (*param.opts, *param.secondary_opts)}
    known |= {"--help", "-h"}
    for word in words[len(names) :]:
        option = word.partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z0-9-]*", option) and option not in known:
            return f"topology {' '.join(names)} has no option {option}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    wrong = []
    for line in typed(page):
        words = words_of(line)
        if words[:1] == ["topology"] and len(words) > 1 and (said := complaint(words[1:])):
            wrong.append(f"{line}: {said}")
        elif words[:2] == ["python", "-m"] and importlib.util.find_spec(words[2]) is None:
            wrong.append(f"{line}: no module {words[2]}")
        elif words[:1] == ["make"] and (gone := {w for w in words[1:] if re.fullmatch(r"[a-z-]+", w)} - targets()):
            wrong.append(f"{line}: no target {gone}")
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    wrong = []
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = page if not path else (page.parent / path).resolve()
        if not there.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(there):
            wrong.append(f"{target}: no such heading")
    for quoted in INLINE.findall(text):
        if re.fullmatch(PATH, quoted) and not is_here(quoted):
            wrong.append(f"`{quoted}`: no such file")
    assert not wrong


def is_here(quoted: str) -> bool:
    """A file, a folder, a module without its suffix, or a name in a module."""
    return any((ROOT / path).exists() for path in (quoted, f"{quoted}.py", f"{quoted.rpartition('.')[0]}.py"))


@cache
def targets() -> set[str]:
    made = (ROOT / "Makefile").read_text() + (ROOT / "demo.mk").read_text()
    return set(re.findall(r"^([a-z-]+):", made, re.MULTILINE))


@cache
def anchors(page: Path) -> set[str]:
    """Of headings, as GitHub makes them, and those that are written out."""
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
    return made | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def test_the_readme_names_every_command_and_counts_the_rules() -> None:
    said = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMAND_TABLE if f"topology {name}" not in said] == []
    assert re.findall(r"^(\d+) rules", said, re.MULTILINE) == [str(len(RULES))]


@pytest.mark.parametrize("command_line", ["topology lint", "topology migrate"])
def test_the_readme_shows_what_the_command_prints(command_line: str) -> None:
    """Its examples that need no cluster, line by line; `…` stands for lines that are left out, hashes may differ."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = [block for block in FENCED.findall(text) if block.startswith(f"$ {command_line}")]
    typed_line, *shown = block.rstrip().splitlines()
    words = shlex.split(typed_line.removeprefix("$ topology"))
    ran = subprocess.run(
        [sys.executable, "-m", "watershed.cli.main", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    printed = [without_hash(line) for line in ran.stdout.splitlines()]
    at = 0
    for line in shown:
        if line != "…":
            assert without_hash(line) in printed[at:], f"{line!r} is not printed any more"
            at = printed.index(without_hash(line), at) + 1


def without_hash(line: str) -> str:
    return re.sub(r"sha256:[0-9a-f]+", "sha256:", line.rstrip())
