"""Which broker of the source a partition is fetched from: its leader, or a follower in the workers' rack (KIP-392).

A Fetch tells the leader our rack. A leader whose brokers have a rack-aware `replica.selector.class` answers with the
broker to read from instead, and without records. Nothing that a follower says is taken for a loss: it may lag behind
the leader, so each of its errors and each divergence that it reports sends the partition back to the leader, which is
then asked the same.

Source: apache/kafka ReplicaManager.findPreferredReadReplica, AbstractFetch.handlePartitionResponse; KIP-392.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from watershed.clusters.wire.messages import FetchedPartition

# Kafka's consumers ask the leader again after `metadata.max.age.ms`, five minutes by default. A follower knows the
# log's end only as far as it has come itself; a minute bounds for how long a lag may be told too small.
FOLLOWER_LEASE_S: Final = 60.0
# A leader goes on naming a follower that has died until the controller notices (broker.session.timeout.ms, 9 s), and
# one that lags until it leaves the in-sync replicas (replica.lag.time.max.ms, 30 s).
LEADER_ONLY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """follower: id of the broker that is read instead of the leader; None: the leader is read. tells_rack: whether the
    leader is told our rack. until: when it is told again (monotonic seconds)."""

    follower: int | None = None
    tells_rack: bool = True
    until: float = math.inf

    def __str__(self) -> str:
        """For people; "" for the leader."""
        return "" if self.follower is None else f"read from broker {self.follower}, the follower in the workers' rack"


READ_LEADER: Final = ReplicaChoice()


def choose_replica(choice: ReplicaChoice, answer: FetchedPartition, now: float) -> ReplicaChoice:
    """The choice after an answer; the same one where the answer is to be used. now: monotonic seconds."""
    if choice.follower is not None and (answer.error or answer.diverging_epoch is not None):
        return leave_follower(now)
    if answer.preferred < 0 or answer.error:
        return choice
    if answer.preferred == choice.follower:  # it names itself and sends nothing
        return leave_follower(now)
    return ReplicaChoice(answer.preferred, until=now + FOLLOWER_LEASE_S)


def leave_follower(now: float) -> ReplicaChoice:
    """The choice after a follower was of no help: the leader alone, for a while. now: monotonic seconds."""
    return ReplicaChoice(tells_rack=False, until=now + LEADER_ONLY_S)
