"""Which topic has which id, for the requests that name topics: Fetch takes ids from Kafka 3.1 on, Produce from 4.1.

Everything else here knows a topic by its id (KIP-516), since a topic that is deleted and created again has another one.
Kafka cannot rename a topic, so an id never gets another name. When a topic is made anew, its name belongs to the new
id, and the old id has none.
"""

from __future__ import annotations

import uuid

_names: dict[uuid.UUID, tuple[str, str]] = {}  # id → cluster id, name
_ids: dict[tuple[str, str], uuid.UUID] = {}  # the other way: the id that was told last


def remember_topic(cluster_id: str, name: str, topic_id: uuid.UUID) -> None:
    """What a cluster said just now of a topic that exists."""
    known = cluster_id, name
    _ids[known] = topic_id  # first: another thread may look for the name at once
    _names[topic_id] = known


def find_topic_name(topic_id: uuid.UUID) -> str | None:
    """The name of a topic that this process has met; None for any other, and for one that has another id by now."""
    known = _names.get(topic_id)
    return known[1] if known is not None and _ids[known] == topic_id else None
