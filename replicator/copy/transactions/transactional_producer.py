"""One transactional id: its producer id and epoch, its sequence numbers, and its coordinator.

Nothing is ever guessed and nothing is resent: whatever leaves the outcome of a request open raises, and the only way
on is `begin`, which makes the coordinator finish what was open and fences everybody who was here before.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.wire import error_codes
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch, TransactionWire
from watershed.replicator.batch.header_rewrite import SEQUENCE_SPACE
from watershed.replicator.copy.transactions.produce_answers import COORDINATOR_MOVES, SessionLost, raise_for_session
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.recovery.log_inspection import BrokerAddress

TopicIdPartition = tuple[uuid.UUID, int]  # topic id and partition

# How long a transaction of ours may stay open behind a worker that died: so long read_committed readers of its
# partitions wait at most, unless a successor ends it before. Above the time a Produce may take, far above a commit.
_TRANSACTION_TIMEOUT_MS: Final = 30_000
COORDINATOR_PATIENCE_S: Final = 20.0  # for a coordinator that is busy, loading or moving
COORDINATOR_PAUSE_S: Final = 0.02  # between two questions to it

NO_PRODUCER: Final = ProducerIdAndEpoch(-1, -1)
TransactionConnect = Callable[[BrokerAddress | None], TransactionWire]  # None: any broker


@dataclass(slots=True)
class TransactionalProducer:
    """`bump` is TV2: every transaction has its own epoch, and sequences begin at 0. `connect` raises Unreachable."""

    transactional_id: str
    connect: TransactionConnect
    bump: bool
    identity: ProducerIdAndEpoch = NO_PRODUCER
    pause_s: float | None = None  # instead of _PAUSE_S
    timeout_ms: int = _TRANSACTION_TIMEOUT_MS
    _coordinator: TransactionWire | None = None
    _sequences: dict[TopicIdPartition, int] = field(default_factory=dict)

    def begin(self) -> None:
        """InitProducerId. When it returns, no transaction of this id is open and all before us are fenced.

        Raises SessionLost, ClusterError.
        """
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        while True:
            error, identity = self._coordinating().init_producer(self.transactional_id, self.timeout_ms)
            if error == error_codes.NONE and identity.producer_id >= 0:
                self.identity = identity
                self._sequences.clear()
                return
            self._wait(error, "InitProducerId", deadline)

    def sequence(self, place: TopicIdPartition, records: int) -> int:
        """The base sequence of the next batch for a partition; call it once a batch, in the order of sending."""
        first = self._sequences.get(place, 0)
        self._sequences[place] = (first + records) % SEQUENCE_SPACE
        return first

    def add(self, partitions: tuple[tuple[str, int], ...]) -> None:
        """TV1: make partitions part of the transaction before anything is written to them."""
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        while True:
            answers = self._coordinating().add_partitions(self.transactional_id, self.identity, partitions)
            errors = [error for error in answers.values() if error] if len(answers) == len(partitions) else [-1]
            if not errors:
                return
            telling = [error for error in errors if error != error_codes.OPERATION_NOT_ATTEMPTED] or errors
            if telling[0] != error_codes.CONCURRENT_TRANSACTIONS:
                raise_for_session(telling[0], "AddPartitionsToTxn", self.transactional_id)
                name = error_codes.describe_error_code(telling[0])
                raise SessionLost(Reinspect(f"the target answers {name} to AddPartitionsToTxn"), telling[0])
            self._wait(telling[0], "AddPartitionsToTxn", deadline)

    def add_group(self, group: str) -> int:
        """TV1: make positions of a group part of the transaction. → NONE, or an error of the group, which leaves the
        transaction as it was. Raises SessionLost, ClusterError."""
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        while True:
            error = self._coordinating().add_group(self.transactional_id, self.identity, group)
            if error in (error_codes.NONE, error_codes.GROUP_AUTHORIZATION_FAILED, error_codes.INVALID_GROUP_ID):
                return error
            self._wait(error, "AddOffsetsToTxn", deadline)

    def end(self, *, commit: bool) -> None:
        """End the open transaction. Raises SessionLost or ClusterError when it is not known to have ended this way."""
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        while True:
            error, identity = self._coordinating().end_transaction(
                self.transactional_id, self.identity, commit=commit, bump=self.bump
            )
            if error == error_codes.NONE:
                break
            if error != error_codes.CONCURRENT_TRANSACTIONS:  # the only answer that says: not yet, ask me again
                raise_for_session(error, "EndTxn", self.transactional_id)
                name = error_codes.describe_error_code(error)
                raise SessionLost(Reinspect(f"the target answers {name} to EndTxn"), error)
            self._wait(error, "EndTxn", deadline)
        if self.bump:
            self.identity = identity
            self._sequences.clear()

    def forget_sent(self) -> None:
        """TV2: the first requests of the transaction were all turned away before anything was written."""
        self._sequences.clear()

    def close(self) -> None:
        """Close the connection to the coordinator."""
        if self._coordinator is not None:
            with suppress(OSError):
                self._coordinator.close()
            self._coordinator = None

    def _coordinating(self) -> TransactionWire:
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        while self._coordinator is None:
            asked = self.connect(None)
            try:
                error, address = asked.find_coordinator(self.transactional_id)
            finally:
                asked.close()
            if error == error_codes.NONE:
                self._coordinator = self.connect(BrokerAddress(*address))
            else:
                self._wait(error, "FindCoordinator", deadline)
        return self._coordinator

    def _wait(self, error: int, doing: str, deadline: float) -> None:
        """Before asking again; raises where that would not help."""
        raise_for_session(error, doing, self.transactional_id)
        if error == error_codes.INVALID_TRANSACTION_TIMEOUT:
            reason = f"transaction.max.timeout.ms of the target is below {self.timeout_ms}; raise it"
            raise SessionLost(Reinspect(reason), error)
        if error not in COORDINATOR_MOVES | {error_codes.CONCURRENT_TRANSACTIONS} or time.monotonic() > deadline:
            name = error_codes.describe_error_code(error)
            raise SessionLost(Reinspect(f"the target answers {name} to {doing}"), error)
        if error in COORDINATOR_MOVES:
            self.close()
        time.sleep(COORDINATOR_PAUSE_S if self.pause_s is None else self.pause_s)
