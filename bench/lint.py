"""How lint grows: topologies of 10, 100 and 1,000 clusters, with and without an inventory of their topics.

A generated file has ten flows and a hundred topics a cluster: groups of ten that all send to each other under a prefix,
and one flow from each cluster into the next group. Measured as whole processes (start included), median of ROUNDS, in
seconds of one core, because elapsed time is the machine's mood. `yamllint` reads the same file in the same run, for
scale: it only looks at the form of the YAML.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from watershed.bench.results import BenchGoal, choose_size, publish_results

_ROOT = Path(__file__).resolve().parent.parent
_SIZES = choose_size((10, 100, 1_000), (2, 10))
_ROUNDS = choose_size(3, 1)
_GROUP = 10
_TOPICS = 100
_YAMLLINT = "extends: default\nrules: {line-length: disable, document-start: disable, braces: disable}\n"


def main() -> int:
    """Generates the files and measures lint and yamllint on each. Returns the exit code."""
    rows: list[dict[str, Any]] = []
    goals: list[BenchGoal] = []
    seconds: dict[tuple[str, int], float] = {}
    with tempfile.TemporaryDirectory() as directory:
        form = Path(directory) / "form.yaml"
        form.write_text(_YAMLLINT)
        for clusters in _SIZES:
            file, inventory = Path(directory) / f"{clusters}.yaml", Path(directory) / f"{clusters}.json"
            text, flows = build_large_topology(clusters)
            file.write_text(text)
            inventory.write_text(json.dumps(build_large_inventory(clusters)))
            lint = [sys.executable, "-m", "watershed.cli.main", "lint", str(file), "--format", "concise"]
            for tool, command in (
                ("topology lint", lint),
                ("topology lint --inventory", [*lint, "--inventory", str(inventory)]),
                ("yamllint", [sys.executable, "-m", "yamllint", "-c", str(form), str(file)]),
            ):
                runs = [_measure_command(command) for _ in range(_ROUNDS)]
                took = statistics.median(run[0] for run in runs)
                seconds[tool, clusters] = took
                rows.append(
                    {
                        "clusters": clusters,
                        "flows": flows,
                        "topics": clusters * _TOPICS if "inventory" in tool else 0,
                        "KiB": len(text) // 1024,
                        "tool": tool,
                        "cpu_s": round(took, 2),
                        "elapsed_s": round(statistics.median(run[1] for run in runs), 2),
                        "MiB": round(max(run[2] for run in runs)),
                    }
                )
    largest = [row for row in rows if row["clusters"] == _SIZES[-1] and row["tool"] != "yamllint"]
    for row in largest:
        goals.append(
            BenchGoal(f"{row['tool']}, {row['clusters']} clusters, seconds of one core", row["cpu_s"], 10, "lower")
        )
        goals.append(BenchGoal(f"{row['tool']}, {row['clusters']} clusters, MiB", row["MiB"], 1024, "lower"))
        small, large = (seconds[row["tool"], size] for size in _SIZES[-2:])
        goals.append(
            BenchGoal(f"{row['tool']}, ten times the clusters, times the seconds", round(large / small, 1), 15, "lower")
        )
    return publish_results("lint", rows, goals)


def build_large_topology(clusters: int) -> tuple[str, int]:
    """A file without errors, and how many flows it has."""
    lines = ["apiVersion: topology/v1alpha1", "kind: Topology", "metadata: {name: large, owner: bench}", "clusters:"]
    for number in range(clusters):
        alias = f"c{number:04d}"
        hosts = ", ".join(f"k{broker}.{alias}.example.internal:9092" for broker in (1, 2))
        lines.append(f"  {alias}: {{bootstrap: [{hosts}], cluster_id: id-{alias}}}")
    lines += ["defaults:", "  provenance: {forward: local}", "  naming: {policy: prefix}", "flows:"]
    ways = [
        (number, target, f"d{target % _GROUP}")
        for number in range(clusters)
        for target in range(number // _GROUP * _GROUP, min(number // _GROUP * _GROUP + _GROUP, clusters))
        if target != number
    ]
    if clusters > _GROUP:
        ways += [(number, (number + _GROUP) % clusters, "up") for number in range(clusters)]
    for source, target, domain in sorted(ways):
        selector = f'{{glob: "s{source:04d}.{domain}.*"}}'
        lines.append(f"  - {{source: c{source:04d}, target: c{target:04d}, topics: {{include: [{selector}]}}}}")
    return "\n".join(lines) + "\n", len(ways)


def build_large_inventory(clusters: int) -> dict[str, object]:
    """What a scan of all of them would have written."""
    from watershed.topology.inventory import Inventory, InventoryBroker, InventoryCluster, InventoryTopic
    from watershed.topology.inventory_json import encode_inventory

    domains = [*(f"d{number}" for number in range(_GROUP)), "up"]
    configs = {"retention.ms": "604800000", "cleanup.policy": "delete", "max.message.bytes": "1048588"}
    found = {}
    for number in range(clusters):
        names = [f"s{number:04d}.{domains[index % len(domains)]}.events-{index:03d}" for index in range(_TOPICS)]
        topics = {name: InventoryTopic(name, None, 12, 3, configs=configs, size_bytes=10**9) for name in names}
        brokers = tuple(InventoryBroker(broker, f"k{broker}", f"r{broker}") for broker in range(1, 4))
        alias = f"c{number:04d}"
        found[alias] = InventoryCluster(alias, f"id-{alias}", 1_767_225_600_000, brokers=brokers, topics=topics)
    document: dict[str, object] = json.loads(encode_inventory(Inventory(found)))
    return document


def _measure_command(command: list[str]) -> tuple[float, float, float]:
    """Processor seconds, elapsed seconds and the most MiB of one process. Raises RuntimeError when it fails (findings
    are no failure)."""
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    with tempfile.TemporaryFile() as out:
        actions = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, out.fileno(), 2)]
        started = time.perf_counter()
        pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
        took = time.perf_counter() - started
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1):
            out.seek(0)
            raise RuntimeError(f"{' '.join(command[2:])} ended with {code}: {out.read()[-2000:].decode()}")
    return usage.ru_utime + usage.ru_stime, took, usage.ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
