"""What every command that moves applications shares: who is asked, what is shown while it runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cutover.actions import AskApproval
    from cutover.driver import RunEvent
    from cutover.live.application_control import ApplicationEndpoints
    from cutover.observations import ApprovalAnswer
    from topology.plan import Plan

_MARKS = {"begin": "▸", "seen": " ", "deed": "→", "done": "✓", "skipped": "✓", "refused": "✗", "ended": "■"}
_COLOURS = {"done": "green", "skipped": "green", "refused": "red", "begin": "cyan"}


def build_run_applications(plan: Plan, approve: str) -> ApplicationEndpoints:
    """How applications are stopped and started: by their endpoints, or by a person where the terminal has one."""
    from cutover.run_opening import build_application_endpoints

    assert plan.migration is not None
    return build_application_endpoints(
        plan.migration, None if approve == "auto" or not sys.stdin.isatty() else ask_confirmation
    )


def ask_approval(wanted: AskApproval) -> ApprovalAnswer:
    """Shows the evidence on standard error and asks in the terminal. Aborts the command when nobody can answer."""
    from cutover.observations import ApprovalAnswer

    click.echo(json.dumps(wanted.evidence, indent=2, sort_keys=True), err=True)
    granted = click.confirm(f"{wanted.by}: {wanted.question}", default=False, err=True)
    return ApprovalAnswer(0, granted, f"{wanted.by}, in a terminal")


def ask_confirmation(question: str) -> bool:
    """A person answers for an application without a control endpoint."""
    return click.confirm(question, default=False, err=True)


def show_run_event(event: RunEvent, *, to_stderr: bool) -> None:
    """Prints one line: seconds since the run began, a mark for the kind of event, and its text."""
    mark, colour = _MARKS[event.kind], _COLOURS.get(event.kind)
    text = event.text if event.kind in ("seen", "deed", "ended") else f"{event.step}: {event.text}"
    indent = "" if event.kind in ("begin", "done", "skipped", "refused", "ended") else "  "
    line = f"{event.at_ms / 1000:7.1f}s {indent}{click.style(mark, fg=colour)} {text}"
    bold = event.text.startswith("POINT OF NO RETURN")
    click.echo(click.style(line, bold=True) if bold else line, err=to_stderr)
