"""Who writes a restored partition, and with which sequence number it goes on.

One transactional id a partition gives every run the same producer id and epoch, so that the broker compares sequence
numbers with the log's end: of two requests for one place, whoever sent them, the log takes one. Nothing is written in a
transaction, which would take offsets. A broker forgets a producer by the time of its records (see `young` in the
glossary); a run that follows another one then waits until nothing of that one can be under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from watershed.clusters.errors import Unreachable
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.open_transactions import describe_transactions
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.clusters.wire.versions import Api
from watershed.replicator.batch.header_rewrite import SEQUENCE_SPACE
from watershed.replicator.copy.aligned.target_log import TargetLog
from watershed.replicator.copy.transactions.produce_answers import COORDINATOR_MOVES
from watershed.replicator.copy.transactions.transactional_producer import COORDINATOR_PATIENCE_S, TransactionalProducer
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.spark.errors import NotRestorable
from watershed.topology.delivery_guarantee import LOG_SETTLE_S

RESTORE_ID_PREFIX: Final = "watershed-restore|"
_UNKNOWN_ID: Final = 105  # TRANSACTIONAL_ID_NOT_FOUND
_PAUSE_S: Final = 0.2
_LOOK_S: Final = 1.0

OpenConnection = Callable[[BrokerAddress | None], Connection]


@dataclass(frozen=True, slots=True)
class RestoreProducer:
    """next_sequence: of the record behind the log's end. newest: time (ms) of the newest record that the leader has of
    this producer, -1 where it remembers nothing. is_known: an earlier run had this producer, too."""

    identity: ProducerIdAndEpoch
    next_sequence: int
    newest: int
    is_known: bool

    @property
    def may_be_followed(self) -> bool:
        """True if requests of an earlier run could still be appended without the broker noticing."""
        return self.is_known and self.newest < 0


def require_producers_told(connect: OpenConnection, alias: str) -> None:
    """Raises NotRestorable for a cluster that does not tell what it has of a producer."""
    with closing(connect(None)) as broker:
        if not broker.knows(Api.DESCRIBE_TRANSACTIONS, 0):
            raise NotRestorable(
                f"cluster {alias} is older than Kafka 3.0 and does not tell who wrote to its logs "
                "(DescribeTransactions), so a restore that was killed could not go on. Restore to a newer cluster"
            )


def take_producer(log: TargetLog, connect: OpenConnection, bump: bool) -> RestoreProducer:
    """The producer of a partition, with what its leader remembers of it. bump: transaction.version is 2 or more.

    Raises NotRestorable where a newer producer epoch writes there, SessionLost, ClusterError.
    """
    name = f"{RESTORE_ID_PREFIX}{log.topic}|{log.partition}"
    known = _find_known(name, connect)
    identity = known if known is not None else _begin(name, connect, bump)
    error, states = log.leader().describe_producers(log.topic, log.partition)
    if error:
        raise log.refused("DescribeProducers", error)
    state = next((each for each in states if each.producer_id == identity.producer_id), None)
    if state is not None and state.epoch > identity.epoch:
        raise NotRestorable(f"{log}: somebody else writes as {name} now. Let one restore run at a time")
    if state is None or state.epoch < identity.epoch or state.last_sequence < 0:
        return RestoreProducer(identity, 0, -1, known is not None)
    return RestoreProducer(identity, (state.last_sequence + 1) % SEQUENCE_SPACE, state.last_timestamp, True)


def wait_for_quiet_logs(logs: Iterable[TargetLog], report: Callable[[str], None] = lambda _: None) -> None:
    """Waits until each log has stood still for so long that nothing can be under way to it. Raises ClusterError."""
    waiting = list(logs)
    if not waiting:
        return
    report(f"an earlier run may have requests under way; waiting {LOG_SETTLE_S:.0f} s for {len(waiting)} logs")
    ends = [log.appended() for log in waiting]
    since = time.monotonic()
    while time.monotonic() - since < LOG_SETTLE_S:
        time.sleep(_LOOK_S)
        now = [log.appended() for log in waiting]
        if now != ends:
            ends, since = now, time.monotonic()


def _begin(name: str, connect: OpenConnection, bump: bool) -> ProducerIdAndEpoch:
    producer = TransactionalProducer(name, connect, bump)
    try:
        producer.begin()
        return producer.identity
    finally:
        producer.close()


def _find_known(name: str, connect: OpenConnection) -> ProducerIdAndEpoch | None:
    """What the coordinator has under this id; None where it was never used. Raises ClusterError."""
    deadline = time.monotonic() + COORDINATOR_PATIENCE_S
    while True:
        with closing(connect(None)) as broker:
            error, address = broker.find_coordinator(name)
        if not error:
            with closing(connect(BrokerAddress(*address))) as coordinator:
                error, found = describe_transactions(coordinator, [name])[name]
                if error == _UNKNOWN_ID:
                    return None
                if not error:
                    return found.producer
                if error not in COORDINATOR_MOVES:
                    coordinator.check(error, f"describing transactional id {name}")
        elif error not in COORDINATOR_MOVES:
            with closing(connect(None)) as broker:
                broker.check(error, f"looking for the coordinator of transactional id {name}")
        if time.monotonic() > deadline:
            raise Unreachable(
                f"the coordinator of transactional id {name} answers {error_codes.describe_error_code(error)}"
            )
        time.sleep(_PAUSE_S)
