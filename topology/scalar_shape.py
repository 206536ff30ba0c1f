"""The base of all shapes, and the shape of a scalar: how one value of the file is checked and converted."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from watershed.topology import quantities
from watershed.topology.model import CheckedValue
from watershed.topology.problem_collector import ProblemCollector
from watershed.topology.value_wording import (
    describe_ambiguity,
    describe_node,
    describe_yaml_type,
    render_node_text,
)
from watershed.topology.yaml_tree import YamlNode

AMBIGUOUS_SCALAR = re.compile(
    r"(?:y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|True|TRUE|False|FALSE)|[-+]?0[0-9_]+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+"
)
NUMERIC_SCALAR = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+|0[xob][0-9a-fA-F_]+|\.inf|\.nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?|true|false",
)
NULL_SCALARS = {"", "~", "null", "Null", "NULL"}


class YamlShape(ABC):
    """`expected` completes the sentence `expected …`."""

    expected: str

    @abstractmethod
    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """The value of `node`, or None when it was wrong, which the reader was then told."""

    @abstractmethod
    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """The same shape as JSON Schema; named shapes are put into `defs` and referred to."""

    def wrong(self, node: YamlNode, path: str, reader: ProblemCollector) -> None:
        """Reports that the node is not of this shape."""
        if node.refused:
            return
        if reader.is_full():
            reader.count_dropped()
        else:
            message = f"`{path}` is {describe_node(node, path)}; expected {self.expected}"
            reader.add_problem("SYN011", message, node.span, path, help_=self.instead(node, path))

    def instead(self, node: YamlNode, path: str) -> str:
        """What to write in place of a node of the wrong kind, with the value that is there where it fits; or ""."""
        return ""

    def example(self) -> str:
        """A value in the language's own words, or `…`."""
        return "…"


@dataclass(frozen=True, slots=True)
class ScalarShape(YamlShape):
    """A scalar that `convert` accepts.

    convert: raises ValueError with the rest of the message, `MissingUnit` for a number without a unit.
    quoted: a value that YAML may read as a number must be in quotes.
    bare: the value is a number or a boolean and must not be in quotes.
    mend: for a text that YAML readers change, the text to write instead; "" if there is none.
    """

    convert: Callable[[str], Any]
    expected: str
    json: Mapping[str, Any]
    quoted: bool = False
    bare: bool = False
    mend: Callable[[str], str] = str

    def example(self) -> str:
        """See `YamlShape.example`."""
        said = [*self.json.get("examples", ()), *self.json.get("enum", ()), *map(str, [self.json.get("minimum", "…")])]
        return str(said[0])

    def accepts(self, text: str) -> bool:
        """True if `convert` accepts the text."""
        try:
            self.convert(text)
        except ValueError:
            return False
        return True

    def read(self, node: YamlNode, path: str, reader: ProblemCollector) -> CheckedValue | None:
        """See `YamlShape.read`."""
        if node.kind != "scalar" or (node.plain and node.text in NULL_SCALARS):
            self.wrong(node, path, reader)
            return None
        if node.refused:
            return None
        if node.plain and (
            AMBIGUOUS_SCALAR.fullmatch(node.text) or (self.quoted and NUMERIC_SCALAR.fullmatch(node.text))
        ):
            if reader.is_full():
                reader.count_dropped()
            else:
                self._report_ambiguous(node, path, reader)
            return None
        if self.bare and not node.plain and self.accepts(node.text):
            message = f"`{path}` is a text in quotes; expected {self.expected}"
            reader.add_problem(
                "SYN011", message, node.span, path, help_=f"write it without quotes: `{render_node_text(node, path)}`"
            )
            return None
        try:
            return CheckedValue(node.span, self.convert(node.text))
        except quantities.MissingUnit as error:
            reader.add_problem("SYN005", f"`{path}: {render_node_text(node, path)}` {error}", node.span, path)
        except ValueError as error:
            reader.add_problem("SYN011", f"`{path}` is {describe_node(node, path)}; {error}", node.span, path)
        return None

    def _report_ambiguous(self, node: YamlNode, path: str, reader: ProblemCollector) -> None:
        text, mended = render_node_text(node, path), self.mend(node.text)
        if mended != node.text:
            help_ = f"write `{mended}`" if mended else f"expected {self.expected}"
        elif not self.bare and self.accepts(node.text):
            help_ = f'put it in quotes: "{text}"'
        else:
            help_ = f"expected {self.expected}"
        if AMBIGUOUS_SCALAR.fullmatch(node.text):
            message = f"is read differently by different YAML readers: as {describe_ambiguity(node.text)}"
        else:
            message = f"is {describe_yaml_type(node.text)} to YAML; expected {self.expected}"
        reader.add_problem("SYN004", f"`{path}: {text}` {message}", node.span, path, help_=help_)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """See `YamlShape.schema`."""
        return dict(self.json)
