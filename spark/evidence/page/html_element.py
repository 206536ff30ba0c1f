"""HTML elements as a tree, so that text cannot become markup: ElementTree escapes when it is written."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Union
from xml.etree import ElementTree as ET

HtmlContent = Union[str, int, ET.Element, None, Iterable["HtmlContent"]]  # noqa: UP007 (recursive)

# Control, format (they reorder what is read), surrogate, private and line separators
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def e(tag: str, *content: HtmlContent, cls: str | None = None, **attributes: str | float | None) -> ET.Element:
    """An element. `cls` is its class, an underscore in a name of an attribute is a hyphen, None leaves one out."""
    element = ET.Element(tag)
    for name, value in {"class": cls, **attributes}.items():
        if value is not None:
            element.set(name.rstrip("_").replace("_", "-"), escape_hidden(_number(value)))
    _append(element, content)
    return element


def escape_hidden(text: str) -> str:
    """Text in which nothing is hidden: characters that cannot be seen, or change the order, stand as escapes."""
    if text.isprintable():
        return text
    return "".join(
        c
        if c in "\n\t" or unicodedata.category(c) not in _HIDDEN
        else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text
    )


def render_html(root: ET.Element) -> str:
    """The whole document as text."""
    return "<!doctype html>\n" + ET.tostring(root, encoding="unicode", method="html") + "\n"


def _append(element: ET.Element, content: HtmlContent) -> None:
    if content is None:
        return
    if isinstance(content, ET.Element):
        element.append(content)
    elif isinstance(content, str | int):
        text = escape_hidden(f"{content:,}" if isinstance(content, int) else content)
        if len(element):
            element[-1].tail = (element[-1].tail or "") + text
        else:
            element.text = (element.text or "") + text
    else:
        for each in content:
            _append(element, each)


def _number(value: str | float) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
