"""Estates of up to 1,000,000 partitions and 1,000 workers on paper: what each part costs there, and what breaks first.

No clusters. Partitions are placed by the code that places them (slots, assignment, placement, restarts), what one
partition costs is measured in the run (`bench.estate_costs`), and the rest is multiplication. All partitions are quiet:
copied, and nobody writes to them. Environment:

    BENCH_ROUND_TRIP_MS  of a request to a broker (default 1: brokers of the same place)
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import click

from watershed.bench.estate_costs import (
    FLOW_ID,
    LEDGER_RECORDS,
    PartitionCosts,
    build_flow_record,
    build_topic_name,
    compute_stored_report_bytes,
    measure_partition_costs,
)
from watershed.bench.goals import build_estate_goals
from watershed.bench.results import choose_size, print_table, publish_results, report_progress
from watershed.clusters.control_topics import SLOT_COUNT, compute_slot
from watershed.replicator.topic_mapping import MappedTopic
from watershed.replicator.transport.stall_detector import WORKER_SESSION_MS
from watershed.replicator.worker.assignment import assign_partitions, compute_quota_shares
from watershed.replicator.worker.fleet_decisions import FleetFacts, HostedWorker, StartWorker, decide_fleet_actions
from watershed.replicator.worker.inspection_pool import INSPECTION_THREADS
from watershed.replicator.worker.partition_placement import PartitionLoad, balance_partitions
from watershed.replicator.worker.partition_task import UNCHANGED_S
from watershed.topology.language.flow import MOST_WORKERS

_MEASURED_OVER = choose_size(1_000, 20)  # partitions
_SHRUNK = choose_size(1, 1_000)  # a smoke run has so many times fewer partitions
_ROUND_TRIP_S = float(os.environ.get("BENCH_ROUND_TRIP_MS", "1")) / 1000
_A_TOPIC = 10  # partitions
_REPLICAS = 3

# Measured with clusters: `make bench-scale`, docs/benchmarks.md, a worker with 104 and with 10,004 partitions.
_WORKER_MIB, _MIB_A_PARTITION = 86.0, 126.0 / 9_900
_IDLE_CPU, _IDLE_CPU_A_PARTITION = 0.014, 0.036 / 9_900  # cores
# `read_latest_values` on a cluster of one broker, 100,000 reports of 5,000 partitions: processor time of each report
# that a newer one replaces (that of the newest is `PartitionCosts.read_us`). It is what the client library needs.
_SUPERSEDED_US = 2.3

# Known of our code (the names say where).
REPORT_S: Final = UNCHANGED_S * 1.5  # partition_task: between once and twice that time
HEARTBEAT_S: Final = 1.0  # Worker: of each worker
LISTED_EVERY_S: Final = 10.0  # PlanFlow.discovery_ms, both clusters
LISTED_BYTES: Final = 42 + 56 // _A_TOPIC  # MetadataResponse 12: a partition with three replicas, a topic
SEGMENT_BYTES: Final = 16 << 20  # control_topics: what was not rolled is not compacted
SEGMENT_S: Final = 3_600.0
FOLLOWED_A_SECOND: Final = 10_000.0  # partition_status_records.StatusFollower: 1,000 a round, ten rounds a second
STATUS_S: Final = 2.0  # issue 19: `topology status` of a target
REQUESTS_TO_INSPECT: Final = 1 / 200 + 1 / 64  # of a partition; log_inspection: DescribeProducers and Fetch of many
THREADS_AT_SOURCE, THREADS_AT_TARGET = 4, 2  # of a broker; broker_threads: fetchers and senders
SESSIONS_A_BROKER: Final = 3  # of them nearby: quiet, busy, and those that catch up
STARTED_AGAIN_S: Final = 1.0  # fleet_decisions.FIRST_PAUSE_S

# Known of Kafka.
_SESSIONS = 1_000  # max.incremental.fetch.session.cache.slots
_REPLICAS_A_BROKER = 4_000  # "Apache Kafka Supports 200K Partitions Per Cluster", Confluent, 2018

_MEMORY_MIB = 256.0  # issue 19
_SESSION_S = WORKER_SESSION_MS / 1000
_STANDING_S = 5.0  # issue 19: beyond the session timeout


@dataclass(frozen=True, slots=True)
class Estate:
    """So many partitions, in equal parts on pairs of clusters. workers: all together; topologies: a target's, each with
    a fleet and its own topics; flows: of a fleet; recommended: for this number of partitions."""

    partitions: int
    sources: int
    targets: int
    workers: int
    topologies: int = 1
    flows: int = 1
    recommended: bool = False

    @property
    def fleets(self) -> int:
        """One for each topology and target."""
        return self.targets * self.topologies

    @property
    def at_target(self) -> int:
        """Partitions of one target cluster."""
        return self.partitions // self.targets


ESTATES: Final = (
    Estate(10_000, 1, 1, 1),
    Estate(10_000, 1, 1, 2),
    Estate(10_000, 1, 1, 4, recommended=True),
    Estate(10_000, 1, 1, 4, flows=20),
    Estate(10_000, 1, 1, 4, flows=100),
    Estate(10_000, 1, 1, 16),
    Estate(100_000, 1, 1, 16),
    Estate(100_000, 1, 1, 64, topologies=4),
    Estate(100_000, 10, 10, 40, recommended=True),
    Estate(1_000_000, 1, 1, MOST_WORKERS),
    Estate(1_000_000, 1, 1, 992, topologies=62),
    Estate(1_000_000, 16, 16, 256),
    Estate(1_000_000, 1, 62, 992),
    Estate(1_000_000, 62, 62, 992),
    Estate(1_000_000, 100, 100, 400, recommended=True),
    Estate(1_000_000, 100, 100, 1_000),
)


def main() -> int:
    """Measures what a partition costs, simulates each estate, and prints the tables. Returns the exit code."""
    report_progress(f"measuring over {_MEASURED_OVER} partitions")
    costs = measure_partition_costs(_MEASURED_OVER)
    measured = [{"of one partition": name, "measured": round(value, 2)} for name, value in asdict(costs).items()]
    running, restarting, broken = [], [], []
    for whole in ESTATES:
        estate = replace(whole, partitions=max(whole.partitions // _SHRUNK, whole.fleets))
        report_progress(f"{estate.partitions} partitions, {estate.fleets} fleets, {estate.workers} workers")
        fleet = place_fleets(estate)
        row = describe_estate(estate)
        running.append(row | simulate_running(estate, fleet, costs))
        restarting.append(row | simulate_restarts(estate, fleet, costs))
        broken.append(row | find_first_limits(estate, running[-1] | restarting[-1]))
    for rows in (measured, running, restarting):
        print_table(rows)
        click.echo()
    more = {"measured": asdict(costs), "running": running, "restarting": restarting}
    return publish_results("estate", broken, build_estate_goals(broken), more)


def describe_estate(estate: Estate) -> dict[str, Any]:
    """The first columns of each table."""
    return {
        "partitions": estate.partitions,
        "clusters": f"{estate.sources}>{estate.targets}",
        "fleets": estate.fleets,
        "flows": estate.flows * estate.fleets,
        "workers": estate.workers,
    }


# -- who serves what ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlacedFleet:
    """The fleet whose heaviest worker is the heaviest of all. owners: slot → worker; sizes: slot → partitions of this
    fleet; serving: workers of all fleets that have a slot."""

    owners: Mapping[int, int]
    sizes: tuple[int, ...]
    members: tuple[int, ...]
    serving: int

    def count(self, worker: int) -> int:
        """Partitions of this worker."""
        return sum(self.sizes[slot] for slot, owner in self.owners.items() if owner == worker)

    @property
    def heaviest(self) -> int:
        """Partitions of the worker that has most."""
        return max(map(self.count, self.members))


def share_slots(owners: Mapping[int, int], members: Iterable[int]) -> dict[int, int]:
    """Slot → member, as the assignor `cooperative-sticky` shares them (KIP-54, KIP-429): even to within one, and nobody
    gives up more than that takes."""
    there = sorted(members)
    held: dict[int, list[int]] = {member: [] for member in there}
    for slot, owner in sorted(owners.items()):
        if owner in held:
            held[owner].append(slot)
    least, more = divmod(SLOT_COUNT, len(there))
    with_more = set(sorted(there, key=lambda member: (-len(held[member]), member))[:more])
    for member, slots in held.items():
        del slots[least + (member in with_more) :]
    free = iter(sorted(set(range(SLOT_COUNT)) - {slot for slots in held.values() for slot in slots}))
    for member, slots in held.items():
        while len(slots) < least + (member in with_more):
            slots.append(next(free))
    return {slot: member for member, slots in held.items() for slot in slots}


def place_fleets(estate: Estate) -> PlacedFleet:
    """Every partition by its slot, every slot by its owner."""
    fleets = []
    for number in range(estate.fleets):
        sizes = [0] * SLOT_COUNT
        for partition in range(number, estate.partitions, estate.fleets):
            sizes[
                compute_slot(f"{FLOW_ID}-{number}", build_topic_name(partition // _A_TOPIC), partition % _A_TOPIC)
            ] += 1
        workers = estate.workers // estate.fleets + (number < estate.workers % estate.fleets)
        members = tuple(_name_member(each) for each in range(max(workers, 1)))
        fleets.append(PlacedFleet(share_slots({}, members), tuple(sizes), members, min(len(members), SLOT_COUNT)))
    heaviest = max(fleets, key=lambda fleet: fleet.heaviest)
    return PlacedFleet(heaviest.owners, heaviest.sizes, heaviest.members, sum(fleet.serving for fleet in fleets))


def _name_member(number: int) -> int:
    """A member's id in its group ends in a random UUID, so slots are not handed out in the order of starts."""
    return zlib.crc32(b"worker %d" % number)


# -- while all is well -------------------------------------------------------------------------------------------------


def simulate_running(estate: Estate, fleet: PlacedFleet, costs: PartitionCosts) -> dict[str, Any]:
    """What runs all the time: the heaviest worker, a source's brokers, the status topic of a target cluster."""
    heaviest, at_source = fleet.heaviest, estate.partitions // estate.sources
    listed_s = (at_source + estate.at_target) * costs.listing_us / 1e6
    cpu = _IDLE_CPU + heaviest * _IDLE_CPU_A_PARTITION + listed_s / LISTED_EVERY_S
    readers = fleet.serving / estate.sources
    reports = estate.at_target / REPORT_S + fleet.serving / estate.targets / HEARTBEAT_S
    slots = SLOT_COUNT / min(len(fleet.members), SLOT_COUNT)
    together = max(round(min(1_000 / costs.report_us, heaviest / REPORT_S) / slots), 1)  # the writer lingers 1 ms
    stored = compute_stored_report_bytes(together)
    unrolled = SLOT_COUNT * min(reports / SLOT_COUNT * SEGMENT_S, SEGMENT_BYTES / stored)
    status_s = (unrolled * _SUPERSEDED_US + estate.at_target * costs.read_us) / 1e6
    return {
        "serving": fleet.serving,
        "heaviest": heaviest,
        "of_mean": round(heaviest * fleet.serving / estate.partitions, 2),
        "mib": round(_WORKER_MIB + heaviest * _MIB_A_PARTITION),
        "idle_cpu_percent": round(cpu * 100, 1),
        "threads": THREADS_AT_SOURCE * _count_brokers(at_source) + THREADS_AT_TARGET * _count_brokers(estate.at_target),
        "sessions": round(SESSIONS_A_BROKER * readers),  # at a source's broker
        "listing_mb_s": round(readers * at_source * LISTED_BYTES / LISTED_EVERY_S / 1e6, 2),  # of a source
        "reports_s": round(reports),
        "leader_cpu_percent": round(min(reports, FOLLOWED_A_SECOND) * costs.read_us / 1e4, 1),
        "status_records": round(unrolled + estate.at_target),
        "status_mib": round((unrolled + estate.at_target) * stored / (1 << 20)),
        "status_s": round(status_s, 1),
    }


def _count_brokers(partitions: int) -> int:
    """That a cluster with so many partitions needs."""
    return max(-(-partitions * _REPLICAS // _REPLICAS_A_BROKER), _REPLICAS)


# -- when workers come and go ------------------------------------------------------------------------------------------


def simulate_restarts(estate: Estate, fleet: PlacedFleet, costs: PartitionCosts) -> dict[str, Any]:
    """A worker starts, is killed, or all are replaced one after the other."""
    records = estate.at_target * LEDGER_RECORDS
    start_s = compute_ledger_s(estate, records, costs)  # each worker reads the target's whole ledger (topic_discovery)
    assign_s, balance_s = _time_decisions(fleet)
    moved, standing, steps = simulate_rolling_restart(estate, fleet, costs)
    killed = _find_after_kill(estate, fleet, costs, start_s)
    return {
        "ledger_records": records,
        "ledger_mib": round(records * costs.ledger_bytes / (1 << 20)),
        "start_s": round(start_s, 1),
        "assign_s": round(assign_s, 2),
        "placement_s": round(balance_s, 2),
        "full_fetch_kib": round(fleet.heaviest * costs.fetch_bytes / 1024),
        "killed_inspects": killed[0],
        "killed_s": round(killed[1], 1),
        "restart_inspects": moved * estate.fleets,
        "standing_s": round(start_s + standing, 1),
        "restart_min": round(steps * (start_s + standing) / 60, 1),
    }


def compute_ledger_s(estate: Estate, records: float, costs: PartitionCosts) -> float:
    """Until a worker has read so many ledger records, those of all topologies. It puts its own together, once for all
    its flows (`replicator/ledger/shared_ledger.py`), and looks only at the keys of the others."""
    own = records / estate.topologies
    return (records * _SUPERSEDED_US + own * costs.ledger_us + (records - own) * costs.ledger_key_us) / 1e6


def compute_inspection_s(
    estate: Estate, partitions: int, slots: int, costs: PartitionCosts, *, ledger_known: bool = False
) -> float:
    """Until a worker copies these partitions that it was given in so many slots. It reads the ledger of these slots, if
    it has not just done so; then it asks the target of many partitions at once."""
    records = slots * estate.at_target / SLOT_COUNT * LEDGER_RECORDS
    ledger_s = 0.0 if ledger_known else compute_ledger_s(estate, records, costs)
    waits_s = partitions * REQUESTS_TO_INSPECT * _ROUND_TRIP_S / min(max(slots, 1), INSPECTION_THREADS)
    return ledger_s + waits_s + partitions * costs.begin_us / 1e6


def _find_after_kill(estate: Estate, fleet: PlacedFleet, costs: PartitionCosts, start_s: float) -> tuple[int, float]:
    """How many partitions are inspected after the heaviest worker was killed, and until all of them are copied."""
    dead = max(fleet.members, key=fleet.count)
    inspected, others = fleet.count(dead), [each for each in fleet.members if each != dead]
    if not others:  # its supervisor starts another one
        inspection_s = compute_inspection_s(estate, inspected, SLOT_COUNT, costs, ledger_known=True)
        return inspected, _SESSION_S + STARTED_AGAIN_S + start_s + inspection_s
    return inspected, _SESSION_S + _inspect_moved(estate, fleet, fleet.owners, share_slots(fleet.owners, others), costs)


def _inspect_moved(
    estate: Estate, fleet: PlacedFleet, before: Mapping[int, int], after: Mapping[int, int], costs: PartitionCosts
) -> float:
    """Seconds of the worker that has most to inspect."""
    taken: dict[int, list[int]] = {}
    for slot, owner in after.items():
        if before.get(slot) != owner:
            taken.setdefault(owner, []).append(fleet.sizes[slot])
    return max((compute_inspection_s(estate, sum(own), len(own), costs) for own in taken.values()), default=0.0)


def simulate_rolling_restart(estate: Estate, fleet: PlacedFleet, costs: PartitionCosts) -> tuple[int, float, int]:
    """All workers of a fleet are replaced, by the supervisor's own decisions. Returns how many inspections that takes,
    the seconds of the longest, and how many workers were started."""
    wanted = len(fleet.members)
    restarts = dict.fromkeys(range(wanted), 0)  # by place
    names = dict(enumerate(fleet.members))  # a place's next worker is another member of the group
    owners, inspections, longest, started = dict(fleet.owners), 0, 0.0, 0
    while actions := decide_fleet_actions(
        FleetFacts(wanted, 1, tuple(HostedWorker(at, restarts[at], serving=True) for at in restarts), all_served=True)
    ):
        for action in actions:
            if isinstance(action, StartWorker):
                started += 1
                restarts[action.place], names[action.place] = 1, _name_member(wanted + started)
            else:
                del restarts[action.place], names[action.place]
        after = share_slots(owners, names.values())
        inspections += sum(fleet.sizes[slot] for slot in after if after[slot] != owners[slot])
        longest = max(longest, _inspect_moved(estate, fleet, owners, after, costs))
        owners = after
    return inspections, longest, started


def _time_decisions(fleet: PlacedFleet) -> tuple[float, float]:
    """Seconds in which a worker of this fleet finds out what is its own, and in which its leader evens the load out,
    where a partition carries the more the lower its number (Zipf)."""
    partitions = sum(fleet.sizes)
    flows = {FLOW_ID: build_flow_record()}
    names = [build_topic_name(number) for number in range(-(-partitions // _A_TOPIC))]
    topics = {FLOW_ID: [MappedTopic(name, name, _A_TOPIC, created=False, copied=_A_TOPIC) for name in names]}
    own = {slot for slot, owner in fleet.owners.items() if owner == fleet.members[0]}
    began = time.process_time()
    compute_quota_shares(assign_partitions(flows, topics, own, {}), flows, topics)
    assigned = time.process_time()
    loads = [
        PartitionLoad(
            f"{FLOW_ID}|{name}|{number}", compute_slot(FLOW_ID, name, number), 1e9 / (1 + _A_TOPIC * at + number)
        )
        for at, name in enumerate(names)
        for number in range(_A_TOPIC)
    ]
    placing = time.process_time()
    balance_partitions(loads, {}, {slot: f"w{owner}" for slot, owner in fleet.owners.items()})
    return assigned - began, time.process_time() - placing


# -- what breaks first -------------------------------------------------------------------------------------------------


def find_first_limits(estate: Estate, row: Mapping[str, Any]) -> dict[str, Any]:
    """Each limit as a share of what there is of it, the worst first: from 1 on it is reached."""
    shares = {
        "slots": estate.workers / max(row["serving"], 1) if estate.workers > row["serving"] else 0.0,
        "worker's memory": row["mib"] / _MEMORY_MIB,
        "worker's processor time": row["idle_cpu_percent"] / 100,
        "fetch sessions": row["sessions"] / _SESSIONS,
        "reports for the placement": row["reports_s"] / FOLLOWED_A_SECOND,
        "`topology status` in time": row["status_s"] / STATUS_S,
        "a killed worker": row["killed_s"] / (_SESSION_S + _STANDING_S),
        "a worker's start": row["standing_s"] / (_SESSION_S + _STANDING_S),
    }
    worst = sorted(shares.items(), key=lambda item: -item[1])
    found = [f"{name} {share:.1f}" for name, share in worst if share >= 1] or ["none"]
    return {
        "recommended": "yes" if estate.recommended else "",
        "nearest": round(worst[0][1], 2),
        "breaks": ", ".join(found),
    }


if __name__ == "__main__":
    sys.exit(main())
