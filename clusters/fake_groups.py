"""Consumer groups in memory: members, state, committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.cluster_protocol import GroupState
from clusters.librdkafka import build_group_not_empty_error
from clusters.topic_partition import TopicPartition


@dataclass(slots=True)
class _Members:
    protocol_type: str = ""
    members: int = 0
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class FakeGroups:
    """A group exists once somebody joined it or committed for it."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._groups: dict[str, _Members] = {}

    def describe(self, group_id: str) -> GroupState:
        """Returns Stable with members, Empty without, Dead for a group that nobody joined or committed for."""
        found = self._groups.get(group_id)
        if found is None:
            return GroupState(group_id, "Dead", "", 0)
        state = "Stable" if found.members else "Empty"
        return GroupState(group_id, state, found.protocol_type, found.members, dict(found.offsets))

    def join(self, group_id: str, members: int = 1) -> None:
        """So many consumers more."""
        group = self._groups.setdefault(group_id, _Members())
        group.protocol_type = "consumer"
        group.members += members

    def leave(self, group_id: str) -> None:
        """All consumers leave; offsets stay."""
        self._groups[group_id].members = 0

    def commit_as_member(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """What a consumer of the group commits."""
        self._groups.setdefault(group_id, _Members()).offsets.update(offsets)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """A commit from outside. Raises `GroupNotEmpty`, as the broker's UNKNOWN_MEMBER_ID does."""
        group = self._groups.get(group_id)
        if group is not None and group.members:
            raise build_group_not_empty_error(self._alias, group_id)
        self.commit_as_member(group_id, offsets)

    def forget_topic(self, topic: str) -> None:
        """Offsets of a deleted topic go with it."""
        for group in self._groups.values():
            group.offsets = {key: offset for key, offset in group.offsets.items() if key.topic != topic}
