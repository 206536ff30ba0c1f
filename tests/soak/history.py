"""What happened, one JSON line an operation, as Jepsen writes it: invoke, then ok, fail or info (outcome unknown).

{"at": seconds since the start, "process": who, "type": invoke|ok|fail|info, "f": send|poll|fault|copied, "value": …}

send    value {"topic", "sent": [number, …]}; the ok has {"acked": [[partition, offset, number], …]}
poll    value {"topic", "read": [[partition, offset, number], …]}: what a reader of the target saw
fault   value a sentence
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any


class History:
    """Appends to a file; any thread may."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        self._began = time.monotonic()
        self._lock = Lock()

    def add(self, process: str, kind: str, function: str, value: Any) -> None:
        line = {
            "at": round(time.monotonic() - self._began, 3),
            "process": process,
            "type": kind,
            "f": function,
            "value": value,
        }
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def operations(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)
