"""The question in a terminal, on a real pseudo-terminal: what is shown, what counts as an answer, and for how long."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import click
import pytest

from watershed.cli import run_dialogue
from watershed.cli.run_dialogue import ask_person, choose_person_prompt
from watershed.cutover.live.applications.person_application import PersonRequest


class Terminal:
    """Types the lines, each when a question is out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.master, slave = os.openpty()
        self.stdin = os.fdopen(slave, "r")
        self.shown: list[str] = []
        self.lines: list[bytes] = []
        monkeypatch.setattr("sys.stdin", self.stdin)
        monkeypatch.setattr(run_dialogue.click, "echo", self._echo)

    def _echo(self, text: str = "", nl: bool = True, **_more: Any) -> None:
        self.shown.append(click.unstyle(text))
        if not nl and self.lines:
            line = self.lines.pop(0)
            threading.Timer(0.05, os.write, (self.master, line)).start()

    def close(self) -> None:
        self.stdin.close()
        os.close(self.master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    found = Terminal(monkeypatch)
    yield found
    found.close()


def request(seconds: float = 20) -> PersonRequest:
    return PersonRequest("stop", "billing", "consumer", "onprem", ("b:1",), "ask \x1b[31mann", int(seconds * 1000))


@pytest.mark.parametrize(("lines", "word"), [([b"y\n"], "done"), ([b"what?\n", b"no\n"], "refused")])
def test_an_answer(terminal: Terminal, lines: list[bytes], word: str) -> None:
    terminal.lines = lines
    answer = ask_person(request())
    assert answer.word == word
    assert "in a terminal" in answer.by
    shown = "".join(terminal.shown)
    assert "Stop the consumer billing (at onprem)" in shown
    assert "Is it stopped? [y: yes, n: it cannot be done" in shown
    assert "\x1b" not in shown  # words of the file control no terminal


def test_nobody_answers(terminal: Terminal) -> None:
    assert ask_person(request(0.2)).word == "late"
    assert terminal.shown[-1] == "nobody answered"


def test_what_was_typed_before_is_no_answer(terminal: Terminal) -> None:
    os.write(terminal.master, b"y\n")
    time.sleep(0.1)
    assert ask_person(request(0.3)).word == "late"


def test_who_is_asked(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_person_prompt("manual") is ask_person
    assert choose_person_prompt("auto") is None
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert choose_person_prompt("manual") is None
