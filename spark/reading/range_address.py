"""The address of a range: a request's partition with connection settings."""

from __future__ import annotations

import uuid

from watershed.clusters.settings import resolve_connection_settings
from watershed.spark.reading.fetch_answers import PartitionAddress
from watershed.spark.reading.range_requests import RangeRequest
from watershed.topology.plan import PlanCluster


def build_partition_address(cluster: PlanCluster, request: RangeRequest) -> PartitionAddress:
    """Resolves secrets on this machine. Raises ClusterError where one cannot be resolved."""
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
        request.marks,
        request.header,
    )
