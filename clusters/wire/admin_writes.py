"""Requests that change what brokers hold beside records: access rights, client quotas, topic configs, SCRAM users. None
deletes a topic. Rights, limits and users are taken away by those alone who gave them or have them written down. Each
answers with the things that were refused, and why; the others are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kio.static.primitive import f64, i8

from watershed.clusters.wire import error_codes
from watershed.clusters.wire.admin_reads import (
    ACL_OPERATIONS,
    ACL_PATTERNS,
    ACL_PERMISSIONS,
    ACL_RESOURCES,
    SCRAM_MECHANISMS,
    QuotaEntity,
)
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.versions import Api
from watershed.topology.inventory import InventoryAcl

_SET, _DELETE = i8(0), i8(1)  # org.apache.kafka.clients.admin.AlterConfigOp.OpType
_TOPIC = i8(2)
_AT_ONCE: Final = 200
_T = TypeVar("_T")


def create_acls(connection: Connection, acls: Sequence[InventoryAcl]) -> dict[InventoryAcl, str]:
    """In this order; one that is there already is done. Raises ClusterError when nothing could be asked."""
    refused: dict[InventoryAcl, str] = {}
    for some in _batches(acls):
        answer = connection.ask(
            Api.CREATE_ACLS,
            lowest=_find_lowest_version(some),
            creations=[
                {
                    "resource_type": i8(ACL_RESOURCES.index(acl.resource)),
                    "resource_name": acl.name,
                    "resource_pattern_type": i8(ACL_PATTERNS.index(acl.pattern)),
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": i8(ACL_OPERATIONS.index(acl.operation)),
                    "permission_type": i8(ACL_PERMISSIONS.index(acl.permission)),
                }
                for acl in some
            ],
        )
        refused |= {acl: _why(result) for acl, result in zip(some, answer.results, strict=True) if _failed(result)}
    return refused


def delete_acls(connection: Connection, acls: Sequence[InventoryAcl]) -> dict[InventoryAcl, str]:
    """These very bindings and no others; one that is not there is done. Raises ClusterError when nothing could be
    asked."""
    refused: dict[InventoryAcl, str] = {}
    for some in _batches(acls):
        answer = connection.ask(
            Api.DELETE_ACLS,
            lowest=_find_lowest_version(some),
            filters=[
                {
                    "resource_type_filter": i8(ACL_RESOURCES.index(acl.resource)),
                    "resource_name_filter": acl.name,
                    "pattern_type_filter": i8(ACL_PATTERNS.index(acl.pattern)),
                    "principal_filter": acl.principal,
                    "host_filter": acl.host,
                    "operation": i8(ACL_OPERATIONS.index(acl.operation)),
                    "permission_type": i8(ACL_PERMISSIONS.index(acl.permission)),
                }
                for acl in some
            ],
        )
        for acl, result in zip(some, answer.filter_results, strict=True):
            failed = next((each for each in (result, *result.matching_acls) if _failed(each)), None)
            if failed is not None:
                refused[acl] = _why(failed)
    return refused


def delete_scram_users(connection: Connection, credentials: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(user, mechanism), such as `("ann", "SCRAM-SHA-512")`; one that is not there is done. Raises ClusterError when
    nothing could be asked.

    Brokers answer by user and take each user once in a request, so each mechanism has requests of its own.
    """
    refused: dict[tuple[str, str], str] = {}
    for mechanism in sorted({mechanism for _, mechanism in credentials}):
        for users in _batches(sorted({user for user, each in credentials if each == mechanism})):
            answer = connection.ask(
                Api.ALTER_USER_SCRAM_CREDENTIALS,
                deletions=[{"name": user, "mechanism": i8(SCRAM_MECHANISMS.index(mechanism))} for user in users],
                upsertions=[],
            )
            for result in answer.results:
                if _failed(result) and int(result.error_code) != error_codes.RESOURCE_NOT_FOUND:
                    refused[str(result.user), mechanism] = _why(result)
    return refused


def _find_lowest_version(acls: Iterable[InventoryAcl]) -> int:
    """Version 0 knows no patterns: a prefix would become a name (KIP-290, Kafka 2.0)."""
    return 0 if all(acl.pattern == "LITERAL" for acl in acls) else 1


def alter_client_quotas(
    connection: Connection, wanted: Mapping[QuotaEntity, Mapping[str, float | None]], *, only_try: bool = False
) -> dict[QuotaEntity, str]:
    """Set these limits; None takes one away. Others of the same entity stay. only_try: the brokers check, and change
    nothing."""
    refused: dict[QuotaEntity, str] = {}
    for some in _batches(sorted(wanted, key=str)):
        answer = connection.ask(
            Api.ALTER_CLIENT_QUOTAS,
            entries=[
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                    "ops": [
                        {"key": key, "value": f64(value or 0.0), "remove": value is None}
                        for key, value in wanted[entity].items()
                    ],
                }
                for entity in some
            ],
            validate_only=only_try,
        )
        refused |= {entity: _why(entry) for entity, entry in zip(some, answer.entries, strict=True) if _failed(entry)}
    return refused


def alter_topic_configs(connection: Connection, wanted: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    """Topic → key → value; None takes the topic's own value away, so that the brokers' default counts (KIP-339)."""
    refused: dict[str, str] = {}
    for some in _batches(sorted(wanted)):
        answer = connection.ask(
            Api.INCREMENTAL_ALTER_CONFIGS,
            resources=[
                {
                    "resource_type": _TOPIC,
                    "resource_name": topic,
                    "configs": [
                        {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
                        for key, value in wanted[topic].items()
                    ],
                }
                for topic in some
            ],
            validate_only=False,
        )
        refused |= {str(each.resource_name): _why(each) for each in answer.responses if _failed(each)}
    return refused


def _failed(result: Any) -> bool:
    return int(result.error_code) != error_codes.NONE


def _why(result: Any) -> str:
    said = f": {result.error_message}" if result.error_message else ""
    return f"{error_codes.describe_error_code(int(result.error_code))}{said}"


def _batches(things: Sequence[_T] | Iterable[_T]) -> Iterator[list[_T]]:
    there = list(things)
    for start in range(0, len(there), _AT_ONCE):
        yield there[start : start + _AT_ONCE]
