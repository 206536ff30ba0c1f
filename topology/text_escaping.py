"""Text out of a file inside a message: short, on one line, and harmless to a terminal."""

from __future__ import annotations

import json
import re

_WIDTH = 60
# controls (ESC among them), what reorders or hides text (bidi marks, zero width), line separators, lone surrogates
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)


def escape_controls(text: str) -> str:
    """The text with everything that a terminal would obey, reorder or hide written as `\\x1b` or `\\u202e`."""
    return _HARMFUL.sub(_escaped, text)


def escape_control_lines(text: str) -> str:
    """The same for a text of several lines: its line feeds stay."""
    return "\n".join(map(escape_controls, text.split("\n")))


def escape_json_controls(document: str) -> str:
    """The same for a JSON document, as JSON's own escapes: whoever reads it gets the same values."""
    return "\n".join(_HARMFUL.sub(_json_escaped, line) for line in document.split("\n"))


def shorten_and_escape(text: str, width: int = _WIDTH) -> str:
    """At most `width` letters of the text and `…`, visible."""
    return escape_controls(text if len(text) <= width else text[: width - 1] + "…")


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]
