"""Consumer groups in memory: members, state, committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

from watershed.clusters.cluster_protocol import GroupState
from watershed.clusters.librdkafka import build_group_not_empty_error
from watershed.clusters.topic_partition import TopicPartition


class FakeGroups:
    """A group exists once somebody joined it or committed for it. committed: offsets by group, to look at and to tamper
    with."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self._members: dict[str, int] = {}  # of groups that somebody has joined

    def describe(self, group_id: str) -> GroupState:
        """Returns Stable with members, Empty without, Dead for a group that nobody joined or committed for."""
        offsets, members = self.committed.get(group_id), self._members.get(group_id)
        if offsets is None and members is None:
            return GroupState(group_id, "Dead", "", 0)
        protocol = "" if members is None else "consumer"
        return GroupState(group_id, "Stable" if members else "Empty", protocol, members or 0, dict(offsets or {}))

    def join(self, group_id: str, members: int = 1) -> None:
        """So many consumers more."""
        self._members[group_id] = self._members.get(group_id, 0) + members

    def leave(self, group_id: str) -> None:
        """All consumers leave; offsets stay."""
        self._members[group_id] = 0

    def commit_as_member(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """What a consumer of the group commits."""
        self.committed.setdefault(group_id, {}).update(offsets)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """A commit from outside. Raises `GroupNotEmpty`, as the broker's UNKNOWN_MEMBER_ID does."""
        self._check_empty(group_id)
        self.commit_as_member(group_id, offsets)

    def delete(self, group_id: str) -> None:
        """DeleteGroups: the group and its offsets go. Raises `GroupNotEmpty`, as the broker's NON_EMPTY_GROUP does."""
        self._check_empty(group_id)
        self.committed.pop(group_id, None)
        self._members.pop(group_id, None)

    def forget_topic(self, topic: str) -> None:
        """Offsets of a deleted topic go with it."""
        for group, offsets in self.committed.items():
            self.committed[group] = {key: offset for key, offset in offsets.items() if key.topic != topic}

    def _check_empty(self, group_id: str) -> None:
        if self._members.get(group_id):
            raise build_group_not_empty_error(self._alias, group_id)
