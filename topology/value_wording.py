"""How a value is named in a message: what YAML makes of it, and never the text where a secret may have been put."""

from __future__ import annotations

import re

from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.yaml_tree import YamlNode

# places where people put a secret by mistake, and texts that look like one: user:password@host, PEM
_SECRET_PLACE = re.compile(
    r"(?i)security(?!\.(?:protocol|mechanism)$)|credential|passw|secret|token|jaas|api_?key|private"
)
_SECRET_TEXT = re.compile(  # from the beginning of a word only, so that a text of colons is read once
    r"(?<![^\s/@])[^\s/@][^\s/@:]*+:[^\s/@]++@|://[^\s/@]+@|-----BEGIN|(?i:password|passwd|secret|token)\W{0,3}[:=]"
)


def describe_node(node: YamlNode, path: str) -> str:
    """What was found; the text itself is never repeated where a secret may have been put by mistake."""
    return "a text that may be a secret (not shown)" if is_possible_secret(node, path) else node.what


def render_node_text(node: YamlNode, path: str) -> str:
    """The text of a scalar for a message: short, escaped, hidden if it may be a secret."""
    return "…" if is_possible_secret(node, path) else shorten_and_escape(node.text)


def is_possible_secret(node: YamlNode, path: str) -> bool:
    """True if the value must not be shown in a message."""
    return node.kind == "scalar" and bool(node.text and (_SECRET_PLACE.search(path) or _SECRET_TEXT.search(node.text)))


def describe_ambiguity(text: str) -> str:
    """What different YAML readers make of the text, such as `a truth value, or as a text`."""
    if text.lower() in ("y", "yes", "on", "true", "n", "no", "off", "false"):
        return "a truth value, or as a text"
    return "this number, or as one in base 8 or 60, or as a text"


def describe_yaml_type(text: str) -> str:
    """The type that YAML gives to the text, with its article."""
    if text in ("true", "false"):
        return "a truth value"
    return "a date" if re.match(r"[0-9]{4}-[0-9]", text) else "a number"
