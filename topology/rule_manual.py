"""The manual of a rule: title, why, source from its docstring; a bad and a good example from `rules/examples/CODE/`.

The examples of a rule that looks at clusters end with a part after `--- # topology scan`: a short form of an inventory,
`{a: {topics: {orders: {partitions: 3, configs: {cleanup.policy: compact}}}, brokers: 3, groups: {…}, acls: […]}}`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from textwrap import indent
from typing import Any

from watershed.topology.cluster_capabilities import ClusterCapabilities, RequestVersions, TriedCapability
from watershed.topology.delivery_guarantee import list_request_needs
from watershed.topology.inventory import (
    Inventory,
    InventoryAcl,
    InventoryBroker,
    InventoryCluster,
    InventoryFlow,
    InventoryGroup,
    InventoryTopic,
)
from watershed.topology.rule import Rule

_PREAMBLE = {
    "apiVersion": "apiVersion: topology/v1alpha1",
    "kind": "kind: Topology",
    "metadata": "metadata: {name: example}",
}
_CLUSTER = "  {alias}: {{bootstrap: [k1.{alias}.example.internal:9093]}}\n"
_TAKEN_MS = 1_767_225_600_000  # 2026-01-01T00:00Z, the moment of every example
_SECTION = re.compile(r"^(Why|Source):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RuleManual:
    """bad and good are YAML, parts of a file; `complete_example` makes them whole."""

    title: str
    why: str
    bad: str
    good: str
    source: str


def parse_rule_manual(rule: Rule) -> RuleManual:
    """Raises ValueError if the docstring lacks a part, FileNotFoundError if an example is missing."""
    head, sections = _split_docstring(rule)
    return RuleManual(
        title=" ".join(head.partition(": ")[2].split()),
        why=" ".join(sections["Why"].split()),
        bad=_read_example(rule, "bad"),
        good=_read_example(rule, "good"),
        source=" ".join(sections["Source"].split()),
    )


def render_rule_manual(rule: Rule) -> str:
    """The manual as plain text, with the line breaks of the docstring. Raises as `parse_rule_manual`."""
    head, sections = _split_docstring(rule)
    examples = (
        f"{title}:\n\n{indent(_read_example(rule, name), ' ' * 4)}"
        for title, name in (("Bad", "bad"), ("Good", "good"))
    )
    parts = (head.strip(), f"Why: {sections['Why'].strip()}", *examples, f"Source: {sections['Source'].strip()}")
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _split_docstring(rule: Rule) -> tuple[str, dict[str, str]]:
    head, *parts = _SECTION.split(rule.manual)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if set(sections) != {"Why", "Source"} or not head.startswith(f"{rule.code} {rule.name}: "):
        raise ValueError(f"the manual of {rule.code} lacks a part")
    return head, sections


def _read_example(rule: Rule, name: str) -> str:
    return (files("watershed.topology.rules") / "examples" / rule.code / f"{name}.yaml").read_text(encoding="utf-8")


_SCAN = "--- # topology scan\n"


def complete_example(example: str) -> str:
    """The example as a whole file: the parts that it does not show come before it, and those of the clusters a, b, c, d
    that it names (a and b when it names none)."""
    example = example.partition(_SCAN)[0]
    said = set(re.findall(r"^([A-Za-z]+):", example, re.MULTILINE))
    before = "".join(f"{text}\n" for name, text in _PREAMBLE.items() if name not in said)
    if "clusters" not in said:
        named = sorted(set(re.findall(r"\b[abcd]\b", example))) or ["a", "b"]
        before += "clusters:\n" + "".join(_CLUSTER.format(alias=alias) for alias in named)
    return before + example


def build_example_inventory(example: str, *, live: bool = False) -> Inventory | None:
    """What the example's scan saw; None when it shows none."""
    import yaml

    _, shown, scan = example.partition(_SCAN)
    if not shown:
        return None
    return Inventory({alias: _cluster(alias, said) for alias, said in yaml.safe_load(scan).items()}, live)


def _cluster(alias: str, said: dict[str, Any]) -> InventoryCluster:
    brokers = said.pop("brokers", 1)
    racks = said.pop("racks", None)
    topics = {
        name: InventoryTopic(name, None, **{"partitions": 1, "replication_factor": 1, **each})
        for name, each in said.pop("topics", {}).items()
    }
    capabilities = said.pop("capabilities", None)
    groups = {name: InventoryGroup(name, **{"state": "Empty", **each}) for name, each in said.pop("groups", {}).items()}
    acls = said.pop("acls", None)
    flows = {name: InventoryFlow(**each) for name, each in said.pop("flows", {}).items()}
    return InventoryCluster(
        alias,
        said.pop("cluster_id", f"id-of-{alias}"),
        said.pop("taken_ms", _TAKEN_MS),
        brokers=tuple(
            InventoryBroker(number, f"k{number}", _name_rack(racks, number)) for number in range(1, brokers + 1)
        ),
        topics=topics,
        groups=groups,
        acls=None if acls is None else tuple(InventoryAcl(**each) for each in acls),
        flows=flows,
        capabilities=None if capabilities is None else _capabilities(alias, capabilities),
        **said,
    )


def _name_rack(racks: int | list[str] | None, number: int) -> str | None:
    """Of a broker: one of so many racks, or of these in turn."""
    if racks is None:
        return None
    return f"r{number % racks}" if isinstance(racks, int) else racks[(number - 1) % len(racks)]


def _capabilities(alias: str, said: dict[str, Any]) -> ClusterCapabilities:
    """What a copy needs, but for what the example says: `requests` (name: [lowest, highest], null: not taken) and
    `tried` (name: what did not work)."""
    requests = {each.request: (each.lowest, each.highest) for each in list_request_needs("target", "transactions")}
    said_requests: dict[str, tuple[int, int] | None] = said.pop("requests", {})
    tried = {name: TriedCapability(False, told) for name, told in said.pop("tried", {}).items()}
    return ClusterCapabilities(
        alias,
        f"id-of-{alias}",
        _TAKEN_MS,
        brokers=1,
        answered=1,
        requests={
            name: RequestVersions(*span) for name, span in (requests | said_requests).items() if span is not None
        },
        tried=tried,
        **said,
    )
