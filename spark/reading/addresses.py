"""From what a task is told to what it reads."""

from __future__ import annotations

import uuid

from clusters.settings import connection_settings
from spark.reading.ranges import PartitionAddress
from spark.reading.units import Unit
from topology.plan import PlanCluster


def address_of(cluster: PlanCluster, unit: Unit) -> PartitionAddress:
    """Raises ClusterError where a secret cannot be resolved here."""
    return PartitionAddress(
        connection_settings(cluster),
        unit.topic,
        uuid.UUID(unit.topic_id),
        unit.partition,
        unit.timestamps,
        frozenset(unit.skip),
        unit.ids,
        frozenset(unit.only),
        unit.claims,
    )
