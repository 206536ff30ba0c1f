"""One broker's positions of groups in memory, request by request: plain commits, and commits in transactions.

Rules: GroupMetadata and TransactionMetadata of Kafka, which `check_order_of_positions` tries on real brokers. Of the
positions of a partition the one that was appended last counts, if its transaction has been committed. A live group
refuses commits from outside, but takes those in a transaction without a member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from watershed.clusters.group_offsets import CommittedOffsets, CommittedPosition, ListedGroup
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.clusters.wire.versions import Api

GROUP = "billing"


@dataclass(frozen=True)
class Appended:
    place: TopicPartition
    position: CommittedPosition
    epoch: int | None  # of the transaction; None: a plain commit


@dataclass
class OffsetsBroker:
    """It has one group. Plays `GroupOffsets` and the connections to both coordinators. before: called with the name of
    each request before it is carried out; what it raises is what the asker gets. It knows nothing of other groups but
    what it answers to their commits: `refuses`, by group."""

    transactions: bool = True
    log: list[Appended] = field(default_factory=list)
    ended: dict[int, bool] = field(default_factory=dict)  # epoch → committed
    alive: bool = False
    may_commit: bool = True  # READ on the group
    moves: bool = False  # the group's coordinator: nobody lists it
    refuses: dict[str, int] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)  # groups of commits outside of transactions
    epoch: int = 0
    open: bool = False
    before: Callable[[str], None] = lambda name: None
    settings: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(alias="b"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    # What others see and do, without a request of the worker's.

    def current(self) -> CommittedOffsets:
        counting = [each for each in self.log if each.epoch is None or self.ended.get(each.epoch)]
        positions = {each.place: each.position for each in counting}
        pending = {each.place for each in self.log if each.epoch is not None and each.epoch not in self.ended}
        return CommittedOffsets(positions, frozenset(pending))

    def put(self, place: TopicPartition, offset: int, text: str = "") -> None:
        self.log.append(Appended(place, CommittedPosition(offset, text), None))

    def abort_open(self) -> None:
        """A transaction that nobody ends: its coordinator does, and takes no more of its epoch."""
        if self.open:
            self.ended[self.epoch], self.open = False, False
            self.epoch += 1

    # GroupOffsets

    def has_transactions(self) -> bool:
        return self.transactions

    def held(self, groups, *, stable=True):
        self.before("held")
        now = self.current()
        positions = {place: at for place, at in now.positions.items() if not stable or place not in now.unstable}
        found = CommittedOffsets(positions, now.unstable if stable else frozenset())
        return {group: found if group == GROUP else CommittedOffsets() for group in groups}

    def find_listed(self, groups):
        self.before("listed")
        state = "Stable" if self.alive else "Empty"
        return {} if self.moves else {group: ListedGroup(group, state) for group in groups}

    def commit(self, group, positions):
        self.before("commit")
        if self.alive:
            return dict.fromkeys(positions, "the group has come alive")
        self.plain.append(group)
        self.log += [Appended(place, position, None) for place, position in positions.items() if group == GROUP]
        return {}

    def coordinator(self, group):
        return self

    def forget(self, group) -> None:
        return None

    # Connections

    def close(self) -> None:
        return None

    def ask(self, api: Api, **values):
        assert api is Api.TXN_OFFSET_COMMIT
        self.before("append")
        fenced = not self.open or values["producer_epoch"] != self.epoch
        refused = self.refuses.get(values["group_id"], error_codes.NONE)
        for topic in values["topics"]:
            for part in topic["partitions"]:
                place = TopicPartition(topic["name"], part["partition_index"])
                position = CommittedPosition(part["committed_offset"], part["committed_metadata"])
                if not fenced and not refused and values["group_id"] == GROUP:
                    self.log.append(Appended(place, position, self.epoch))
        code = error_codes.INVALID_PRODUCER_EPOCH if fenced else refused
        topics = [
            SimpleNamespace(
                name=topic["name"],
                partitions=[
                    SimpleNamespace(partition_index=part["partition_index"], error_code=code)
                    for part in topic["partitions"]
                ],
            )
            for topic in values["topics"]
        ]
        return SimpleNamespace(topics=topics)

    def find_coordinator(self, transactional_id):
        self.before("find_coordinator")
        return error_codes.NONE, ("127.0.0.1", 1)

    def init_producer(self, transactional_id, timeout_ms):
        self.before("init_producer")
        self.abort_open()
        self.epoch += 1
        return error_codes.NONE, ProducerIdAndEpoch(7, self.epoch)

    def add_group(self, transactional_id, producer, group):
        self.before("add_group")
        if not self.may_commit:
            return error_codes.GROUP_AUTHORIZATION_FAILED
        if producer.epoch != self.epoch:
            return error_codes.PRODUCER_FENCED
        self.open = True
        return error_codes.NONE

    def end_transaction(self, transactional_id, producer, *, commit, bump):
        self.before("end")
        if producer.epoch != self.epoch or not self.open:
            return error_codes.PRODUCER_FENCED, producer
        self.ended[self.epoch], self.open = commit, False
        return error_codes.NONE, producer
