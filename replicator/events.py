"""Log lines are events with fields: one line an event, `time level event key=value …`."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

_ORDINARY: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class EventFormatter(logging.Formatter):
    """The event's name, then what was passed as `extra`, in the order it was passed."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields: dict[str, Any] = {key: value for key, value in vars(record).items() if key not in _ORDINARY}
        line = " ".join([at, record.levelname.lower(), record.getMessage(), *map(_field, fields.items())])
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


def log_events(level: int = logging.INFO) -> None:
    """Send the events of this package to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(EventFormatter())
    root = logging.getLogger("watershed")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def _field(item: tuple[str, Any]) -> str:
    key, value = item
    text = str(value)
    return f'{key}="{text}"' if " " in text or not text else f"{key}={text}"
