"""Asking before something is done."""

from __future__ import annotations

import io

import click
import pytest

from watershed.cli.confirmation import require_confirmation


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_nothing_is_asked_and_yes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(click.UsageError, match="no terminal to ask on; repeat with --yes"):
        require_confirmation("Do this?")


def test_a_terminal_decides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    require_confirmation("Do this?")
    assert "Do this? [y/N]" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    with pytest.raises(click.Abort):
        require_confirmation("Do this?")
