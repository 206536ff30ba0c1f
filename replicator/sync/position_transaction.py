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
from typing import Any, Final

from clusters.errors import ClusterError, RequestRefused, Unauthorised
from clusters.group_offsets import COORDINATOR_WAIT_S, CommittedPosition, GroupOffsets
from clusters.topic_partition import TopicPartition
from clusters.wire import error_codes
from clusters.wire.versions import Api
from replicator.copy.transactions.produce_answers import SessionLost, raise_for_session
from replicator.copy.transactions.transactional_producer import TransactionalProducer, TransactionConnect
from replicator.partition_states import Halt, Reinspect

# A consumer that begins at the target waits at most so long, and until its coordinator looks for such transactions
# (10 s), if a worker dies between append and end. Some 10 ms lie between them.
_TIMEOUT_MS: Final = 15_000
_SETTLED_S: Final = 10.0  # for the markers of a transaction that has ended to reach the groups' coordinators
_PAUSE_S: Final = 0.02
# They concern one position, and leave the transaction as it is.
_OF_A_POSITION: Final = frozenset(
    {
        error_codes.UNKNOWN_TOPIC_OR_PARTITION,
        error_codes.OFFSET_METADATA_TOO_LARGE,
        error_codes.INVALID_COMMIT_OFFSET_SIZE,
        error_codes.TOPIC_AUTHORIZATION_FAILED,
        error_codes.GROUP_AUTHORIZATION_FAILED,
    }
)


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

    def begin(self) -> None:
        """When it returns, no transaction of the flow's group sync is open, and all before us can end none."""
        self._producer.begin()
        self._has_begun = False

    def append(self, group: str, positions: Mapping[TopicPartition, CommittedPosition]) -> dict[TopicPartition, str]:
        """Gives the positions their place in the group's log. They do not count yet. → why not, by partition.

        Brokers take it for a live group, too (Kafka's rule for transactions without a member): look at the group's
        state behind it.
        """
        code = self._producer.add_group(group)
        if code != error_codes.NONE:
            return dict.fromkeys(positions, self._refusal(code))
        self._has_begun = True
        until = time.monotonic() + COORDINATOR_WAIT_S
        while True:
            codes = self._append_now(group, positions)
            if not error_codes.COORDINATOR_MOVING_CODES & set(codes.values()) or time.monotonic() > until:
                break
            self._target.forget(group)
        for code in codes.values():
            raise_for_session(code, "TxnOffsetCommit", self._producer.transactional_id)
            if code not in _OF_A_POSITION:
                name = error_codes.describe_error_code(code)
                raise SessionLost(Reinspect(f"the target answers {name} to TxnOffsetCommit"), code)
        return {place: self._refusal(code) for place, code in codes.items()}

    def end(self, *, commit: bool) -> None:
        """The positions count from now on, or never."""
        if self._has_begun:  # a transaction without any group is none to its coordinator
            self._producer.end(commit=commit)
            self._has_begun = False

    def close(self) -> None:
        """Closes the connection to the transaction's coordinator."""
        self._producer.close()

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


def wait_until_settled(target: GroupOffsets, written: Mapping[str, Collection[TopicPartition]]) -> None:
    """The end of a transaction reaches the groups' coordinators a moment later: until then others are told that it is
    open, or nothing where a group had no position yet. written: partitions by group."""
    until = time.monotonic() + _SETTLED_S
    while time.monotonic() < until:
        held = target.held(written)
        if all(set(places) <= set(held[group].positions) or held[group].error for group, places in written.items()):
            return
        time.sleep(_PAUSE_S)


def build_session_error(lost: SessionLost, flow: str, alias: str) -> ClusterError:
    """What a lost session means for the group sync of a flow."""
    if isinstance(lost.trouble, Halt):
        return Unauthorised(
            f"flow {flow} may not commit positions of groups at {alias}: {lost}. `topology acls` names the right",
            alias=alias,
        )
    refused = RequestRefused(
        f"flow {flow} committed no positions of groups at {alias}: {lost}. The next round tries again", alias=alias
    )
    refused.code = lost.code
    return refused
