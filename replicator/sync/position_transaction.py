"""Positions of groups that count only if nobody else has committed since they were looked at.

Brokers refuse no commit because of what a group holds. But they keep an order. A position that is committed in a
transaction has its place in the group's log from the moment when it is appended, and counts from the moment when the
transaction ends. Of all positions of a partition the one that was appended last counts, whether in a transaction or not
(Kafka: `GroupMetadata.completePendingTxnOffsetCommit`, `OffsetMetadataManager.replayEndTransactionMarker`). So append,
then look, then end the transaction (decision 0092):

- What others committed before ours was appended is seen by the look, and the transaction is aborted.
- What others commit later stands behind ours and stays, whenever our transaction ends.

So a process that stands still at any point, or a request that arrives late, sets nobody back. A transaction that nobody
ends is aborted by the next `begin` for the same flow, or by its coordinator after `_TIMEOUT_MS`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from watershed.clusters.errors import ClusterError, RequestRefused
from watershed.clusters.group_offsets import COORDINATOR_WAIT_S, CommittedPosition, GroupOffsets
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.versions import Api
from watershed.replicator.copy.transactions.produce_answers import SessionLost, is_fenced, raise_for_session
from watershed.replicator.copy.transactions.transactional_producer import TransactionalProducer, TransactionConnect
from watershed.replicator.partition_states import Reinspect

# A consumer that begins at the target waits at most so long, and until its coordinator looks for such transactions
# (10 s), if a worker dies between append and end. Some 10 ms lie between them.
_TIMEOUT_MS: Final = 15_000
_SETTLED_S: Final = 10.0  # for the markers of a transaction that has ended to reach the groups' coordinators
_PAUSE_S: Final = 0.02
# Answers to TxnOffsetCommit after which the transaction must not be committed: they are about the transaction, or do
# not tell whether the position was appended. All others are about the group or one position, which is not appended:
# one group must not stop the others.
_SPOILS: Final = error_codes.COORDINATOR_MOVING_CODES | {
    error_codes.UNKNOWN_SERVER_ERROR,
    error_codes.REQUEST_TIMED_OUT,
    error_codes.NOT_ENOUGH_REPLICAS,
    error_codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    error_codes.INVALID_TXN_STATE,
    error_codes.CONCURRENT_TRANSACTIONS,
    error_codes.TRANSACTION_ABORTABLE,
}


def build_group_sync_id(flow: str) -> str:
    """The transactional id under which a flow commits positions of groups. Nothing else may ever use it."""
    return f"watershed.{flow}.groups"


class PositionTransaction:
    """One transaction of a flow's group sync at the target. `target` is where positions are committed. Not thread-safe.

    Methods raise SessionLost where the outcome is open, or another worker has the transactional id, and ClusterError.
    """

    def __init__(self, target: GroupOffsets, flow: str, connect: TransactionConnect) -> None:
        self._target = target
        self._producer = TransactionalProducer(build_group_sync_id(flow), connect, bump=False, timeout_ms=_TIMEOUT_MS)
        self._has_begun = False
        self._is_committing = False
        self._begun_at = time.monotonic()

    def begin(self) -> None:
        """When it returns, no transaction of the flow's group sync is open, and all before us can end none."""
        self._producer.begin()
        self._has_begun = self._is_committing = False
        self._begun_at = time.monotonic()

    def append(self, group: str, positions: Mapping[TopicPartition, CommittedPosition]) -> dict[TopicPartition, str]:
        """Gives the positions their place in the group's log. They do not count yet. → why not, by partition.

        Brokers take it for a live group, too (Kafka's rule for transactions without a member): look at the group's
        state behind it.
        """
        try:
            self._target.coordinator(group)
        except RequestRefused as error:
            return dict.fromkeys(positions, str(error))
        code = self._producer.add_group(group)
        if code != error_codes.NONE:
            return dict.fromkeys(positions, self._refusal(code))
        self._has_begun = True
        try:
            codes = self._append_until_taken(group, positions)
        except RequestRefused as error:  # by now an earlier answer may have left open whether it was appended
            raise SessionLost(Reinspect(str(error))) from error
        for code in codes.values():
            raise_for_session(code, "TxnOffsetCommit", self._producer.transactional_id)
            if code in _SPOILS:
                name = error_codes.describe_error_code(code)
                raise SessionLost(Reinspect(f"the target answers {name} to TxnOffsetCommit"), code)
        return {place: self._refusal(code) for place, code in codes.items()}

    def end(self, *, commit: bool) -> None:
        """The positions count from now on, or never."""
        if self._has_begun:  # a transaction without any group is none to its coordinator
            self._has_begun, self._is_committing = False, commit
            self._producer.end(commit=commit)
            self._is_committing = False

    def close(self) -> None:
        """Aborts what is open, which nobody else would do for 15 s or more; closes the coordinator's connection."""
        try:
            if self._has_begun:
                with suppress(SessionLost, ClusterError, OSError):
                    self.end(commit=False)
        finally:
            self._producer.close()

    def explain(self, lost: SessionLost) -> str:
        """What a session that this transaction has lost means for its positions, for people."""
        why = str(lost)
        if is_fenced(lost) and time.monotonic() - self._begun_at > _TIMEOUT_MS / 1000:
            why = f"the transaction was over its time of {_TIMEOUT_MS // 1000} s, and the target aborted it"
        outcome = "it is not known whether this was committed" if self._is_committing else "nothing was committed"
        return f"{why}: {outcome} at {self._target.settings.alias} in this round"

    def _append_until_taken(
        self, group: str, positions: Mapping[TopicPartition, CommittedPosition]
    ) -> dict[TopicPartition, int]:
        until = time.monotonic() + COORDINATOR_WAIT_S
        while True:
            codes = self._append_now(group, positions)
            if not error_codes.COORDINATOR_MOVING_CODES & set(codes.values()) or time.monotonic() > until:
                return codes
            self._target.forget(group)

    def _append_now(
        self, group: str, positions: Mapping[TopicPartition, CommittedPosition]
    ) -> dict[TopicPartition, int]:
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for place, position in sorted(positions.items()):
            by_topic[place.topic].append(
                {
                    "partition_index": place.partition,
                    "committed_offset": position.offset,
                    "committed_metadata": position.metadata,
                }
            )
        producer_id, epoch = self._producer.identity
        answer = self._target.coordinator(group).ask(
            Api.TXN_OFFSET_COMMIT,
            transactional_id=self._producer.transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=tuple({"name": topic, "partitions": tuple(each)} for topic, each in by_topic.items()),
        )
        return {
            TopicPartition(str(topic.name), int(part.partition_index)): int(part.error_code)
            for topic in answer.topics
            for part in topic.partitions
            if int(part.error_code) != error_codes.NONE
        }

    def _refusal(self, code: int) -> str:
        alias = self._target.settings.alias
        return f"cluster {alias} refused a commit ({error_codes.describe_error_code(code)})"


def wait_until_settled(
    target: GroupOffsets, written: Mapping[str, Collection[TopicPartition]], *, committed: bool
) -> frozenset[str]:
    """Waits until no position of these is part of an open transaction, and (committed) all are there. → the groups of
    which this is not so in time, or not told.

    The end of a transaction reaches the groups' coordinators a moment later. Until then others are told that it is
    open, or nothing where a group had no position yet. And brokers before KAFKA-17507 was mended do not look at the
    epoch then: a late end of one transaction would be taken for that of the next. written: partitions by group.
    """
    until, left = time.monotonic() + _SETTLED_S, set(written)
    while left:
        held = target.held(left)
        left = {
            group
            for group in left
            if not held[group].error
            and (
                set(written[group]) & held[group].unstable
                or (committed and set(written[group]) - set(held[group].positions))
            )
        }
        if not left or time.monotonic() >= until:
            break
        time.sleep(_PAUSE_S)
    return frozenset(left)
