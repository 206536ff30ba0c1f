"""Clusters of real brokers on this machine: up, status, down; and the faults that tests need.

`<directory>/lab.json` is written before a broker starts (ports, directories) and again with its pid. So `up` and `down`
always find what an interrupted command left. Only one command at a time works on a directory: it locks the directory
itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watershed.lab import broker as brokers_
from watershed.lab import zookeeper as zookeepers
from watershed.lab.api_versions import answers_api_versions
from watershed.lab.broker import LabBroker
from watershed.lab.detached_process import end_processes, is_alive, kill_process
from watershed.lab.errors import BrokerFailed, LabError
from watershed.lab.free_ports import find_free_ports
from watershed.lab.jars import fetch_release, find_java
from watershed.lab.releases import DEFAULT_RELEASE, find_release
from watershed.lab.zookeeper import LabZooKeeper

_READY_S = 180.0  # on an idle machine 3 to 7 s
_ARCHIVED_S = 60.0  # on an idle machine 4 s


@dataclass(frozen=True, slots=True)
class LabCluster:
    """A cluster; `bootstrap` lists all its brokers, comma-separated."""

    alias: str
    cluster_id: str  # with a ZooKeeper the first broker makes it: empty until then
    brokers: tuple[LabBroker, ...]
    zookeeper: LabZooKeeper | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` of every broker, with commas."""
        return ",".join(broker.address for broker in self.brokers)


@dataclass(frozen=True, slots=True)
class Lab:
    """The clusters of one directory, by alias in the order they were made."""

    directory: Path
    clusters: dict[str, LabCluster]

    def cluster(self, alias: str) -> LabCluster:
        """Raises LabError when there is no such cluster."""
        try:
            return self.clusters[alias]
        except KeyError:
            there = ", ".join(self.clusters) or "none"
            raise LabError(f"no cluster {alias} in {self.directory} (there: {there})") from None


def start_clusters(
    directory: Path | str,
    aliases: Sequence[str],
    brokers: int = 1,
    settings: Mapping[str, str] | None = None,
    kafka: Mapping[str, str] | str | None = None,
) -> Lab:
    """Starts the clusters that do not run yet and returns when all answer metadata requests.

    settings: server properties of the clusters that this call creates, on top of the lab's own. {host}, {id}, {port},
    {controller_port} and {home} stand for the broker's values; a literal brace is written twice.
    kafka: the release (lab/releases.py) of all these clusters, or by alias; one that is not named keeps its release, a
    new one gets 4.3.1.

    Running brokers are kept. Dead brokers start again with their data and ports. Other clusters of the directory stay
    as they are. Raises ToolMissing, BrokerFailed, LabError.
    """
    for alias in aliases:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", alias):
            raise LabError(f"cluster name {alias!r}: use lower-case letters, digits and hyphens")
    if brokers < 1:
        raise LabError(f"{brokers} brokers a cluster: at least one is needed")
    asked = _chosen_releases(aliases, kafka)
    home = Path(directory).resolve()
    find_java()
    with _locked(home, create=True):
        lab = _refreshed(_read(home))
        for alias in aliases:
            lab = _declared(lab, alias, brokers, tuple((settings or {}).items()), asked.get(alias))
        for release in {broker.kafka for alias in aliases for broker in lab.cluster(alias).brokers}:
            fetch_release(find_release(release))
        _write(lab)
        for alias in aliases:
            for broker in lab.cluster(alias).brokers:
                lab = _started(lab, broker)
        for alias in aliases:
            lab = _ready(lab, alias)
        return lab


def read_lab(directory: Path | str) -> Lab:
    """What the directory holds. A broker that does not run has pid None. An empty directory has no clusters."""
    return _refreshed(_read(Path(directory).resolve()))


def end_clusters(directory: Path | str, keep: bool = False) -> Lab:
    """Ends every broker and ZooKeeper of the directory and, unless `keep`, removes its data.

    With `keep` brokers end in good order (SIGTERM, after 15 s SIGKILL). Brokers whose data is removed are killed,
    unless they have a class-data archive to write.
    Returns what was there. Never touches a process that this lab has not started.
    """
    home = Path(directory).resolve()
    if not home.is_dir():
        return Lab(home, {})
    with _locked(home, create=False):
        lab = _read(home)
        brokers = [broker for cluster in lab.clusters.values() for broker in cluster.brokers]
        if keep:
            brokers_.stop_brokers(brokers)
        else:  # the machine has no class-data archive of a release: a broker writes one when it ends in good order
            brokers_.stop_brokers([broker for broker in brokers if brokers_.lacks_archive(broker)], _ARCHIVED_S)
        for broker in brokers:
            brokers_.kill_broker(broker)
        _end_zookeepers(lab, keep)  # last: a broker that ends tells its own
        if keep or not lab.clusters:
            return lab
        for alias in lab.clusters:
            shutil.rmtree(home / alias, ignore_errors=True)
        (home / "lab.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            home.rmdir()  # only when it is empty
        return lab


def kill_lab_broker(directory: Path | str, alias: str, broker_id: int = 1) -> None:
    """SIGKILL to one broker; returns when it is gone. `start` brings it back on its data and port."""
    brokers_.kill_broker(_one(read_lab(directory), alias, broker_id))


def stop_lab_broker(directory: Path | str, alias: str, broker_id: int = 1) -> None:
    """Ends one broker in good order (SIGTERM; SIGKILL after 15 s)."""
    brokers_.stop_brokers([_one(read_lab(directory), alias, broker_id)])


def freeze_lab_broker(directory: Path | str, alias: str, broker_id: int = 1, frozen: bool = True) -> None:
    """Sends SIGSTOP to one broker, which then still exists but does not answer; sends SIGCONT when not `frozen`."""
    brokers_.freeze_process(_one(read_lab(directory), alias, broker_id), frozen)


def restart_lab_broker(directory: Path | str, alias: str, broker_id: int = 1, wait: bool = True) -> Lab:
    """Starts one broker again; with `wait`, returns when the whole cluster answers. Raises BrokerFailed."""
    home = Path(directory).resolve()
    with _locked(home, create=False):
        lab = _refreshed(_read(home))
        lab = _started(lab, _one(lab, alias, broker_id))
        if wait:
            lab = _ready(lab, alias, [broker_id])
        return lab


def encode_lab(lab: Lab) -> dict[str, Any]:
    """The documented shape of `topology lab … --format json`."""
    return {
        "schema": 1,
        "clusters": [
            {
                "alias": cluster.alias,
                "bootstrap": cluster.bootstrap,
                "cluster_id": cluster.cluster_id,
                "brokers": [
                    {
                        "id": each.id,
                        "pid": each.pid,
                        "port": each.port,
                        "data": str(each.data),
                        "kafka": each.kafka,
                    }
                    for each in cluster.brokers
                ],
                "zookeeper": {"pid": there.pid, "port": there.port, "home": str(there.home)}
                if (there := cluster.zookeeper)
                else None,
            }
            for cluster in lab.clusters.values()
        ],
    }


def _one(lab: Lab, alias: str, broker_id: int) -> LabBroker:
    for broker in lab.cluster(alias).brokers:
        if broker.id == broker_id:
            return broker
    raise LabError(f"cluster {alias} has no broker {broker_id}")


def _chosen_releases(aliases: Sequence[str], kafka: Mapping[str, str] | str | None) -> dict[str, str]:
    """The releases asked for, by alias. Raises LabError for one that the lab lacks and for a strange alias."""
    asked = dict.fromkeys(aliases, kafka) if isinstance(kafka, str) else dict(kafka or {})
    for alias, release in asked.items():
        if alias not in aliases:
            raise LabError(f"Kafka {release} is asked for cluster {alias}, but these are started: {', '.join(aliases)}")
        find_release(release)
    return asked


def _declared(lab: Lab, alias: str, brokers: int, settings: tuple[tuple[str, str], ...], kafka: str | None) -> Lab:
    if alias in lab.clusters:
        there = lab.clusters[alias].brokers
        if len(there) != brokers:
            raise LabError(
                f"cluster {alias} in {lab.directory} has {len(there)} broker(s), not {brokers}; take it down first"
            )
        if kafka not in (None, there[0].kafka):
            raise LabError(
                f"cluster {alias} in {lab.directory} is Kafka {there[0].kafka}, not {kafka}; take it down first"
            )
        return lab
    kafka = kafka or DEFAULT_RELEASE
    home = lab.directory / alias
    ports = find_free_ports(2 * brokers + 1, _list_ports(lab))
    zookeeper = LabZooKeeper(kafka, ports.pop(), home / "zookeeper") if find_release(kafka).zookeeper else None
    made = tuple(
        LabBroker(
            alias,
            number,
            ports.pop(),
            ports.pop(),
            home / str(number),
            settings=settings,
            kafka=kafka,
            zookeeper_port=zookeeper.port if zookeeper else None,
        )
        for number in range(1, brokers + 1)
    )
    cluster_id = "" if zookeeper else brokers_.create_kafka_uuid()
    return _changed(lab, LabCluster(alias, cluster_id, made, zookeeper))


def _list_ports(lab: Lab) -> list[int]:
    found = []
    for cluster in lab.clusters.values():
        found += [port for broker in cluster.brokers for port in (broker.port, broker.controller_port)]
        found += [cluster.zookeeper.port] if cluster.zookeeper else []
    return found


def _changed(lab: Lab, cluster: LabCluster) -> Lab:
    return Lab(lab.directory, {**lab.clusters, cluster.alias: cluster})


def _started(lab: Lab, broker: LabBroker) -> Lab:
    """Its ZooKeeper and the broker, where they do not run."""
    lab = _with_zookeeper(lab, broker.alias)
    if is_alive(broker.process):
        return lab
    cluster = lab.cluster(broker.alias)
    if cluster.zookeeper:
        zookeepers.await_absence(cluster.zookeeper, broker.id)
    brokers_.prepare_storage(broker, cluster.cluster_id, cluster.brokers)
    alike = (each for other in lab.clusters.values() for each in other.brokers if each.kafka == broker.kafka)
    train = next(alike).home == broker.home
    running = replace(broker, process=brokers_.start_broker(broker, train))
    changed = tuple(running if each.id == broker.id else each for each in cluster.brokers)
    lab = _changed(lab, replace(cluster, brokers=changed))
    _write(lab)
    return lab


def _with_zookeeper(lab: Lab, alias: str) -> Lab:
    cluster = lab.cluster(alias)
    there = cluster.zookeeper
    if there is None or is_alive(there.process):
        return lab
    running = replace(there, process=zookeepers.start_zookeeper(there))
    lab = _changed(lab, replace(cluster, zookeeper=running))
    _write(lab)
    return lab


def _end_zookeepers(lab: Lab, in_good_order: bool) -> None:
    there = [cluster.zookeeper for cluster in lab.clusters.values() if cluster.zookeeper]
    running = [process for each in there if (process := zookeepers.find_zookeeper_process(each))]
    if in_good_order:
        end_processes(running)
    for process in running:
        kill_process(process)


def _refreshed(lab: Lab) -> Lab:
    for cluster in lab.clusters.values():
        there = cluster.zookeeper
        lab = _changed(
            lab,
            replace(
                cluster,
                brokers=tuple(replace(each, process=brokers_.find_broker_process(each)) for each in cluster.brokers),
                zookeeper=replace(there, process=zookeepers.find_zookeeper_process(there)) if there else None,
            ),
        )
    return lab


def _ready(lab: Lab, alias: str, only: Sequence[int] | None = None) -> Lab:
    """When the cluster is ready; with the cluster id that it says it has."""
    cluster = lab.cluster(alias)
    cluster_id = _await_ready(cluster, only)
    if cluster.zookeeper and cluster_id != cluster.cluster_id:
        lab = _changed(lab, replace(cluster, cluster_id=cluster_id))
        _write(lab)
    return lab


def _await_ready(cluster: LabCluster, only: Sequence[int] | None = None) -> str:
    """Waits until the metadata lists the brokers (all, or `only` these ids) as live, and a controller. Returns the
    cluster's id."""
    awaited = [each for each in cluster.brokers if only is None or each.id in only]
    deadline = time.monotonic() + _READY_S
    for broker in awaited:
        while not answers_api_versions(broker.address):
            _check(broker, deadline)
            time.sleep(0.05)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    quiet = logging.getLogger("lab.metadata")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 5000}, logger=quiet)
    while True:
        with contextlib.suppress(KafkaException):
            told = admin.list_topics(timeout=2)
            if {each.id for each in awaited} <= set(told.brokers) and told.controller_id >= 0 and told.cluster_id:
                return str(told.cluster_id)
        for broker in awaited:
            _check(broker, deadline)
        time.sleep(0.05)


def _check(broker: LabBroker, deadline: float) -> None:
    if not is_alive(broker.process):
        raise BrokerFailed(broker.alias, broker.id, f"ended ({brokers_.find_last_error(broker)})", broker.log)
    if time.monotonic() > deadline:
        raise BrokerFailed(broker.alias, broker.id, f"was not ready after {_READY_S:.0f} s", broker.log)


def _read(home: Path) -> Lab:
    path = home / "lab.json"
    if not path.exists():
        return Lab(home, {})
    try:
        state = json.loads(path.read_text())
        clusters = {
            value["alias"]: LabCluster(
                value["alias"],
                value["cluster_id"],
                tuple(LabBroker.from_json(value["alias"], each) for each in value["brokers"]),
                LabZooKeeper.from_json(there) if (there := value.get("zookeeper")) else None,
            )
            for value in state["clusters"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is not the state of a lab ({error}); remove it if no broker runs there") from None
    return Lab(home, clusters)


def _write(lab: Lab) -> None:
    state = {
        "schema": 1,
        "clusters": [
            {
                "alias": cluster.alias,
                "cluster_id": cluster.cluster_id,
                "brokers": [broker.to_json() for broker in cluster.brokers],
                "zookeeper": cluster.zookeeper.to_json() if cluster.zookeeper else None,
            }
            for cluster in lab.clusters.values()
        ],
    }
    scratch = lab.directory / "lab.json.new"
    scratch.write_text(json.dumps(state, indent=1))
    scratch.replace(lab.directory / "lab.json")


@contextlib.contextmanager
def _locked(home: Path, create: bool) -> Iterator[None]:
    while True:
        if create:
            home.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if create:
                continue  # a `down` removed it just now
            raise LabError(f"there is no lab in {home}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if home.is_dir() and os.path.samestat(os.stat(home), os.fstat(descriptor)):
                yield
                return
        finally:
            os.close(descriptor)
