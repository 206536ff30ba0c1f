"""How large partitions are, so that chunks can be cut by bytes."""

from __future__ import annotations

from collections.abc import Iterable

from watershed.clusters.errors import ClusterError
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import Connection, open_connection


def read_partition_bytes(settings: ConnectionSettings, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Bytes of each log on disk, of its largest replica. What no broker tells (DescribeLogDirs needs DESCRIBE on the
    cluster) is not in the answer: sizes only help to share out the work. Raises ClusterError when no broker answers."""
    wanted, found = set(topics), dict[TopicPartition, int]()
    connection = open_connection(settings)
    try:
        brokers = connection.metadata(()).brokers
    finally:
        connection.close()
    for address in brokers.values():
        try:
            with Connection(settings, address) as inquiry:
                sizes = admin_reads.read_log_sizes(inquiry)
        except ClusterError:
            continue
        for key, size in sizes.items():
            if key.topic in wanted:
                found[key] = max(size, found.get(key, 0))
    return found
