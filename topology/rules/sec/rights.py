"""What the principals of a scanned cluster may do, from its ACLs. Super users need none, and a scan cannot see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topology.inventory import InventoryAcl, InventoryCluster

EVERYONE = "User:*"
# KIP-11: these include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS
_INCLUDES = {"DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"), "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",)}


@dataclass(frozen=True, slots=True)
class Right:
    """`operation` on a TOPIC (by name, or `prefix.*` with prefixed=True), or on the CLUSTER."""

    operation: str
    resource: str
    name: str = ""
    prefixed: bool = False

    def __str__(self) -> str:
        what = f" `{self.name}{'*' if self.prefixed else ''}`" if self.resource == "TOPIC" else " the cluster"
        return f"{self.operation}{what}"


@dataclass(slots=True)
class _Names:
    exact: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)

    def add(self, acl: InventoryAcl) -> None:
        (self.prefixes if acl.pattern.upper() == "PREFIXED" else self.exact).add(acl.name)

    def covers(self, right: Right) -> bool:
        if right.resource == "CLUSTER":
            return bool(self.exact)
        if "*" in self.exact or any(right.name.startswith(prefix) for prefix in self.prefixes):
            return True
        return not right.prefixed and right.name in self.exact


class Rights:
    """The ALLOW and DENY rules of one cluster by principal, resource and operation."""

    def __init__(self, cluster: InventoryCluster) -> None:
        self._rules: dict[tuple[str, str, str, str], _Names] = {}
        principals = set()
        for acl in cluster.acls or ():
            permission, resource = acl.permission.upper(), acl.resource.upper()
            key = (permission, acl.principal, resource, acl.operation.upper())
            self._rules.setdefault(key, _Names()).add(acl)
            if permission == "ALLOW" and acl.principal.startswith("User:"):
                principals.add(acl.principal)
        self.principals = tuple(sorted(principals))
        self.open = cluster.configs.get("allow.everyone.if.no.acl.found") == "true"

    def may(self, principal: str, right: Right) -> bool:
        if self._ruled("DENY", principal, right, (right.operation, "ALL")):
            return False
        return self._ruled("ALLOW", principal, right, (right.operation, "ALL", *_INCLUDES.get(right.operation, ())))

    def missing(self, principal: str, needed: Iterable[Right | tuple[Right, ...]]) -> list[Right]:
        """What it may not do, of all that is needed; of several rights in a tuple one is enough."""
        lacking = []
        for each in needed:
            choice = each if isinstance(each, tuple) else (each,)
            if not any(self.may(principal, right) for right in choice):
                lacking.append(choice[0])
        return lacking

    def _ruled(self, permission: str, principal: str, right: Right, operations: tuple[str, ...]) -> bool:
        return any(
            (names := self._rules.get((permission, who, right.resource, operation))) is not None and names.covers(right)
            for who in (principal, EVERYONE)
            for operation in operations
        )


def wide(cluster: InventoryCluster) -> Mapping[str, InventoryAcl]:
    """Principals that may do ALL on every topic, or on the cluster, each with one such ACL."""
    found: dict[str, InventoryAcl] = {}
    for acl in cluster.acls or ():
        everything = acl.resource.upper() == "CLUSTER" or (
            acl.resource.upper() == "TOPIC" and acl.name == "*" and acl.pattern.upper() != "PREFIXED"
        )
        allowed = acl.permission.upper() == "ALLOW" and acl.operation.upper() == "ALL"
        if everything and allowed and acl.principal.startswith("User:"):
            found.setdefault(acl.principal, acl)
    return dict(sorted(found.items()))
