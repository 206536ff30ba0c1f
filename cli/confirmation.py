"""Asking before something is done that a person has to want."""

from __future__ import annotations

import sys

import click


def require_confirmation(question: str) -> None:
    """Returns when the answer is yes. Raises Abort (no), UsageError (no terminal to ask on: a pipe's end is no answer).

    The question goes to stderr, so that stdout stays data.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on; repeat with --yes when this is what you want")
    click.confirm(question, abort=True, err=True)
