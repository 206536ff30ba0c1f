"""What every command that moves applications shares: who is asked, what is shown while it runs."""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import time
from typing import TYPE_CHECKING

import click

from watershed.topology.text_escaping import escape_controls

if TYPE_CHECKING:
    from watershed.cutover.actions import AskApproval
    from watershed.cutover.driver import RunEvent
    from watershed.cutover.live.applications.person_application import AskPerson, PersonAnswer, PersonRequest
    from watershed.cutover.observations import ApprovalAnswer

_MARKS = {"begin": "▸", "seen": " ", "deed": "→", "done": "✓", "skipped": "✓", "refused": "✗", "ended": "■"}
_COLOURS = {"done": "green", "skipped": "green", "refused": "red", "begin": "cyan"}


def choose_person_prompt(approve: str) -> AskPerson | None:
    """Who is asked for applications that a person stops and starts: whoever sits at the terminal. None where there is
    no terminal, or nobody is to be asked."""
    return None if approve == "auto" or not sys.stdin.isatty() else ask_person


def ask_approval(wanted: AskApproval) -> ApprovalAnswer:
    """Shows the evidence on standard error and asks in the terminal. Aborts the command when nobody can answer."""
    from watershed.cutover.observations import ApprovalAnswer

    click.echo(json.dumps(wanted.evidence, indent=2, sort_keys=True), err=True)
    granted = click.confirm(f"{wanted.by}: {wanted.question}", default=False, err=True)
    return ApprovalAnswer(0, granted, f"{wanted.by}, in a terminal")


def ask_person(request: PersonRequest) -> PersonAnswer:
    """Says what to do and waits for `y` or `n`, for as long as the file gives the person. What was typed before the
    question came is not an answer to it."""
    from watershed.cutover.live.applications.person_application import PersonAnswer

    who = f"{os.environ.get('USER', 'somebody')}, in a terminal"
    minutes = request.timeout_ms / 60_000
    click.echo(click.style(f"\n{escape_controls(request.task)}", bold=True), err=True)
    deadline = time.monotonic() + request.timeout_ms / 1000
    _forget_typed()
    while True:
        click.echo(f"{request.question} [y: yes, n: it cannot be done; {minutes:g} min] ", nl=False, err=True)
        if not select.select([sys.stdin], [], [], max(0.0, deadline - time.monotonic()))[0]:
            click.echo("nobody answered", err=True)
            return PersonAnswer("late", "nobody")
        typed = os.read(sys.stdin.fileno(), 4096).decode(errors="replace")  # a line; no buffer keeps the next one back
        if not typed:
            raise click.Abort
        if typed.strip().lower() in ("y", "yes"):
            return PersonAnswer("done", who)
        if typed.strip().lower() in ("n", "no"):
            return PersonAnswer("refused", who)


def _forget_typed() -> None:
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def show_run_event(event: RunEvent, *, to_stderr: bool) -> None:
    """Prints one line: seconds since the run began, a mark for the kind of event, and its text."""
    mark, colour = _MARKS[event.kind], _COLOURS.get(event.kind)
    text = event.text if event.kind in ("seen", "deed", "ended") else f"{event.step}: {event.text}"
    indent = "" if event.kind in ("begin", "done", "skipped", "refused", "ended") else "  "
    line = f"{event.at_ms / 1000:7.1f}s {indent}{click.style(mark, fg=colour)} {text}"
    bold = event.text.startswith("POINT OF NO RETURN")
    click.echo(click.style(line, bold=True) if bold else line, err=to_stderr)
