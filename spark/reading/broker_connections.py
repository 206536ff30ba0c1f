"""The connections of one task to one cluster, kept from range to range."""

from __future__ import annotations

from watershed.clusters.errors import Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.broker_pool import BrokerPool
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.transport import ReceiveBuffer
from watershed.spark.reading.read_rate import ReadRate

PROOF_CLIENT_ID = "watershed-verify"


class BrokerConnections:
    """Connections of one task to one cluster, made when they are needed. Not thread-safe; one fetch at a time.

    Brokers see the client id `watershed-verify-<alias>`, so that a quota can be laid on what proofs read.
    """

    def __init__(self, settings: ConnectionSettings, pace: ReadRate | None = None) -> None:
        self.settings, self.pace, self.room = settings, pace or ReadRate(), ReceiveBuffer()
        self.rack = settings.rack or ""
        self.busy = False  # with a range whose answers are not all taken in
        self.client_id = f"{PROOF_CLIENT_ID}-{settings.alias}"
        self._pool = BrokerPool(lambda address: open_connection(self.settings, address, self.client_id))
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}

    def __enter__(self) -> BrokerConnections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def leader(self, topic: str, partition: int) -> Connection:
        """The connection to the partition's leader. Raises Unreachable for no leader, or one that does not answer."""
        if (topic, partition) not in self._leaders:
            self._ask(topic)
        node = self._leaders.get((topic, partition))
        if node is None or node not in self._brokers:
            self.forget()
            raise Unreachable(
                f"{topic}-{partition} on {self.settings.alias} has no leader just now", alias=self.settings.alias
            )
        return self.node(node)

    def node(self, node: int) -> Connection:
        """The connection to this broker. Raises Unreachable, also for a broker that the metadata does not name."""
        if node not in self._brokers:
            raise Unreachable(f"cluster {self.settings.alias} has no broker {node}", alias=self.settings.alias)
        there = self._pool.get(self._brokers[node])
        if there.ended():
            self.lost(there)
            there = self._pool.get(self._brokers[node])
        return there

    def forget(self) -> None:
        """Forgets the leaders, which have moved; the next range reads metadata again."""
        self._leaders.clear()

    def lost(self, connection: Connection | None) -> None:
        """Drops a connection that broke, or on which an answer would come that nobody takes."""
        if connection is not None:
            self._pool.drop(connection)

    def close(self) -> None:
        """Closes all connections; they can be opened again."""
        self._pool.close()
        self.forget()

    def _ask(self, topic: str) -> None:
        connection = open_connection(self.settings, None, self.client_id)
        try:
            answer = connection.metadata((topic,))
        finally:
            connection.close()
        self._brokers = answer.brokers
        for found in answer.topics:
            for partition in found.partitions:
                self._leaders[found.name, partition.partition] = partition.node
