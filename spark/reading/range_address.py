"""From what a task is told to what it reads."""

from __future__ import annotations

import uuid

from clusters.settings import resolve_connection_settings
from spark.reading.fetch_answers import PartitionAddress
from spark.reading.range_requests import RangeRequest
from topology.plan import PlanCluster


def build_partition_address(cluster: PlanCluster, request: RangeRequest) -> PartitionAddress:
    """Raises ClusterError where a secret cannot be resolved here."""
    return PartitionAddress(
        resolve_connection_settings(cluster),
        request.topic,
        uuid.UUID(request.topic_id),
        request.partition,
        request.timestamps,
        frozenset(request.skip),
        request.ids,
        frozenset(request.only),
        request.claims,
    )
