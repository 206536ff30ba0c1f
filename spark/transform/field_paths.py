"""How messages name a field within a field."""

from __future__ import annotations


def join_path(name: str, error: ValueError) -> str:
    """`a.b` is …, of what is told of b within a; `a` is …, of what is told of a itself."""
    text = str(error)
    return f"`{name}.{text[1:]}" if text.startswith("`") else f"`{name}` {text}"
