"""Which rights the workers of a flow need on either side, and what principals may do by the ACLs of a scanned cluster.

Super users need no ACL, and a scan cannot see them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from watershed.topology.inventory import InventoryAcl, InventoryCluster
from watershed.topology.model import Flow
from watershed.topology.rule import RuleContext

_CONTROL = "watershed."  # flows, ledger, status and journal, at the target
_EVERYONE = "User:*"
# KIP-11: these include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS
_INCLUDES = {"DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"), "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",)}


@dataclass(frozen=True, slots=True)
class AclRight:
    """`operation` on a TOPIC (by name, or `prefix.*` with prefixed=True), or on the CLUSTER."""

    operation: str
    resource: str
    name: str = ""
    prefixed: bool = False

    def __str__(self) -> str:
        what = f"{self.name}{'*' if self.prefixed else ''}" if self.resource == "TOPIC" else "the cluster"
        return f"{self.operation} {what}"


NeededRights = tuple[tuple[AclRight, ...], ...]
"""All of these are needed; of each, one right of several is enough."""


@dataclass(slots=True)
class _Holders:
    """Who is named by the rules of one kind: for an exact name, and for what begins with a prefix."""

    exact: dict[str, set[str]] = field(default_factory=dict)
    prefixes: dict[str, set[str]] = field(default_factory=dict)

    def add(self, acl: InventoryAcl) -> None:
        table = self.prefixes if acl.pattern.upper() == "PREFIXED" else self.exact
        table.setdefault(acl.name, set()).add(acl.principal)

    def of(self, right: AclRight) -> set[str]:
        if right.resource == "CLUSTER":
            return set().union(*self.exact.values())
        found = set(self.exact.get("*", ()))
        if not right.prefixed:
            found |= self.exact.get(right.name, set())
        for end in range(len(right.name) + 1) if self.prefixes else ():
            found |= self.prefixes.get(right.name[:end], set())
        return found


class ClusterRights:
    """The ALLOW and DENY ACLs of one cluster. Answers are cached, because many flows ask for the same right.

    principals: users with at least one ALLOW. open: the brokers allow everything that no ACL mentions.
    """

    def __init__(self, cluster: InventoryCluster) -> None:
        self._rules: dict[tuple[str, str, str], _Holders] = {}
        self._known: dict[AclRight, frozenset[str]] = {}
        principals = set()
        for acl in cluster.acls or ():
            permission = acl.permission.upper()
            key = (permission, acl.resource.upper(), acl.operation.upper())
            self._rules.setdefault(key, _Holders()).add(acl)
            if permission == "ALLOW" and acl.principal.startswith("User:"):
                principals.add(acl.principal)
        self.principals = frozenset(principals)
        self.open = cluster.configs.get("allow.everyone.if.no.acl.found") == "true"

    def holders(self, right: AclRight) -> frozenset[str]:
        """The users that may do it."""
        if right not in self._known:
            denied = self._named("DENY", right, (right.operation, "ALL"))
            allowed = self._named("ALLOW", right, (right.operation, "ALL", *_INCLUDES.get(right.operation, ())))
            everyone = self.principals if _EVERYONE in allowed else allowed & self.principals
            self._known[right] = frozenset() if _EVERYONE in denied else frozenset(everyone - denied)
        return self._known[right]

    def able(self, needed: NeededRights) -> frozenset[str]:
        """The users that may do all of it."""
        able = self.principals
        for each in needed:
            if not able:
                break
            able &= self._any(each)
        return able

    def nearest(self, needed: NeededRights) -> tuple[str, list[AclRight]] | None:
        """The user that lacks least, and what it lacks; None when nobody may do anything."""
        held = Counter(user for each in needed for user in self._any(each))
        if not self.principals:
            return None
        user = min(self.principals, key=lambda name: (-held[name], name))
        return user, [each[0] for each in needed if user not in self._any(each)]

    def _any(self, choice: tuple[AclRight, ...]) -> frozenset[str]:
        if len(choice) == 1:
            return self.holders(choice[0])
        return frozenset().union(*map(self.holders, choice))

    def _named(self, permission: str, right: AclRight, operations: tuple[str, ...]) -> set[str]:
        found: set[str] = set()
        for operation in operations:
            rules = self._rules.get((permission, right.resource, operation))
            if rules is not None:
                found |= rules.of(right)
        return found


def find_unlimited_principals(cluster: InventoryCluster) -> Mapping[str, InventoryAcl]:
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


def list_source_rights(context: RuleContext, flow: Flow) -> NeededRights:
    """READ (which includes DESCRIBE) on every topic that is known by name, DESCRIBE_CONFIGS where configs are taken
    over."""
    operations = ("READ",) if flow.plan.sync_configs == "never" else ("READ", "DESCRIBE_CONFIGS")
    names = context.facts.names(flow.source, flow.plan.topics)
    return tuple((AclRight(operation, "TOPIC", name),) for operation in operations for name in names)


def list_target_rights(context: RuleContext, flow: Flow, cluster: InventoryCluster) -> NeededRights:
    """WRITE on the topics under their new names, CREATE of those that are not there yet, and the control topics."""
    names = [flow.plan.target_topic(name) for name in context.facts.names(flow.source, flow.plan.topics)]
    create = AclRight("CREATE", "CLUSTER")
    operations = ("WRITE", "ALTER_CONFIGS") if flow.plan.sync_configs == "continuous" else ("WRITE",)
    needed = [(AclRight(operation, "TOPIC", name),) for operation in operations for name in names]
    created = [(AclRight("CREATE", "TOPIC", name), create) for name in names if name not in cluster.topics]
    control = [(AclRight(operation, "TOPIC", _CONTROL, prefixed=True),) for operation in ("READ", "WRITE")]
    if not any(name.startswith(_CONTROL) for name in cluster.topics):
        created.append((AclRight("CREATE", "TOPIC", _CONTROL, prefixed=True), create))
    return (*needed, *created, *control)
