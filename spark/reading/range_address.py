"""From what a task is told to what it reads."""

from __future__ import annotations

import uuid

from clusters.settings import resolve_connection_settings
from spark.reading.fetch_answers import PartitionAddress
from spark.reading.range_requests import RangeRequest
from topology.plan import PlanCluster


def build_partition_address(cluster: PlanCluster, unit: RangeRequest) -> PartitionAddress:
    """Raises ClusterError where a secret cannot be resolved here."""
    return PartitionAddress(
        resolve_connection_settings(cluster),
        unit.topic,
        uuid.UUID(unit.topic_id),
        unit.partition,
        unit.timestamps,
        frozenset(unit.skip),
        unit.ids,
        frozenset(unit.only),
        unit.claims,
    )
