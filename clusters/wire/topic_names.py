"""Which topic has which id, for the requests that name topics: Fetch takes ids from Kafka 3.1 on, Produce from 4.1.

Everything else here knows a topic by its id (KIP-516), since a topic that is deleted and created again has another one.
Kafka cannot rename a topic, so an id never gets another name. When a topic is made anew, its name belongs to the new
id, and the old id has none.

Brokers before 2.8, and newer ones with an older inter-broker protocol, give no ids. A topic there gets a *stand-in id*,
made of the cluster's id and the topic's name: it cannot tell that a topic was made anew. Workers compare records
instead (`replicator.recovery.source_comparison`).
"""

from __future__ import annotations

import base64
import uuid
from typing import Final

_STAND_INS: Final = uuid.UUID("7d0c7a0e-5b4d-4c39-9f0e-3c1a27a7f6a1")  # namespace of ours (RFC 9562, 5.5)

_names: dict[uuid.UUID, tuple[str, str]] = {}  # id → cluster id, name
_ids: dict[tuple[str, str], uuid.UUID] = {}  # the other way: the id that was told last


def build_stand_in_id(cluster_id: str, name: str) -> uuid.UUID:
    """The id that stands in for the one that a topic does not have. The same in every process."""
    return uuid.uuid5(_STAND_INS, f"{cluster_id}/{name}")


def is_stand_in_id(topic_id: uuid.UUID) -> bool:
    """True for an id of ours. Kafka's own are random (UUID version 4, org.apache.kafka.common.Uuid)."""
    return topic_id.version == 5


def print_topic_id(topic_id: uuid.UUID) -> str:
    """As Kafka's tools and logs have it (org.apache.kafka.common.Uuid): base64url without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def remember_topic(cluster_id: str, name: str, topic_id: uuid.UUID) -> None:
    """What a cluster said just now of a topic that exists."""
    known = cluster_id, name
    _ids[known] = topic_id  # first: another thread may look for the name at once
    _names[topic_id] = known


def find_topic_name(topic_id: uuid.UUID, cluster_id: str | None = None) -> str | None:
    """The name of a topic that this process has met; None for any other, for one that has another id by now, and for
    one of a cluster other than `cluster_id`, where that is given."""
    known = _names.get(topic_id)
    if known is None or _ids[known] != topic_id or cluster_id not in (None, known[0]):
        return None
    return known[1]
