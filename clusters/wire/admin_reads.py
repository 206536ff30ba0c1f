"""What raw requests tell of a cluster, and librdkafka does not (or not well enough): log sizes, groups of every type
with their members, ACLs, client quotas, SCRAM users, topic configs with what they would be otherwise.

librdkafka 2.16 answers a DescribeAcls that the broker refuses with no bindings and no error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from kio.schema.types import GroupId
from kio.static.primitive import i8

from watershed.clusters.errors import RequestRefused, Unauthorised
from watershed.clusters.group_listing import GroupListing
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.versions import Api
from watershed.topology.inventory import InventoryAcl
from watershed.topology.quota_entity_text import render_quota_entity_text

QuotaEntity = tuple[
    tuple[str, str | None], ...
]  # of a quota: (("user", "ann"), ("client-id", None)); None is the default
SCRAM_MECHANISMS = ("UNKNOWN", "SCRAM-SHA-256", "SCRAM-SHA-512")  # org.apache.kafka.clients.admin.ScramMechanism
_TOPIC, _OWN_CONFIG = i8(2), 1  # ConfigResource.Type.TOPIC; DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG
_GROUP = i8(32)  # ConfigResource.Type.GROUP
_TOPICS_A_REQUEST = 100
_SECURITY_DISABLED = 54
_ANY, _LITERAL = i8(1), i8(3)
# org.apache.kafka.common.acl and .resource: the codes of AclOperation, AclPermissionType, ResourceType, PatternType
ACL_OPERATIONS = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
ACL_PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")
ACL_RESOURCES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
ACL_PATTERNS = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
# group type → (the request that describes it, its field of ids); classic groups answer to DescribeGroups
_DESCRIBERS = {
    "classic": (Api.DESCRIBE_GROUPS, "groups"),
    "consumer": (69, "group_ids"),
    "share": (77, "group_ids"),
    "streams": (89, "group_ids"),
}
_GROUPS_A_REQUEST = 200


def read_log_sizes(connection: Connection) -> dict[TopicPartition, int]:
    """Bytes of every log on this broker, leader or not. Raises Unauthorised without DESCRIBE on the cluster."""
    answer = connection.ask(Api.DESCRIBE_LOG_DIRS, topics=None)
    connection.check(int(getattr(answer, "error_code", error_codes.NONE)), "reading log sizes")
    if not answer.results:  # versions 0 to 2 have no error code: a refusal is an empty answer
        raise Unauthorised(
            f"cluster {connection.alias} refused reading log sizes (an empty answer)", alias=connection.alias
        )
    return {
        TopicPartition(str(topic.name), int(part.partition_index)): int(part.partition_size)
        for directory in answer.results
        for topic in directory.topics
        for part in topic.partitions
        if not part.is_future_key
    }


def read_group_names(connection: Connection) -> list[GroupListing]:
    """The groups that this broker coordinates, without their members; the state is "" before Kafka 2.6 (KIP-518), and
    the type `classic` where the broker names none (before 3.8)."""
    answer = connection.ask(Api.LIST_GROUPS, states_filter=(), types_filter=())
    connection.check(int(answer.error_code), "listing groups")
    found = []
    for group in answer.groups:
        kind = str(getattr(group, "group_type", "")).lower()
        found.append(
            GroupListing(
                str(group.group_id), str(getattr(group, "group_state", "")), kind if kind in _DESCRIBERS else "classic"
            )
        )
    return found


def read_group_listings(connection: Connection) -> list[GroupListing]:
    """The groups that this broker coordinates, with their members counted; members None where it does not show them."""
    by_type: dict[str, list[str]] = defaultdict(list)
    states: dict[str, str] = {}
    for group in read_group_names(connection):
        by_type[group.type].append(group.id)
        states[group.id] = group.state
    listed = []
    for kind, ids in sorted(by_type.items()):
        described = read_group_states(connection, ids, kind)
        for each in ids:
            state, members = described.get(each, (states[each], None))
            listed.append(GroupListing(each, states[each] or state, kind, members))
    return [group for group in listed if group.state != "Dead"]


def read_acls(connection: Connection) -> tuple[InventoryAcl, ...] | None:
    """All bindings, sorted, in the words of `kafka-acls`; None where there is no authorizer. Raises Unauthorised."""
    answer = connection.ask(
        Api.DESCRIBE_ACLS,
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    if int(answer.error_code) == _SECURITY_DISABLED:
        return None
    connection.check(int(answer.error_code), "reading ACLs")
    found = (
        InventoryAcl(
            principal=str(acl.principal),
            operation=_word(ACL_OPERATIONS, acl.operation),
            permission=_word(ACL_PERMISSIONS, acl.permission_type),
            resource=_word(ACL_RESOURCES, resource.resource_type),
            name=str(resource.resource_name),
            pattern=_word(ACL_PATTERNS, getattr(resource, "pattern_type", _LITERAL)),
            host=str(acl.host),
        )
        for resource in answer.resources
        for acl in resource.acls
    )
    return tuple(sorted(found, key=astuple))


def read_quota_texts(connection: Connection) -> dict[str, dict[str, float]]:
    """Entity (`user=app`, `user=<default>,client-id=web`) → limit → value. Raises Unauthorised."""
    return {render_quota_entity_text(entity): limits for entity, limits in read_client_quotas(connection).items()}


def read_client_quotas(connection: Connection) -> dict[QuotaEntity, dict[str, float]]:
    """Entity → limit (`producer_byte_rate`) → value, for each broker. Raises Unauthorised."""
    answer = connection.ask(Api.DESCRIBE_CLIENT_QUOTAS, components=(), strict=False)
    connection.check(int(answer.error_code), "reading client quotas")
    return {
        tuple(
            (str(part.entity_type), None if part.entity_name is None else str(part.entity_name))
            for part in entry.entity
        ): {str(limit.key): float(limit.value) for limit in entry.values}
        for entry in answer.entries or ()
    }


def read_scram_users(connection: Connection) -> dict[str, dict[str, int]]:
    """User → mechanism (`SCRAM-SHA-512`) → iterations; brokers never tell more (KIP-554). Raises Unauthorised.

    All users are asked for by an empty list: a broker that refuses "null" (as documented) never answers (Kafka 4.3).
    """
    answer = connection.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, users=())
    connection.check(int(answer.error_code), "reading SCRAM users")
    return {
        str(user.user): {
            _word(SCRAM_MECHANISMS, info.mechanism): int(info.iterations) for info in user.credential_infos
        }
        for user in answer.results
        if int(user.error_code) == error_codes.NONE
    }


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config of a topic: the value in force, whether it is set on the topic itself, whether it can be changed, and
    what it would be if the topic did not say (None: not known). Secret values are None."""

    value: str | None
    own: bool
    fixed: bool
    otherwise: str | None


def read_topic_config_entries(
    connection: Connection, topics: Sequence[str]
) -> tuple[dict[str, dict[str, TopicConfig]], dict[str, str]]:
    """Topic → key → config, and topic → why it is not told. Topics that are gone are in neither."""
    found: dict[str, dict[str, TopicConfig]] = {}
    refused: dict[str, str] = {}
    for start in range(0, len(topics), _TOPICS_A_REQUEST):
        resources = [
            {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": None}
            for name in topics[start : start + _TOPICS_A_REQUEST]
        ]
        answer = connection.ask(
            Api.DESCRIBE_CONFIGS, resources=resources, include_synonyms=True, include_documentation=False
        )
        for result in answer.results:
            code = int(result.error_code)
            if code == error_codes.NONE:
                found[str(result.resource_name)] = {str(each.name): _topic_config(each) for each in result.configs}
            elif code != error_codes.UNKNOWN_TOPIC_OR_PARTITION:
                refused[str(result.resource_name)] = error_codes.describe_error_code(code)
    return found, refused


def read_group_configs(connection: Connection, group: str) -> tuple[dict[str, str], str]:
    """What brokers hold groups of that name to (KIP-848, KIP-932, KIP-1071), set on the group or their own default, by
    key; and why it is not told ("": it is). A group need not exist. Brokers before 3.8 know no such settings."""
    resource = {"resource_type": _GROUP, "resource_name": group, "configuration_keys": None}
    answer = connection.ask(
        Api.DESCRIBE_CONFIGS, resources=[resource], include_synonyms=False, include_documentation=False
    )
    [result] = answer.results
    code = int(result.error_code)
    values = {str(each.name): str(each.value) for each in result.configs if each.value is not None}
    return values, "" if code == error_codes.NONE else error_codes.describe_error_code(code)


def _topic_config(entry: Any) -> TopicConfig:
    """Synonyms come in the order in which they count; the first that is not the topic's own is the default. Version 0
    has none, and says only whether the value is the default."""
    others = [each.value for each in getattr(entry, "synonyms", ()) if int(each.source) != _OWN_CONFIG]
    own = int(entry.config_source) == _OWN_CONFIG if hasattr(entry, "config_source") else not entry.is_default
    return TopicConfig(
        None if entry.value is None or entry.is_sensitive else str(entry.value),
        own,
        bool(entry.read_only),
        None if not others or others[0] is None else str(others[0]),
    )


def read_group_states(connection: Connection, ids: list[str], kind: str = "classic") -> dict[str, tuple[str, int]]:
    """Group → (state, members), of those that this broker coordinates and describes to us."""
    api_key, field = _DESCRIBERS[kind]
    found: dict[str, tuple[str, int]] = {}
    for some in _batches(ids):
        try:
            question: dict[str, Any] = {field: some, "include_authorized_operations": False}
            answer = connection.ask(api_key, **question)
        except RequestRefused:  # the broker has such groups but no request that we both know
            return found
        for group in answer.groups:
            if int(group.error_code) == error_codes.NONE:
                found[str(group.group_id)] = str(group.group_state), len(group.members)
    return found


def _word(words: tuple[str, ...], code: int) -> str:
    """A code that is newer than this list stays a number: better than a wrong word."""
    return words[code] if 0 <= code < len(words) else str(int(code))


def _batches(ids: list[str]) -> Iterable[tuple[GroupId, ...]]:
    for start in range(0, len(ids), _GROUPS_A_REQUEST):
        yield tuple(GroupId(each) for each in ids[start : start + _GROUPS_A_REQUEST])
