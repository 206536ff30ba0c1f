"""How many brokers a target needs for what flows bring, and how many workers a fleet needs to bring it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

# Confluent, "Apache Kafka Supports 200K Partitions Per Cluster", 2018: replicas of partitions on a broker.
REPLICAS_A_BROKER: Final = 4_000
DEFAULT_REPLICATION: Final = 3  # where a flow says no `replication_factor`
DEFAULT_HEADROOM: Final = 0.4  # of each broker stays free: for bursts within an interval, and for a broker that is down

# docs/scale.md, "Recommended fleets": quiet partitions of a worker, and sizes in which the sixteen slots are shared
# evenly.
PARTITIONS_A_WORKER: Final = 2_500
FLEET_SIZES: Final = (1, 2, 4, 8, 16)
PARTITIONS_A_TARGET: Final = 10_000
# docs/benchmarks.md, "Copying", run of 2026-11-27: processor time of a worker. 1.77 s for 10⁶ records of 100 B, a
# record a batch (the dearest records), and 1.15 s for 10⁶ records of 1 KB in large batches (the dearest bytes).
RECORD_CPU_S: Final = 1.77e-6
BYTE_CPU_S: Final = 1.15e-9
WORKER_CPU: Final = 0.5  # of a core at the peak; the rest is for bursts and for a partner that died


@dataclass(frozen=True, slots=True)
class BrokerCapacity:
    """What one broker of the target takes, as the user says: bytes a second in (copies between brokers among them) and
    out, bytes of disk. None: not said, so nothing is sized by it. replicas: of partitions. headroom: share that stays
    free."""

    bytes_in: int | None = None
    bytes_out: int | None = None
    disk: int | None = None
    replicas: int = REPLICAS_A_BROKER
    headroom: float = DEFAULT_HEADROOM


@dataclass(frozen=True, slots=True)
class ClusterNeed:
    """What all flows into a cluster bring to it together: bytes a second at the peak, with the copies between brokers;
    bytes a second that leave brokers; bytes on disks; replicas of partitions. None: not known."""

    bytes_in: float | None
    bytes_out: float | None
    disk: float | None
    replicas: int | None
    replication: int


@dataclass(frozen=True, slots=True)
class SizingRow:
    """One limit: what is needed, what a broker takes after the headroom, and how many brokers that makes. None: not
    known, or not said."""

    limit: str
    needed: float | None
    of_broker: float | None
    brokers: int | None


@dataclass(frozen=True, slots=True)
class ClusterSizing:
    """brokers: the largest of the rows, and no fewer than a partition has replicas; None where no row is known."""

    rows: tuple[SizingRow, ...]
    brokers: int | None
    replication: int


@dataclass(frozen=True, slots=True)
class FleetSizing:
    """workers: one of `FLEET_SIZES`. by_cpu, by_partitions: how many each asks for, None where nothing is known of
    it. cpu: cores at the peak. records_known: the history has records a second; without, only bytes are counted.
    beyond: more is needed than one fleet or one target serves."""

    workers: int | None
    by_cpu: int | None
    by_partitions: int | None
    cpu: float | None
    records_known: bool
    beyond: bool


def size_cluster(need: ClusterNeed, capacity: BrokerCapacity) -> ClusterSizing:
    """Each limit by itself: needed / (capacity x (1 - headroom)), rounded up."""
    rows = tuple(
        _size_by(limit, needed, stated, capacity.headroom)
        for limit, needed, stated in (
            ("bytes in", need.bytes_in, capacity.bytes_in),
            ("bytes out", need.bytes_out, capacity.bytes_out),
            ("disk", need.disk, capacity.disk),
            ("replicas", need.replicas, capacity.replicas),
        )
    )
    counts = [row.brokers for row in rows if row.brokers is not None]
    return ClusterSizing(rows, max([*counts, need.replication]) if counts else None, need.replication)


def size_fleet(bytes_in: float | None, messages_in: float | None, partitions: int | None) -> FleetSizing:
    """bytes_in, messages_in: a second, at the peak. A worker is one process: what its processor time allows bounds
    it."""
    cpu = None if bytes_in is None else bytes_in * BYTE_CPU_S + (messages_in or 0.0) * RECORD_CPU_S
    by_cpu = None if cpu is None else max(1, math.ceil(cpu / WORKER_CPU))
    by_partitions = None if partitions is None else max(1, math.ceil(partitions / PARTITIONS_A_WORKER))
    wanted = max((count for count in (by_cpu, by_partitions) if count is not None), default=None)
    if wanted is None:
        return FleetSizing(None, by_cpu, by_partitions, cpu, messages_in is not None, False)
    fitting = next((size for size in FLEET_SIZES if size >= wanted), FLEET_SIZES[-1])
    beyond = wanted > FLEET_SIZES[-1] or (partitions or 0) > PARTITIONS_A_TARGET
    return FleetSizing(fitting, by_cpu, by_partitions, cpu, messages_in is not None, beyond)


def _size_by(limit: str, needed: float | None, stated: int | None, headroom: float) -> SizingRow:
    usable = None if stated is None else stated * (1 - headroom)
    if needed is None or usable is None:
        return SizingRow(limit, needed, usable, None)
    return SizingRow(limit, needed, usable, max(1, math.ceil(needed / usable)))
