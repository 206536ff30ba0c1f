"""Lab clusters with a second way in, through fault proxies.

Each broker gets a second listener whose advertised address is its proxy's. A client that bootstraps through a proxy
stays behind the proxies (a broker advertises the addresses of the listener that was asked); one that uses the
cluster's own bootstrap, as a test that looks on does, never meets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watershed.lab import clusters
from watershed.lab.clusters import Lab, LabCluster
from watershed.lab.fault_proxy import FaultProxy
from watershed.lab.free_ports import LOOPBACK_HOST, reserve_port_decade


@dataclass(frozen=True, slots=True)
class ProxiedCluster:
    """`proxies` by broker id; `bootstrap` leads through them."""

    cluster: LabCluster
    proxies: dict[int, FaultProxy]

    @property
    def bootstrap(self) -> str:
        """`host:port` of every proxy, with commas."""
        return ",".join(proxy.address for proxy in self.proxies.values())

    def heal(self) -> None:
        """Removes the faults of all proxies."""
        for proxy in self.proxies.values():
            proxy.heal()


@contextmanager
def run_proxied_clusters(
    directory: Path | str, brokers: Mapping[str, int], settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Lab, dict[str, ProxiedCluster]]]:
    """Clusters as `lab.clusters.start_clusters` makes them, each broker behind a proxy; all ended behind the block.

    brokers: how many by alias, at most nine each: a broker's port is its cluster's decade and its id.
    """
    proxies: dict[str, dict[int, FaultProxy]] = {alias: {} for alias in brokers}
    try:
        for alias, count in brokers.items():
            behind, before = reserve_port_decade(), reserve_port_decade()
            lab = clusters.start_clusters(
                directory, [alias], count, {**build_proxied_listeners(behind, before), **(settings or {})}
            )
            for broker in lab.cluster(alias).brokers:
                proxies[alias][broker.id] = FaultProxy((LOOPBACK_HOST, behind + broker.id), before + broker.id)
        yield lab, {alias: ProxiedCluster(lab.cluster(alias), proxies[alias]) for alias in brokers}
    finally:
        for proxy in (each for found in proxies.values() for each in found.values()):
            proxy.close()
        clusters.end_clusters(directory)


def build_proxied_listeners(behind: int, before: int) -> dict[str, str]:
    """Settings that give each broker a second listener, which advertises its proxy.

    `behind`: decade of the listeners behind the proxies; `before`: decade of the proxies' own ports.
    """
    own, controller = "PLAINTEXT://{host}:{port}", "CONTROLLER://{host}:{controller_port}"
    return {
        "listeners": f"{own},{controller},FAULTY://{{host}}:{behind // 10}{{id}}",
        "advertised.listeners": f"{own},FAULTY://{{host}}:{before // 10}{{id}}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FAULTY:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
