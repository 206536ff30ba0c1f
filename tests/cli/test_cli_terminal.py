"""Nothing that comes from outside reaches a terminal raw; documents keep their values."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import click
import pytest

from watershed.cli import main
from watershed.cli.terminal import filter_output, get_unfiltered_output, make_visible
from watershed.replicator.worker.log_format import EventFormatter, JsonFormatter

HOSTILE = "orders\x1b]0;owned\x07\x1b[2J\x1b[8m\u202e\u2066\x9b31m\x7f\x00\x08"


def test_what_a_terminal_would_obey_is_written_out() -> None:
    found = make_visible(HOSTILE)
    assert found.isprintable()
    assert found.startswith("orders\\u001b]0;owned\\u0007\\u001b[2J\\u001b[8m\\u202e\\u2066\\u009b31m")


@pytest.mark.parametrize(
    "text", ["", "plain", "zwei Wörter → eins\tzwei\r\n", "┌─▷ ✓\n", click.style("x", fg="red", bold=True)]
)
def test_what_is_ours_stays(text: str) -> None:
    assert make_visible(text) == text


def test_a_document_keeps_its_values() -> None:
    value = {"name": HOSTILE, "emoji": "\U000e0041"}
    for ascii_only in (True, False):
        printed = make_visible(json.dumps(value, ensure_ascii=ascii_only, indent=2))
        assert json.loads(printed) == value


def test_commands_print_through_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.stdout, sys.stderr

    @click.command()
    def said() -> None:
        click.echo(f"topic {HOSTILE}")
        click.echo(f"broker says {HOSTILE}", err=True)
        get_unfiltered_output().write("\x1b[H")
        click.echo(b"bytes")

    monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: said)
    assert main.main(["lint"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\x1b") == 1
    assert "\u202e" not in out + err
    assert "\x1b" not in err
    assert "orders\\u001b]0;owned" in out
    assert (sys.stdout, sys.stderr) == before


def test_streams_come_back_when_a_command_fails() -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(RuntimeError), filter_output():
        raise RuntimeError
    assert (sys.stdout, sys.stderr) == before


def test_log_lines_too() -> None:
    record = logging.makeLogRecord({"msg": "record invalid", "levelname": "WARNING", "key": HOSTILE})
    assert EventFormatter().format(record).isprintable()


@pytest.mark.parametrize("form", [EventFormatter, JsonFormatter])
def test_the_exception_of_a_log_line_too(form: type[logging.Formatter]) -> None:
    try:
        raise ValueError(f"{HOSTILE}\n2026-11-24T13:00:00.000Z info copied by=nobody")
    except ValueError:
        record = logging.makeLogRecord({"msg": "lane failed", "levelname": "ERROR", "exc_info": sys.exc_info()})
    first, *rest = form().format(record).split("\n")
    assert all(line.isprintable() for line in (first, *rest))
    assert all(line.startswith("  ") for line in rest)  # none poses as an event


def test_a_warning_of_a_command_says_what_it_is_about() -> None:
    """In a process of its own: without a handler, as commands are."""
    program = (
        "from watershed.cli.main import main; main(['rules'])\n"
        "from watershed.clusters.control_values import InvalidControlRecord, log_invalid_record\n"
        "log_invalid_record(InvalidControlRecord('cloud', 'watershed.status', 3, 41, 'k', 'not JSON'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "warning record invalid cluster=cloud topic=watershed.status partition=3 offset=41" in done.stderr
    assert "deny it by an ACL" in done.stderr
