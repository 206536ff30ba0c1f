"""Which slots this worker serves: a consumer group on the target cluster that subscribes to the ledger.

Owning ledger partition p means serving every partition whose slot is p. Nothing is consumed: the group protocol
shares the slots, the sequence numbers keep two owners from doing harm. A lease on a fleet is the same with a topic of
one partition: whoever is given it holds the lease, until it leaves or its session ends (decision 0088).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from watershed.clusters.control_topics import LEDGER_TOPIC
from watershed.clusters.secret_rotation import SecretRotation
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.transport import stall_detector

log = logging.getLogger("watershed.membership")

# The others hear of a worker that leaves with their next heartbeat, and of one that joins twice (KIP-429: what it gets
# is given up in a first rebalance and handed out in a second). So this is most of what a handover takes.
_HEARTBEAT_MS = 250


class Membership:
    """Call `poll` often: it keeps the membership alive and calls `on_revoked` while slots are still ours."""

    def __init__(
        self,
        settings: ConnectionSettings,
        group: str,
        client_id: str,
        on_revoked: Callable[[set[int]], None],
        topic: str = LEDGER_TOPIC,
    ) -> None:
        self.slots: set[int] = set()
        self.has_joined = False  # the group has told which slots are ours, perhaps none
        self._topic = topic
        self._on_revoked = on_revoked
        self._settings, self._group, self._client_id = settings, group, client_id
        self._rotation = SecretRotation(settings)
        self._consumer = self._made()
        self._join()

    def _made(self) -> Consumer:
        return Consumer(
            self._settings.librdkafka(
                {
                    "client.id": self._client_id,
                    "group.id": self._group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "partition.assignment.strategy": "cooperative-sticky",
                    "session.timeout.ms": stall_detector.WORKER_SESSION_MS,
                    # 60 s by default: so long we would wait for a coordinator that hangs.
                    "socket.timeout.ms": stall_detector.WORKER_SESSION_MS,
                    "heartbeat.interval.ms": _HEARTBEAT_MS,
                    "max.poll.interval.ms": 60_000,
                }
            )
        )

    def _join(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self, timeout: float) -> None:
        """Take part in the group for up to `timeout` seconds; `slots` is up to date afterwards."""
        if self._rotation.spent(self._consumer):  # other certificate files: only a new client reads them
            renewed = self._rotation.replace_client(self._made)
            if renewed is not None:
                self._consumer.close()  # gives up its slots
                self._rotation, self._consumer = renewed
                self._join()
        message = self._consumer.poll(timeout)
        error = message.error() if message is not None else None
        if error is not None:
            log.warning("membership", extra={"reason": error.str()})

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.has_joined = True
        at_end = [TopicPartition(part.topic, part.partition, OFFSET_END) for part in partitions]
        consumer.incremental_assign(at_end)
        try:
            consumer.pause(at_end)
        except KafkaException as error:
            log.warning("pause refused", extra={"reason": str(error)})
        self.slots |= {part.partition for part in partitions}
        log.info("slots", extra={"slots": sorted(self.slots)})

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {part.partition for part in partitions}
        self.slots -= gone
        self._on_revoked(gone)
        consumer.incremental_unassign(partitions)
        log.info("slots", extra={"slots": sorted(self.slots)})

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("slots lost", extra={"slots": sorted(part.partition for part in partitions)})
        self._revoked(consumer, partitions)
