"""Log lines are events with fields, one line an event: `time level event key=value …`, or a JSON object."""

from __future__ import annotations

import json
import logging
import time
from textwrap import indent
from typing import Any, Final, Literal

from watershed.topology.text_escaping import escape_control_lines, escape_controls, escape_json_controls

_ORDINARY: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class EventFormatter(logging.Formatter):
    """The event's name, then what was passed as `extra`, in the order it was passed."""

    def format(self, record: logging.LogRecord) -> str:
        """One line: time, level, event and `key=value` fields. Control characters are escaped."""
        words = [_time(record), record.levelname.lower(), record.getMessage(), *map(_field, _fields(record))]
        line = escape_controls(" ".join(words))  # values come from brokers and other people's records
        if record.exc_info is None:
            return line
        text = escape_control_lines(self.formatException(record.exc_info).expandtabs(4))
        return f"{line}\n{indent(text, '  ')}"  # no line of a message can pose as an event


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object a line: time, level, logger, event and the fields."""
        value: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **dict(_fields(record)),
        }
        if record.exc_info is not None:
            value["exception"] = self.formatException(record.exc_info)
        return escape_json_controls(json.dumps(value, default=str))


def configure_logging(level: int = logging.INFO, form: Literal["text", "json"] = "text") -> None:
    """Send the events of this package to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else EventFormatter())
    root = logging.getLogger("watershed")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in vars(record).items() if key not in _ORDINARY]


def _field(item: tuple[str, Any]) -> str:
    key, value = item
    text = str(value)
    return f'{key}="{text}"' if " " in text or not text else f"{key}={text}"
