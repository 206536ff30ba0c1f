"""What only raw requests tell of a cluster: log sizes, groups of every type with their members, client quotas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kio.schema.types import GroupId

from clusters.errors import RequestRefused, Unauthorised
from clusters.listing import GroupListing
from clusters.names import TopicPartition
from clusters.wire import codes
from clusters.wire.inquiry import Inquiry

DESCRIBE_GROUPS, LIST_GROUPS, DESCRIBE_LOG_DIRS, DESCRIBE_CLIENT_QUOTAS = 15, 16, 35, 48
# group type → (the request that describes it, its field of ids); classic groups answer to DescribeGroups
_DESCRIBERS = {
    "classic": (DESCRIBE_GROUPS, "groups"),
    "consumer": (69, "group_ids"),
    "share": (77, "group_ids"),
    "streams": (89, "group_ids"),
}
_GROUPS_A_REQUEST = 200


def log_sizes(inquiry: Inquiry) -> dict[TopicPartition, int]:
    """Bytes of every log on this broker, leader or not. Raises Unauthorised without DESCRIBE on the cluster."""
    answer = inquiry.ask(DESCRIBE_LOG_DIRS, topics=None)
    inquiry.check(int(getattr(answer, "error_code", codes.NONE)), "reading log sizes")
    if not answer.results:  # versions 0 to 2 have no error code: a refusal is an empty answer
        raise Unauthorised(f"cluster {inquiry.alias} refused reading log sizes (an empty answer)", alias=inquiry.alias)
    return {
        TopicPartition(str(topic.name), int(part.partition_index)): int(part.partition_size)
        for directory in answer.results
        for topic in directory.topics
        for part in topic.partitions
        if not part.is_future_key
    }


def groups(inquiry: Inquiry) -> list[GroupListing]:
    """The groups that this broker coordinates, with their members counted; members None where it does not show them."""
    answer = inquiry.ask(LIST_GROUPS, states_filter=(), types_filter=())
    inquiry.check(int(answer.error_code), "listing groups")
    by_type: dict[str, list[str]] = defaultdict(list)
    states: dict[str, str] = {}
    for group in answer.groups:
        kind = str(getattr(group, "group_type", "")).lower()
        by_type[kind if kind in _DESCRIBERS else "classic"].append(str(group.group_id))
        states[str(group.group_id)] = str(getattr(group, "group_state", ""))
    listed = []
    for kind, ids in sorted(by_type.items()):
        described = _described(inquiry, kind, ids)
        for each in ids:
            state, members = described.get(each, (states[each], None))
            listed.append(GroupListing(each, states[each] or state, kind, members))
    return [group for group in listed if group.state != "Dead"]


def quotas(inquiry: Inquiry) -> dict[str, dict[str, float]]:
    """Entity (`user=app`, `user=<default>,client-id=web`) → limit → value. Raises Unauthorised."""
    answer = inquiry.ask(DESCRIBE_CLIENT_QUOTAS, components=(), strict=False)
    inquiry.check(int(answer.error_code), "reading client quotas")
    return {
        ",".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in entry.entity): {
            str(limit.key): float(limit.value) for limit in entry.values
        }
        for entry in answer.entries or ()
    }


def _described(inquiry: Inquiry, kind: str, ids: list[str]) -> dict[str, tuple[str, int]]:
    """Group → (state, members), of those that this broker describes to us."""
    api_key, field = _DESCRIBERS[kind]
    found: dict[str, tuple[str, int]] = {}
    for some in _batches(ids):
        try:
            question: dict[str, Any] = {field: some, "include_authorized_operations": False}
            answer = inquiry.ask(api_key, **question)
        except RequestRefused:  # the broker has such groups but no request that we both know
            return found
        for group in answer.groups:
            if int(group.error_code) == codes.NONE:
                found[str(group.group_id)] = str(group.group_state), len(group.members)
    return found


def _batches(ids: list[str]) -> Iterable[tuple[GroupId, ...]]:
    for start in range(0, len(ids), _GROUPS_A_REQUEST):
        yield tuple(GroupId(each) for each in ids[start : start + _GROUPS_A_REQUEST])
