"""A first topology file: clusters with their addresses, one flow, and comments on what to look at next.

It is as short as a file can be that is right: what it does not say is left to the defaults, and what a person has to
decide stands in a comment beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watershed.topology.inventory import InventoryCluster
from watershed.topology.language import TOPOLOGY_API_VERSION, TOPOLOGY_KIND
from watershed.topology.scalar_shape import AMBIGUOUS_SCALAR, NULL_SCALARS, NUMERIC_SCALAR

MAX_LISTED_TOPICS = 200
_PLAIN = re.compile(r"[A-Za-z0-9/_.][A-Za-z0-9/_.-]*")


@dataclass(frozen=True, slots=True)
class StarterCluster:
    """A cluster of the file. bootstrap: `host:port` each; empty where nobody said it. seen: what a scan found there."""

    alias: str
    bootstrap: tuple[str, ...] = ()
    seen: InventoryCluster | None = None


def render_starter_file(name: str, owner: str, source: StarterCluster, target: StarterCluster) -> str:
    """The file, ending in a newline. Topics are those that the scan found at the source; without one, or with more than
    MAX_LISTED_TOPICS, those whose names begin with the topology's."""
    return "\n".join(
        [
            "# A first file. Next: `topology lint` says what is wrong, `topology graph` draws it.",
            f"apiVersion: {TOPOLOGY_API_VERSION}",
            f"kind: {TOPOLOGY_KIND}",
            f"metadata: {{name: {_scalar(name)}, owner: {_scalar(owner)}}}",
            "",
            "clusters:",
            *_cluster(source),
            *_cluster(target),
            "",
            "defaults:",
            "  workers: {quota: 40MiB/s}          # replication never takes more of a cluster than this",
            "  slo: {lag: {p99: 10s, max: 5m}}    # how far a flow may be behind",
            "",
            "flows:",
            f"  - source: {_scalar(source.alias)}",
            f"    target: {_scalar(target.alias)}",
            *_topics(name, source),
            "    naming: {policy: identity}       # the same names there; `topology explain NAM` shows others",
            "",
        ]
    )


def list_own_topics(seen: InventoryCluster) -> list[str]:
    """Topics of applications, sorted: neither internal ones nor Watershed's own."""
    names = (topic.name for topic in seen.topics.values() if not topic.internal)
    return sorted(name for name in names if not name.startswith(("__", "watershed.")))


def _cluster(cluster: StarterCluster) -> Iterable[str]:
    yield f"  {_scalar(cluster.alias)}:"
    addresses = ", ".join(json.dumps(each) for each in cluster.bootstrap)
    yield f"    bootstrap: [{addresses}]" + ("" if addresses else '   # fill in: ["broker-1.example.com:9092"]')
    if cluster.seen is not None:
        yield f"    cluster_id: {_scalar(cluster.seen.cluster_id)}   # another cluster at these addresses is refused"
    variable = "KAFKA_" + re.sub(r"[^A-Z0-9]", "_", cluster.alias.upper())
    yield f"    # {variable} in the environment holds user:password. Without TLS and logins: {{protocol: PLAINTEXT}}"
    yield f"    security: {{protocol: SASL_SSL, mechanism: SCRAM-SHA-512, credentials: {{env: {variable}}}}}"


def _topics(name: str, source: StarterCluster) -> Sequence[str]:
    names = list_own_topics(source.seen) if source.seen is not None else []
    if 0 < len(names) <= MAX_LISTED_TOPICS:
        return ["    topics:", "      include:", *(f"        - {_scalar(name)}" for name in names)]
    why = f"{len(names):,} topics were found; " if names else ""
    glob = json.dumps(f"{name}.*")
    return [f"    topics: {{include: [{{glob: {glob}}}]}}   # {why}fill in which of them travel"]


def _scalar(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and text not in NULL_SCALARS
    return (
        text if plain and not (AMBIGUOUS_SCALAR.fullmatch(text) or NUMERIC_SCALAR.fullmatch(text)) else json.dumps(text)
    )
