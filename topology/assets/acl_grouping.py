"""ACLs together that one rule or one command can say: Kafka's own form has one operation each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from watershed.topology.acl_translation import render_operation
from watershed.topology.inventory import InventoryAcl


@dataclass(frozen=True, slots=True)
class AclGroup:
    """The operations of one principal from one host on one thing. operations: in the words of tools
    (`DescribeConfigs`), in the order of the ACLs."""

    principal: str
    host: str
    permission: str
    resource: str
    name: str
    pattern: str
    operations: tuple[str, ...]


def group_acls(acls: Iterable[InventoryAcl]) -> list[AclGroup]:
    """In the order in which things are first met, so that denials stay in front."""
    found: dict[InventoryAcl, list[str]] = {}
    for acl in acls:
        found.setdefault(replace(acl, operation=""), []).append(render_operation(acl.operation))
    return [
        AclGroup(each.principal, each.host, each.permission, each.resource, each.name, each.pattern, tuple(operations))
        for each, operations in found.items()
    ]
