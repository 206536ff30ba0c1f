"""What a step that waits sees at the moment: one small file in the step's folder, replaced with every message.

A step logs what it waits for, but its log ends where the task is deferred, and the journal holds what was decided, not
what was seen on the way. The page shows the newest message beside the step, wherever the step waits.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from clusters.private_files import read_private_file
from plugins.watershed.state_folder import write_json_file

_FILE = "live.json"
_LARGEST = 64 * 1024  # bytes that a reader takes
_MOST_CHARS = 2_000


def keep_live_message(folder: Path, text: str) -> None:
    """Replaces the message of the step with this folder. Raises OSError."""
    write_json_file(folder / _FILE, {"text": text[:_MOST_CHARS], "at_ms": int(time.time() * 1000)})


def read_live_message(folder: Path) -> dict[str, Any] | None:
    """`text` and `at_ms` (since 1970) of the newest message; None where there is none, or it cannot be read."""
    try:
        told = json.loads(read_private_file(folder / _FILE, _LARGEST))
        text, at_ms = told["text"], told["at_ms"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_message = isinstance(text, str) and isinstance(at_ms, int)
    return {"text": text[:_MOST_CHARS], "at_ms": at_ms} if is_message else None
