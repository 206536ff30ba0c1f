"""A rule's docstring as its manual: title, why, a bad and a good example, source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent

from topology.rule import Rule

PREAMBLE = {
    "apiVersion": "apiVersion: topology/v1alpha1",
    "kind": "kind: Topology",
    "metadata": "metadata: {name: example}",
    "clusters": "clusters:\n"
    + "\n".join(f"  {alias}: {{bootstrap: [k1.{alias}.example.internal:9093]}}" for alias in "abcd"),
}
_SECTION = re.compile(r"^(Why|Bad|Good|Source):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Manual:
    """bad and good are YAML, parts of a file; `complete` makes them whole."""

    title: str
    why: str
    bad: str
    good: str
    source: str


def manual_of(rule: Rule) -> Manual:
    """Raises ValueError when the docstring lacks a part."""
    head, *parts = _SECTION.split(rule.manual)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if set(sections) != {"Why", "Bad", "Good", "Source"} or not head.startswith(f"{rule.code} {rule.name}: "):
        raise ValueError(f"the manual of {rule.code} lacks a part")
    return Manual(
        title=" ".join(head.partition(": ")[2].split()),
        why=" ".join(sections["Why"].split()),
        bad=dedent(sections["Bad"]).strip("\n") + "\n",
        good=dedent(sections["Good"]).strip("\n") + "\n",
        source=" ".join(sections["Source"].split()),
    )


def complete(example: str) -> str:
    """The example as a whole file: the parts that it does not show come before it."""
    said = set(re.findall(r"^([A-Za-z]+):", example, re.MULTILINE))
    return "".join(f"{text}\n" for name, text in PREAMBLE.items() if name not in said) + example
