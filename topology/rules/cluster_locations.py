"""Where clusters stand: their regions, their name spaces, and whether an address is this very machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from watershed.topology.model import Topology
from watershed.topology.plan import PlanCluster


def find_cluster_regions(topology: Topology, alias: str) -> frozenset[str]:
    """What `region` or `regions` say; empty: unknown."""
    cluster = topology.root.at("clusters", alias)
    if cluster is None:
        return frozenset()
    one = cluster.get("region")
    return frozenset(cluster.texts("regions")) or (frozenset({one}) if one else frozenset())


def is_cross_region(topology: Topology, one: str, two: str) -> bool:
    """Whether both say their region, and have none in common."""
    here, there = find_cluster_regions(topology, one), find_cluster_regions(topology, two)
    return bool(here and there and not here & there)


def parse_address_host(address: str) -> str:
    """Of `host:port` or `[::1]:port`."""
    return address.rpartition(":")[0].strip("[]").lower()


def is_loopback_cluster(cluster: PlanCluster | None) -> bool:
    """Whether every address never leaves the machine: then nobody can listen on the way, and it is a lab."""
    return (
        cluster is not None
        and bool(cluster.bootstrap)
        and all(is_own_machine_host(parse_address_host(each)) for each in cluster.bootstrap)
    )


def find_host_domains(cluster: PlanCluster) -> frozenset[str]:
    """The last two labels of its host names. Nothing is known from addresses in numbers, from names of one or two
    labels (`k1.lab`, and `service.namespace` inside Kubernetes), and from the names of services in Kubernetes
    (`x.orders.svc`, `x.orders.svc.cluster.local`): a name space is no place."""
    labels = [parse_address_host(address).rstrip(".").split(".") for address in cluster.bootstrap]
    named = [
        each
        for each in labels
        if len(each) > 2 and not each[-1].isdecimal() and each[-1] != "invalid" and "svc" not in each[2:]
    ]
    return frozenset(".".join(each[-2:]) for each in named)


def is_placeholder_address(address: str) -> bool:
    """Whether the host is under `.invalid` (RFC 2606): an import writes it where somebody has to fill one in."""
    return parse_address_host(address).rstrip(".").endswith(".invalid")


def is_own_machine_host(name: str) -> bool:
    """Whether a host name or address never leaves the machine."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def is_metadata_host(name: str) -> bool:
    """Whether it is a cloud's metadata server, which no address but the host's own reaches."""
    try:
        return ipaddress.ip_address(name).is_link_local
    except ValueError:
        return name == "metadata.google.internal"


def parse_url_host(url: str) -> str:
    """The host name in an address; empty when there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
