"""CLU102 duplicate-physical-cluster: two aliases stand for one cluster: one `cluster_id`, or one bootstrap address.

Why: every proof about loops, duplicates and growing names is made on aliases. Where two of them are one cluster a flow
between them copies topics into themselves, and `kafka.kafka.…` grows under prefix naming.

Source: apache/kafka#10277, apache/kafka#22079, KAFKA-9914
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import CheckedValue
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names
from watershed.topology.text_escaping import shorten_and_escape

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_Places = dict[str, FileSpan]


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    clusters = topology.root.at("clusters") if topology is not None else None
    if clusters is None:
        return
    told: list[set[str]] = []
    for said, shared in (("the cluster id", _by_id(context, clusters)), ("the address", _by_address(clusters))):
        for key, places in sorted(shared.items()):
            aliases = set(places)
            if (
                len(aliases) > 1
                and not _have_own_cluster_ids(context, aliases)
                and not any(aliases <= each for each in told)
            ):
                told.append(aliases)
                yield _problem(f"{said} `{shorten_and_escape(key)}`", places)


def _problem(what: str, places: _Places) -> Problem:
    aliases = sorted(places)
    return Problem(
        "CLU102",
        f"{render_some_names(aliases)} are one cluster: they share {what}",
        build_labels(*((places[alias], f"clusters.{alias}") for alias in aliases)),
        path=f"clusters.{aliases[1]}",
        ids=tuple(aliases),
        help="declare the cluster once and let all flows use that alias, or correct the id or address that is wrong",
    )


def _by_id(context: RuleContext, clusters: CheckedValue) -> dict[str, _Places]:
    """Cluster id → aliases that pin it, or that a scan found it behind."""
    shared: dict[str, _Places] = {}
    for alias, cluster in clusters.fields.items():
        scanned = context.inventory.cluster(alias) if context.inventory is not None else None
        ids = {cluster.get("cluster_id"), scanned.cluster_id if scanned is not None else None}
        for each in ids - {None}:
            shared.setdefault(str(each), {})[alias] = cluster.where("cluster_id")
    return shared


def _by_address(clusters: CheckedValue) -> dict[str, _Places]:
    shared: dict[str, _Places] = {}
    for alias, cluster in clusters.fields.items():
        for address in cluster.list("bootstrap"):
            shared.setdefault(_address(address.data), {}).setdefault(alias, address.span)
    return shared


def _address(text: str) -> str:
    """Host names know no case, and a dot at their end changes nothing; every name of this machine is one."""
    host, _, port = text.lower().rpartition(":")
    host = host.rstrip(".")
    return f"{'localhost' if host in _LOOPBACK else host}:{port}"


def _have_own_cluster_ids(context: RuleContext, aliases: set[str]) -> bool:
    """True if a scan saw a different cluster id for each alias: a proxy can serve several clusters at one address."""
    if context.inventory is None:
        return False
    seen = [context.inventory.cluster(alias) for alias in aliases]
    ids = {each.cluster_id for each in seen if each is not None}
    return len(ids) == len(aliases)


RULE = Rule("CLU102", "duplicate-physical-cluster", "error", __doc__, check)
