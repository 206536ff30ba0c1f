"""What a foreign file does wrong between its clusters and flows: loops, two directions, aliases, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from watershed.topology.finding import FileSpan, Label
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, parse_java_boolean
from watershed.topology.interop.imported_topology import ImportedCluster
from watershed.topology.interop.mm2_pair import MirrorCluster, MirrorPair
from watershed.topology.rules.cluster_locations import is_own_machine_host, parse_address_host

_RELATIVE = {"local", "remote", "source", "target", "primary", "secondary", "backup", "dr", "src", "dst", "destination"}


def check_mirror_pairs(pairs: Sequence[MirrorPair], notes: ImportNotes) -> None:
    """Between flows that run: GRF201 for same names both ways, SYC502 for groups both ways, NAM310 for separators."""
    running = [pair for pair in pairs if pair.running]
    for one, other in combinations(running, 2):
        if (one.source, one.target) != (other.target, other.source):
            continue
        ids = (one.id, other.id)
        if one.identity and other.identity:
            notes.add_problem(
                "GRF201",
                f"{one.source.name}->{one.target.name} and back keep the topics' names: MirrorMaker copies every "
                "record in a circle, without end",
                _policy(one),
                "use the DefaultReplicationPolicy, or one direction; the imported flows stop the loop by producer id",
                more=(Label(_policy(other), "the way back"),) if _policy(other) != _policy(one) else (),
                ids=ids,
            )
        first, second = one.config.get("sync.group.offsets.enabled"), other.config.get("sync.group.offsets.enabled")
        if (
            first is not None
            and second is not None
            and parse_java_boolean(first, False)
            and parse_java_boolean(second, False)
        ):
            notes.add_problem(
                "SYC502",
                f"group offsets go {one.source.name}->{one.target.name} and back: a group that exists on both sides is "
                "moved to and fro",
                first.span,
                "synchronise groups in one direction, or use other group ids at each side",
                more=(Label(second.span, "the way back"),) if second.span != first.span else (),
                ids=ids,
            )
    by_separator = {pair.separator: pair for pair in running if not pair.identity}
    if len(by_separator) > 1:
        shown = ", ".join(f"`{each}`" for each in sorted(by_separator))
        place = max((_separator(pair) for pair in by_separator.values()), default=None)
        if place is not None:
            notes.add_problem(
                "NAM310", f"several separators in one set of flows ({shown}): origins cannot be told apart", place
            )


def check_cluster_aliases(ends: Mapping[MirrorCluster, FileSpan], notes: ImportNotes) -> None:
    """Adds CLU103 for each alias that names a role (`source`, `primary`) instead of a place."""
    for end, place in ends.items():
        if end.name.lower() in _RELATIVE:
            notes.add_problem(
                "CLU103",
                f"the alias `{end.name}` says a role, not a place: the file at the other site calls another cluster so",
                place,
                "name clusters by where they are; the alias becomes part of topic names",
                ids=(end.alias,),
            )


def check_imported_clusters(
    clusters: Sequence[ImportedCluster], places: Mapping[str, FileSpan], notes: ImportNotes
) -> None:
    """CLU102 for an address that two clusters share, SEC603 (info) for connections without encryption."""
    _check_shared_addresses(clusters, places, notes)
    for cluster in clusters:
        hosts = [parse_address_host(each) for each in cluster.bootstrap]
        if cluster.security.get("protocol", "PLAINTEXT") == "PLAINTEXT" and not all(map(is_own_machine_host, hosts)):
            notes.add_problem(
                "SEC603",
                f"cluster {cluster.alias} speaks PLAINTEXT: whoever is on the way reads and changes every record",
                places[cluster.alias],
                "use SSL or SASL_SSL where the way leaves your own network",
                ids=(cluster.alias,),
                severity="info",
            )


def check_replication_factor(said: ForeignSetting | None, target: ImportedCluster, notes: ImportNotes) -> None:
    """TPC403: more replicas than the brokers that the file lists for the target. One address may stand for many
    brokers, so a single one says nothing."""
    text = said.text.strip() if said is not None else ""
    brokers = len(target.bootstrap)
    if said is not None and re.fullmatch(r"[0-9]{1,3}", text) and 1 < brokers < int(text):
        notes.add_problem(
            "TPC403",
            f"`{said.name}` is {text}, and the file lists {brokers} brokers of {target.alias}: if there are no others, "
            "no topic can be created",
            said.span,
            "lower it, or list the other brokers",
            ids=(target.alias,),
            severity="info",
        )


def _check_shared_addresses(
    clusters: Iterable[ImportedCluster], places: Mapping[str, FileSpan], notes: ImportNotes
) -> None:
    """CLU102: one address under two aliases defeats MirrorMaker's loop check, which trusts aliases (KAFKA-9914)."""
    seen: dict[str, str] = {}
    for cluster in clusters:
        for address in cluster.bootstrap:
            other = seen.setdefault(address, cluster.alias)
            if other != cluster.alias:
                notes.add_problem(
                    "CLU102",
                    f"clusters {other} and {cluster.alias} have the address {address} in common: one cluster "
                    "with two names copies itself",
                    places[cluster.alias],
                    "give every cluster its own addresses",
                    more=(Label(places[other], "first here"),),
                    ids=(other, cluster.alias),
                )
                break


def find_reachable_clusters(edges: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """From every node, the nodes that a path leads to."""
    following: dict[str, set[str]] = {}
    for source, target in edges:
        following.setdefault(source, set()).add(target)
    out: dict[str, set[str]] = {}
    for node in following:
        seen: set[str] = set()
        todo = list(following[node])
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                todo += following.get(here, ())
        out[node] = seen
    return out


def _policy(pair: MirrorPair) -> FileSpan:
    said = pair.config.get("replication.policy.class")
    return said.span if said is not None else pair.where


def _separator(pair: MirrorPair) -> FileSpan:
    said = pair.config.get("replication.policy.separator")
    return said.span if said is not None else pair.where
