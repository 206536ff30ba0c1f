"""A pair of clusters of which one may be killed: live applications, a throttled flow, groups that are carried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tests.replicator.real import applied, plan_for, read_all, settings_of, workers
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.errors import ClusterError
from watershed.clusters.group_offsets import GroupOffsets
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import RequestProof
from watershed.cutover.journal.hash_chain import JournalEntry, find_step_outcome
from watershed.cutover.observations import ProofOutcome
from watershed.cutover.offsets import decode_offsets
from watershed.cutover.policy import WavePolicy
from watershed.lab import clusters, sample_applications
from watershed.lab.account import GroupAccount, build_account, find_applications
from watershed.lab.application_records import ENTRY_FORMAT, read_words
from watershed.lab.clusters import Lab
from watershed.lab.preload import create_lab_topics
from watershed.lab.releases import DEFAULT_RELEASE
from watershed.replicator.ledger.ledger import read_ledger
from watershed.topology.application_controls import PlanApplication
from watershed.topology.migration_waves import PlanMigration as PlanMigration
from watershed.topology.migration_waves import RollbackPolicy, Wave
from watershed.topology.plan import Plan, seal_plan
from watershed.topology.sync_settings import GroupSync, SyncSettings

PARTITIONS, GROUP = 2, "billing"
POLICY = WavePolicy(
    poll_ms=300, max_lag=1_000_000, hold_ms=0, hold_times=1, watch_ms=1_500, settle_ms=500,
    empty_times=1, accept_loss=1_000_000, unseen_ms=2_000,
)  # fmt: skip
TOPIC = "orders"
BILLING = ["watershed.lab.billing_consumer", "--group", GROUP, "--topics", TOPIC, "--session-ms", "6000"]
SLOW = 6_000  # bytes a second: less than the producer writes


class Site:
    """Clusters `onprem` (which dies) and `cloud`, the flow there, the paused flow back, a producer and a consumer."""

    def __init__(self, home: Path, delivery: Literal["sequence", "transactions"], kafka: str = DEFAULT_RELEASE) -> None:
        self.delivery: Literal["sequence", "transactions"] = delivery
        self.home, self.directory, self.topic = home, home / "clusters", TOPIC
        self.lab: Lab = clusters.start_clusters(self.directory, ["onprem", "cloud"], kafka={"onprem": kafka})
        self.settings = settings_of(self.lab)
        create_lab_topics(self.lab.clusters["onprem"].bootstrap, [self.topic], PARTITIONS)
        self.places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        self.apps = home / "apps"
        self.plan = self._plan()

    def _plan(self) -> Plan:
        base = plan_for(self.settings, "dr", self.topic, routes=(("onprem", "cloud"), ("cloud", "onprem")))
        sync = SyncSettings(groups=GroupSync("continuous", interval_ms=1_000))
        there = replace(base.flows[0], quota=SLOW, sync=sync, delivery=self.delivery)
        back = replace(base.flows[1], state="paused", delivery="transactions", delivery_reason="a way back")
        return seal_plan(replace(base, flows=(there, back)))

    def start_applications(self) -> None:
        """`orders` writes at `onprem`, `billing` reads there."""
        at = ["--cluster", "onprem", "--bootstrap", self.lab.clusters["onprem"].bootstrap]
        self.orders = sample_applications.start_application(
            self.apps, "orders", ["watershed.lab.orders_producer", "--topics", self.topic, "--rate", "100", *at]
        )
        self.billing = sample_applications.start_application(self.apps, "billing", [*BILLING, *at])
        sample_applications.wait_for_count(self.billing, "processed", 50, seconds=180)

    def start(self) -> None:
        self.start_applications()
        wave = Wave("all", (self.topic,), (GROUP,), ("orders",), rollback=RollbackPolicy(reverse=self.plan.flows[1].id))
        http = {GROUP: PlanApplication(self.billing.http), "orders": PlanApplication(self.orders.http)}
        migration = PlanMigration(self.plan.flows[0].id, "consumers_first", (wave,), http)
        self.plan = applied(self.settings, seal_plan(replace(self.plan, migration=migration)))

    @property
    def flow(self) -> str:
        """The flow to `cloud`."""
        return next(each.id for each in self.plan.flows if each.target == "cloud")

    def ends(self, alias: str) -> dict[TopicPartition, int]:
        with Admin(self.settings[alias]) as admin:
            return {place: span.end for place, span in admin.offsets(self.places).items()}

    def leads(self, alias: str) -> bool:
        """Whether every partition has a leader that answers: a broker that comes back is heard of before it leads."""
        try:
            return bool(self.ends(alias))
        except ClusterError:
            return False

    def reports(self) -> dict[TopicPartition, Any]:
        found = [each for each in read_statuses(self.settings["cloud"]) if each.flow == self.flow]
        return {TopicPartition(each.topic, each.partition): each for each in found}

    def wait_unseen(self) -> None:
        """Until workers have reported all that they had from the source: a later report looks as if it lived."""
        wait_until(lambda: all(each.at_ms > self.killed_ms + 3_000 for each in self.reports().values()))

    def at_source(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Positions at `cloud`, within what was copied, as those of `onprem`."""
        ledger = read_ledger(self.settings["cloud"], flow=self.flow)
        return {p: ledger.map(self.flow, p.topic, p.partition).to_source(at) for p, at in offsets.items()}

    def carried(self) -> dict[TopicPartition, int]:
        with GroupOffsets(self.settings["cloud"]) as offsets:
            return {place: each.offset for place, each in offsets.held([GROUP])[GROUP].positions.items()}

    def newest(self, alias: str, count: int) -> list[list[Any]]:
        found = read_all(self.settings[alias], self.topic, PARTITIONS)
        return [[record for _, record in found[place.partition]][-count:] for place in self.places]

    def lag(self) -> int:
        """So much is behind: what workers say, once they have seen the source's present ends."""
        ends, seen = self.ends("onprem"), self.reports()
        if any(place not in seen or seen[place].source_end != end for place, end in ends.items()):
            return -1
        return sum(seen[place].lag_records for place in ends)

    def reported_lag(self) -> int:
        return sum(each.lag_records or 0 for each in self.reports().values())

    def kill(self) -> None:
        """SIGKILL to the site: its broker and the applications, which a supervisor starts elsewhere, still pointed at
        the dead cluster."""
        for name in ("orders", "billing"):
            sample_applications.kill_application(self.apps, name)
        clusters.kill_lab_broker(self.directory, "onprem")
        self.killed_ms = time.time_ns() // 1_000_000
        self.orders = sample_applications.start_application(
            self.apps, "orders", ["watershed.lab.orders_producer", "--topics", self.topic, "--rate", "100"]
        )
        self.billing = sample_applications.start_application(self.apps, "billing", BILLING)

    def revive(self) -> None:
        self.lab = clusters.restart_lab_broker(self.directory, "onprem")

    def processed(self) -> dict[TopicPartition, int]:
        """How far the group had processed at the dead side, by its own records."""
        found: dict[TopicPartition, int] = {}
        words = read_words(self.apps / "billing")
        raw = (self.apps / "billing" / "records.bin").read_bytes()
        for at in range(0, len(raw) - ENTRY_FORMAT.size + 1, ENTRY_FORMAT.size):
            entry = dict(zip(_fields(), ENTRY_FORMAT.unpack_from(raw, at), strict=False))
            if words["cluster"][entry["cluster"]] == "onprem":
                place = TopicPartition(self.topic, entry["partition"])
                found[place] = max(found.get(place, 0), entry["offset"] + 1)
        return found

    def expected(self, processed: dict[TopicPartition, int], failover: Sequence[JournalEntry]) -> tuple[int, int]:
        """Records that the group never gets, and those it gets twice, by what the failover wrote down and by the dead
        cluster's own logs. processed: how far the group had come there."""
        assert failover[-1].observation["state"] == "done"
        cut, placed = find_step_outcome(failover, "cut_workers_off"), find_step_outcome(failover, "place_groups")
        assert cut is not None
        assert placed is not None
        copied, ends = decode_offsets(cut[0]["copied"]), self.ends("onprem")
        missing = sum(ends[p] - copied[p] for p in self.places)
        assert 0 < cut[0]["loss"]["offsets"] <= missing  # the newest ones nobody had seen
        landed = self.at_source(decode_offsets(placed[0]["groups"][GROUP]["target"]))
        done = {p: processed.get(p, 0) for p in self.places}
        lost = sum(len(range(max(copied[p], done[p]), ends[p])) for p in self.places)
        return lost, sum(max(0, min(copied[p], done[p]) - landed[p]) for p in self.places)

    def settled(self) -> GroupAccount:
        """The producer ends, the consumer reads the rest; then the applications' records are compared."""
        sample_applications.stop_client(self.orders)
        seen, since = sample_applications.ask_application(self.billing)["processed"], time.monotonic()
        while time.monotonic() - since < 8:  # longer than a group without its member waits
            now = sample_applications.ask_application(self.billing)["processed"]
            seen, since = (seen, since) if now == seen else (now, time.monotonic())
            time.sleep(0.2)
        sample_applications.stop_client(self.billing)
        (group,) = build_account(find_applications(self.apps)).groups
        return group

    def prove_back(self, since: dict[TopicPartition, int]) -> Callable[[RequestProof], ProofOutcome]:
        """Whether what was written at `cloud` behind `since` ends the log of `onprem`, in order."""

        def prove(wanted: RequestProof) -> ProofOutcome:
            proven = unproven = 0
            here = read_all(self.settings["cloud"], self.topic, PARTITIONS)
            there = read_all(self.settings["onprem"], self.topic, PARTITIONS)
            for place, cut in since.items():
                written = [record for at, record in here[place.partition] if at >= cut]
                carried = [record for _, record in there[place.partition]]
                if not wanted.final:  # it is still being carried
                    missing = next((n for n in range(len(written) + 1) if _ends_with(carried, written, n)), None)
                    unproven += missing is None
                else:
                    unproven += not _ends_with(carried, written, 0)
                proven += len(written)
            return ProofOutcome(0, "different" if unproven else "proven", unproven, {"proven": proven})

        return prove


def _ends_with(log: list[Any], written: list[Any], without: int) -> bool:
    kept = written[: len(written) - without]
    return not kept or log[-len(kept) :] == kept


def _fields() -> tuple[str, ...]:
    from watershed.lab.application_records import ENTRY_FIELDS

    return ENTRY_FIELDS


def wait_until(what: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.4)


@contextmanager
def site_in(
    home: Path, delivery: Literal["sequence", "transactions"] = "sequence", kafka: str = DEFAULT_RELEASE
) -> Iterator[Site]:
    """kafka: the release of `onprem`."""
    try:
        yield Site(home, delivery, kafka)
    finally:
        sample_applications.stop_applications(home / "apps", grace=10)
        clusters.end_clusters(home / "clusters")


__all__ = ["GROUP", "PARTITIONS", "POLICY", "Site", "site_in", "wait_until", "workers"]
