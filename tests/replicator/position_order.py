"""What the group sync relies on at a broker: of all positions the one that was appended last counts (decision 0092)."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest

from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.copy.transactions.produce_answers import SessionLost
from watershed.replicator.sync.position_transaction import PositionTransaction, wait_until_settled


def check_order_of_positions(settings: ConnectionSettings, group: str, topic: str) -> None:
    """A position in a transaction counts from its end on, and only where none was appended behind it."""
    place, connect = TopicPartition(topic, 0), partial(open_connection, settings)
    with GroupOffsets(settings) as groups, closing(PositionTransaction(groups, group, connect)) as worker:

        def held() -> int | None:
            wait_until_settled(groups, {group: [place]}, committed=True)
            found = groups.held([group])[group].positions.get(place)
            return None if found is None else found.offset

        def append(offset: int) -> None:
            assert worker.append(group, {place: CommittedPosition(offset, "ours")}) == {}

        assert groups.has_transactions()
        worker.begin()
        append(10)
        assert groups.held([group], stable=False)[group].positions == {}
        worker.end(commit=True)
        assert held() == 10
        append(12)
        assert groups.held([group])[group].unstable == {place}
        assert groups.commit(group, {place: CommittedPosition(11)}) == {}
        assert groups.held([group], stable=False)[group].positions[place].offset == 11
        worker.end(commit=True)
        assert held() == 11  # it stands behind 12, although it came before the end of that transaction
        append(13)
        worker.end(commit=False)
        assert held() == 11
        append(14)
        with closing(PositionTransaction(groups, group, connect)) as successor:
            successor.begin()
            assert held() == 11
            with pytest.raises(SessionLost):
                worker.end(commit=True)
        assert held() == 11
