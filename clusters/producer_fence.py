"""Fences at the brokers keep applications from writing: ACLs that deny, and quotas of a few bytes a second.

A snapshot (JSON) lists the entries of a fence and which of them existed before. It is all that is needed to raise the
fence and to restore exactly the state before; both can be repeated at any time. A fence is up when the last broker
shows it (`clusters.broker_propagation`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from watershed.clusters.broker_propagation import wait_for_every_broker
from watershed.clusters.errors import CannotFence, RequestRefused, RequestUnsupported, Unauthorised
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.admin_reads import QuotaEntity
from watershed.clusters.wire.admin_writes import alter_client_quotas, create_acls, delete_acls
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.topology.inventory import InventoryAcl

_PRODUCER_RATE_QUOTA: Final = "producer_byte_rate"
_Snapshot = dict[str, Any]
QuotaClient = tuple[str | None, str | None]  # (user, client id)


@dataclass(frozen=True, slots=True)
class FenceState:
    """up: every part of it is in force at every broker. told: for people."""

    up: bool
    snapshot: _Snapshot
    told: str


def inspect_acl_fence(settings: ConnectionSettings, topics: Collection[str], principals: Collection[str]) -> FenceState:
    """A denial of WRITE on each topic for each principal (`User:checkout`).

    Raises CannotFence without an authorizer, for a topic without any right (its first one would shut out whoever may
    write by `allow.everyone.if.no.acl.found`, and super users heed none), and for Watershed's own principal.
    """
    wanted = _denials(topics, principals)
    _not_ourselves(settings, principals)
    with open_connection(settings) as inquiry:
        acls = _acls(inquiry)
    bare = sorted(topic for topic in topics if not any(is_acl_on_topic(acl, topic) for acl in acls))
    if bare:
        raise CannotFence(
            f"cluster {settings.alias} holds no right at all for {', '.join(bare)}: who writes there does so as a "
            "super user, who heeds no denial, or by allow.everyone.if.no.acl.found, which the first denial ends for "
            "everybody. Give rights to those who need them, or use a quota or external fence",
            alias=settings.alias,
            topic=bare[0],
        )
    there = [acl for acl in wanted if acl in acls]
    snapshot: _Snapshot = {
        "topics": sorted(topics),
        "principals": sorted(principals),
        "there": [[acl.principal, acl.name] for acl in there],
    }
    told = f"{len(there)} of {len(wanted)} denials of WRITE stand at {settings.alias}"
    return FenceState(len(there) == len(wanted), snapshot, told)


def raise_acl_fence(settings: ConnectionSettings, snapshot: _Snapshot) -> FenceState:
    """Returns when every broker denies. Raises ClusterError when one does not."""
    wanted = _denials(snapshot["topics"], snapshot["principals"])
    with open_connection(settings) as inquiry:
        _done(settings, create_acls(inquiry, wanted), "denying WRITE")
        wait_for_every_broker(settings, inquiry, lambda broker: set(wanted) <= _acls(broker))
    told = f"{len(wanted)} denials of WRITE stand at {settings.alias} ({', '.join(snapshot['principals'])})"
    return FenceState(True, snapshot, told)


def lower_acl_fence(settings: ConnectionSettings, snapshot: _Snapshot) -> FenceState:
    """Takes away the denials that did not stand there before."""
    before = {tuple(each) for each in snapshot["there"]}
    ours = [a for a in _denials(snapshot["topics"], snapshot["principals"]) if (a.principal, a.name) not in before]
    with open_connection(settings) as inquiry:
        _done(settings, delete_acls(inquiry, ours), "taking denials of WRITE away")
        wait_for_every_broker(settings, inquiry, lambda broker: not set(ours) & _acls(broker))
    told = f"{len(ours)} denials of WRITE are gone from {settings.alias}"
    told += f", {len(before)} stood there before and stay" if before else ""
    return FenceState(False, snapshot, told)


def inspect_quota_fence(settings: ConnectionSettings, clients: Iterable[QuotaClient], rate: int) -> FenceState:
    """A producer byte rate for each client. A limit of a user and client id together counts before the user's own, so
    those of a fenced user are part of the fence.

    Raises CannotFence for a client that is told by its client id alone where limits of users would count before it,
    and for Watershed's own user.
    """
    clients = sorted(set(clients), key=str)
    _not_ourselves(settings, [f"User:{user}" for user, _ in clients if user is not None])
    with open_connection(settings) as inquiry:
        quotas = _rates(inquiry)
    entities: set[QuotaEntity] = set()
    for user, client_id in clients:
        named = {"user": user} if client_id is None else {"client-id": client_id}
        if user is not None and client_id is not None:
            named = {"user": user, "client-id": client_id}
        entities.add(tuple(sorted((kind, name) for kind, name in named.items() if name is not None)))
        if user is None:
            _refuse_users(settings, quotas, str(client_id), rate)
        elif client_id is None:
            entities |= {entity for entity in quotas if ("user", user) in entity}
    limits = [{"entity": [list(p) for p in e], "before": quotas.get(e)} for e in sorted(entities, key=str)]
    snapshot: _Snapshot = {"rate": rate, "limits": limits}
    up = all(quotas.get(entity, rate + 1.0) <= rate for entity in entities)
    return FenceState(up, snapshot, f"{_entities(snapshot)} at {settings.alias}")


def raise_quota_fence(settings: ConnectionSettings, snapshot: _Snapshot) -> FenceState:
    """Returns when every broker shows the limits. One that was lower already stays."""
    rate = float(snapshot["rate"])
    wanted = {e: min(rate, rate if before is None else before) for e, before in _limits(snapshot).items()}
    _set_rates(settings, wanted)
    return FenceState(True, snapshot, f"a quota of {rate:g} B/s for {_entities(snapshot)} at {settings.alias}")


def lower_quota_fence(settings: ConnectionSettings, snapshot: _Snapshot) -> FenceState:
    """Sets every limit to what it was, or takes it away."""
    _set_rates(settings, _limits(snapshot))
    return FenceState(False, snapshot, f"quotas of {_entities(snapshot)} at {settings.alias} are what they were")


def _denials(topics: Iterable[str], principals: Iterable[str]) -> list[InventoryAcl]:
    there = sorted(set(topics))
    return [
        InventoryAcl(principal, "WRITE", "DENY", "TOPIC", topic, "LITERAL")
        for principal in sorted(set(principals))
        for topic in there
    ]


def _acls(inquiry: Connection) -> set[InventoryAcl]:
    found = admin_reads.read_acls(inquiry)
    if found is None:
        raise CannotFence(
            f"cluster {inquiry.alias} has no authorizer, so it can deny nothing: use a fence of kind quota, external "
            "or stop",
            alias=inquiry.alias,
        )
    return set(found)


def is_acl_on_topic(acl: InventoryAcl, topic: str) -> bool:
    """Whether the binding is about this topic."""
    if acl.resource != "TOPIC":
        return False
    return topic.startswith(acl.name) if acl.pattern == "PREFIXED" else acl.name in (topic, "*")


def _not_ourselves(settings: ConnectionSettings, principals: Iterable[str]) -> None:
    own = f"User:{settings.username}" if settings.username is not None else None
    for principal in principals:
        if principal in (own, "User:*"):
            raise CannotFence(
                f"{principal} is whom Watershed itself is at cluster {settings.alias}: a fence against it would keep "
                "the way back out, too. Give applications principals of their own",
                alias=settings.alias,
            )


def _rates(inquiry: Connection) -> dict[QuotaEntity, float]:
    """Entity (its parts sorted) → producer byte rate, where one is set. Raises CannotFence before Kafka 2.6."""
    try:
        found = admin_reads.read_client_quotas(inquiry)
    except RequestUnsupported as error:
        raise CannotFence(
            f"cluster {inquiry.alias} keeps its quotas in ZooKeeper, out of reach of clients: {error}. Use a fence of "
            "kind acl, external or stop",
            alias=inquiry.alias,
        ) from None
    return {
        tuple(sorted(entity, key=str)): limits[_PRODUCER_RATE_QUOTA]
        for entity, limits in found.items()
        if _PRODUCER_RATE_QUOTA in limits
    }


def _refuse_users(settings: ConnectionSettings, quotas: Mapping[QuotaEntity, float], client_id: str, rate: int) -> None:
    """Precedence: apache/kafka ClientQuotaManager, "user and client-id" down to "client-id"; a user's counts first."""
    for entity, value in quotas.items():
        parts = dict(entity)
        if "user" in parts and parts.get("client-id", client_id) in (client_id, None) and value > rate:
            shown = ", ".join(f"{kind}={name or '<default>'}" for kind, name in entity)
            raise CannotFence(
                f"cluster {settings.alias} has a quota for {shown}, which counts before one for client id {client_id} "
                "alone: declare the application's principal, too",
                alias=settings.alias,
            )


def _limits(snapshot: _Snapshot) -> dict[QuotaEntity, float | None]:
    return {tuple((kind, name) for kind, name in each["entity"]): each["before"] for each in snapshot["limits"]}


def _entities(snapshot: _Snapshot) -> str:
    shown = (
        " with ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in sorted(entity, reverse=True))
        for entity in _limits(snapshot)
    )
    return ", ".join(shown)


def _set_rates(settings: ConnectionSettings, wanted: Mapping[QuotaEntity, float | None]) -> None:
    with open_connection(settings) as inquiry:
        refused = alter_client_quotas(
            inquiry, {entity: {_PRODUCER_RATE_QUOTA: value} for entity, value in wanted.items()}
        )
        _done(settings, refused, "setting producer quotas")

        def shown(broker: Connection) -> bool:
            rates = _rates(broker)
            return all(rates.get(entity) == value for entity, value in wanted.items())

        wait_for_every_broker(settings, inquiry, shown)


def _done(settings: ConnectionSettings, refused: Mapping[Any, str], doing: str) -> None:
    for thing, why in refused.items():
        error = Unauthorised if "AUTHORIZATION_FAILED" in why else RequestRefused
        raise error(f"cluster {settings.alias} refused {doing} ({thing}): {why}", alias=settings.alias)
