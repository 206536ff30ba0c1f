"""What the fault tests share: clusters that can be spoiled, and waiting for what must (not) happen meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.replicator.real import settings_of
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab.clusters import Lab
from watershed.lab.proxied_clusters import ProxiedCluster, run_proxied_clusters
from watershed.topology.plan import Plan

QUICK_BROKER = {
    # A killed broker is fenced, and may register again, after this time.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
BROKER = QUICK_BROKER | {
    # Producers are looked for every second whether they have expired (600 s by default): the worst a broker can do.
    "producer.id.expiration.check.interval.ms": "1000",
}
AUTHORIZER = {
    # ACLs count, and everything without one is allowed: a test denies what it wants to. (One node only: with several,
    # the brokers would need to be super users to find together, and all here are the same ANONYMOUS.)
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@dataclass(frozen=True, slots=True)
class Faulty:
    """Clusters of a test's own. `settings` lead to the brokers themselves, `through` by way of the proxies."""

    home: Path
    lab: Lab
    proxies: dict[str, ProxiedCluster]
    settings: dict[str, ConnectionSettings]
    through: dict[str, ConnectionSettings]

    def proxy(self, alias: str, broker: int = 1):
        return self.proxies[alias].proxies[broker]


@contextmanager
def faulty_clusters(home: Path, brokers: Mapping[str, int], settings: Mapping[str, str] | None = None):
    """Clusters by alias with that many brokers, each broker behind a proxy; `settings` over `BROKER`."""
    with run_proxied_clusters(home, brokers, {**BROKER, **(settings or {})}) as (lab, proxies):
        yield Faulty(
            home,
            lab,
            proxies,
            settings_of(lab),
            {
                alias: ConnectionSettings(alias=alias, bootstrap=tuple(each.bootstrap.split(",")))
                for alias, each in proxies.items()
            },
        )


def times(**seconds: float) -> str:
    """A worker's prelude that shortens its waits, so that a test need not last as long as they do.

    settle: how long a log's end stands still before an old partition goes on (more than the test's requests can be
    under way). patience: how long a raw connection waits for an answer. session: of the group membership.
    """
    known = {
        "settle": ("watershed.replicator.recovery.settled_log_ends", "LOG_SETTLE_S", seconds.get("settle")),
        "patience": ("watershed.clusters.wire.connection", "_PATIENCE_S", seconds.get("patience")),
        "session": (
            "watershed.replicator.transport.stall_detector",
            "WORKER_SESSION_MS",
            seconds.get("session", 0) * 1000,
        ),
    }
    lines = ["import importlib"]
    for name in seconds:
        module, constant, value = known[name]
        lines += [
            f"_m = importlib.import_module({module!r})",
            f"assert hasattr(_m, {constant!r}), 'the tests shorten {module}.{constant}, which is not there any more'",
            f"_m.{constant} = type(_m.{constant})({value!r})",
        ]
    return "\n".join(lines)


def copied(settings: ConnectionSettings, topic: str, partitions: Iterable[int]) -> int:
    """How many offsets these partitions have on the target now, as soon as that can be told: leaders may move."""
    where, until = [TopicPartition(topic, number) for number in partitions], time.monotonic() + 180
    with Admin(settings) as admin:
        while True:
            try:
                return sum(span.end for span in admin.offsets(where, "read_uncommitted").values())
            except ClusterError:
                if time.monotonic() > until:
                    raise


def progress(
    settings: ConnectionSettings, topic: str, partitions: Iterable[int], records: int, within: float = 180
) -> None:
    """`records` more of these partitions arrive on the target from now on (Redpanda: progress during fault)."""
    until = time.monotonic() + within
    with Admin(settings) as admin:
        where = [TopicPartition(topic, number) for number in partitions]

        def end() -> int:
            while True:
                try:
                    return sum(span.end for span in admin.offsets(where, "read_uncommitted").values())
                except ClusterError:  # leaders move
                    if time.monotonic() > until:
                        raise

        before = end()
        while (now := end()) < before + records:
            if time.monotonic() > until:
                seen = f"{now - before} records of {topic} {list(partitions)} in {within} s of the fault"
                raise AssertionError(f"{seen}, {records} demanded; {told(settings, topic)}")
            time.sleep(0.2)


def told(settings: ConnectionSettings, topic: str) -> list[str]:
    """What is reported of a topic; nothing while that cannot be read either."""
    now = time.time() * 1000
    try:
        return [
            f"{each.partition}: {each.state}, {each.source_position} of {each.source_end}, target {each.target_end}, "
            f"{now - each.at_ms:.0f} ms ago, {each.error or ''}"
            for each in read_statuses(settings)
            if each.target_topic == topic
        ]
    except ClusterError as error:
        return [str(error)]


def reports(settings: ConnectionSettings, plan: Plan) -> dict[int, PartitionStatus]:
    """The newest report of each partition of the plan's flow."""
    return {each.partition: each for each in read_statuses(settings) if each.flow == plan.flows[0].id}


def wait_reports(
    settings: ConnectionSettings,
    plan: Plan,
    wanted: Callable[[dict[int, PartitionStatus]], bool],
    timeout: float = 180,
) -> dict[int, PartitionStatus]:
    """Until the flow's reports are as wanted; returns them."""
    until = time.monotonic() + timeout
    seen: object = None
    while True:
        try:
            if wanted(found := reports(settings, plan)):
                return found
            seen = found
        except ClusterError as error:  # leaders move
            seen = error
        assert time.monotonic() < until, f"the reports never became as wanted, at last: {seen}"
        time.sleep(0.5)


class Feeding:
    """`send(count, start)` about `rate` records a second on a thread, until `end`."""

    def __init__(self, send: Callable[[int, int], None], rate: int, total: int = 0) -> None:
        self._send, self._rate, self._total = send, rate, total
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Feeding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """End it and say how many records there are."""
        self._stop.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure
        return self._total

    def _feed(self) -> None:
        try:
            while not self._stop.wait(0.05):
                count = max(1, self._rate // 20)
                self._send(count, self._total)
                self._total += count
        except Exception as error:  # noqa: BLE001  raised again where it is read
            self._failure = error
