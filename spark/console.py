"""Lines that the programs of this room write for people and for the process that started them."""

from __future__ import annotations

import sys


def write_result_line(text: str) -> None:
    """Writes to stdout at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_error_line(text: str) -> None:
    """Writes to stderr at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
