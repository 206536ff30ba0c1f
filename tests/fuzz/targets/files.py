"""Topology files through reader, rules, reports and compiler; what begins with { as an inventory, too."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

from tests.cases.hostile.corpus import CASES, HERE
from tests.fuzz.target import ROOT, OracleViolated, Target
from watershed.topology.compile import compile_topology
from watershed.topology.errors import TopologyError
from watershed.topology.inventory import (
    Inventory,
    InventoryAcl,
    InventoryBroker,
    InventoryCluster,
    InventoryGroup,
    InventoryTopic,
)
from watershed.topology.inventory_json import decode_inventory, encode_inventory
from watershed.topology.lint import lint_topologies, lint_topology
from watershed.topology.loader import load_topology, read_topology_text
from watershed.topology.reports import render_lint_report

_SMALL = 6_000
_FORMS = ("text", "concise", "json", "sarif", "junit", "github")
_EXAMPLE = ROOT / "topology/examples/active_active_direct.yaml"


def target() -> Target:
    folders = (ROOT / "topology/examples", ROOT / "tests/cases/lint", HERE)
    files = [each.read_bytes() for folder in folders for each in sorted(folder.rglob("*.yaml"))]
    made = [build().data for build in CASES.values()]
    inventory = _inventory()
    seeds = [data for data in (*files, *made, encode_inventory(inventory).encode()) if len(data) <= _SMALL]
    return Target("files", seeds, _reader(inventory), (TopologyError,), _words(), "yaml", 1 << 16)


def _reader(inventory: Inventory) -> Callable[[bytes], str]:
    folder = Path(tempfile.mkdtemp(prefix="watershed-fuzz-"))
    example = load_topology(_EXAMPLE)

    def attempt(data: bytes) -> str:
        path = folder / "topology.yaml"
        path.write_bytes(data)
        if data.lstrip()[:1] == b"{" and b"inventory" in data:
            found = decode_inventory(read_topology_text(path))
            if decode_inventory(encode_inventory(found)) != found:
                raise OracleViolated("an inventory that was read and written is another")
            lint_topology(example, found)
            return "an inventory"
        turn = zlib.crc32(data)  # reports and the inventory take turns: all of them for all inputs are slow
        results = lint_topologies(path, inventory if turn % 3 else None)
        render_lint_report(results, _FORMS[turn // 3 % len(_FORMS)])
        ruled = {finding.rule for result in results for finding in result.findings}
        if any(result.errors for result in results):
            return " ".join(sorted(ruled))
        compile_topology(path)
        return f"a plan {' '.join(sorted(ruled))}"

    return attempt


def _inventory() -> Inventory:
    """Of the aliases that the examples have."""
    aliases = sorted({alias for path in _examples() for alias in _aliases(path)})
    configs = {"retention.ms": "604800000", "cleanup.policy": "compact,delete", "min.insync.replicas": "2"}
    topics = {name: InventoryTopic(name, "t" + name, 6, 3, configs=configs) for name in ("orders", "payments", "a.b")}
    groups = {"billing": InventoryGroup("billing", "Stable", members=2, offsets={"orders": {0: 5}}, lag={"orders": 3})}
    acl = InventoryAcl("User:billing", "READ", "ALLOW", "TOPIC", "orders", "LITERAL")
    return Inventory(
        {
            alias: InventoryCluster(
                alias,
                f"id-{alias}",
                1_700_000_000_000,
                kafka="4.3",
                brokers=(InventoryBroker(1, "k1.example.internal", "r1"),),
                configs={"auto.create.topics.enable": "true"},
                topics=topics,
                groups=groups,
                acls=(acl,),
                quotas={"user=app": {"producer_byte_rate": 1e6}},
            )
            for alias in aliases
        }
    )


def _examples() -> Iterator[Path]:
    yield from sorted((ROOT / "topology/examples").glob("*.yaml"))


def _aliases(path: Path) -> Iterator[str]:
    topology = load_topology(path).topology
    yield from topology.clusters if topology is not None else ()


def _words() -> list[bytes]:
    """Keys and values of the examples, and what the inventory's fields are called."""
    text = b" ".join(path.read_bytes() for path in _examples())
    names = {f'"{each.name}":'.encode() for each in fields(InventoryTopic)}
    return sorted({word for word in text.split() if len(word) < 40} | names)
