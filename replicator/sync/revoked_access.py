"""Which access at a target has lost its reason: the sync brought it, and the source has taken it away since.

Pure: listings of both sides and what is written down come in, what is to be written down and what may be removed come
out. Only what is written down is ever judged, so what a person gave at the target stays (decision 0123).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.synced_access_records import SyncedAcl, SyncedUser
from watershed.topology.acl_translation import is_acl_about, translate_acls
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanFlow
from watershed.topology.quantities import render_duration
from watershed.topology.shell_command import render_shell_command
from watershed.topology.sync_settings import AccessPruning

# A source that shows fewer than half of what it showed has more likely lost its authorizer, or our right to see, than
# half of its users. Our own choice. Of three and fewer, each may be meant.
MOST_REVOKED_SHARE: Final = 0.5
FEW_REVOKED: Final = 3
# A right is written down before it is given. So for a while its absence says nothing: another writer may be about to
# give it. Longer than a request to a cluster takes (a minute), with a large reserve.
_GIVING_MS: Final = 600_000
_OWN_NAMES: Final = "watershed."

ClusterAcls = tuple[InventoryAcl, ...] | None
ClusterUsers = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class JudgedAcls:
    """entries: what is to be written down from now on. revoked: those of them that the source has revoked. kept: of
    these, the right → why nobody removes it. blind: why nothing can be judged now; empty otherwise. bulk: why so many
    are not removed without a person who says so; empty otherwise."""

    entries: tuple[SyncedAcl, ...] = ()
    revoked: tuple[SyncedAcl, ...] = ()
    kept: Mapping[InventoryAcl, str] = field(default_factory=dict)
    blind: str = ""
    bulk: str = ""


@dataclass(frozen=True, slots=True)
class JudgedUsers:
    """As `JudgedAcls`, for SCRAM users. kept: user → why nobody removes it."""

    entries: tuple[SyncedUser, ...] = ()
    revoked: tuple[SyncedUser, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    blind: str = ""
    bulk: str = ""


@dataclass(frozen=True, slots=True)
class TargetOwners:
    """Whose access at the target is never removed. username: Watershed's own name there, if it has one. acls: all
    rights there; whoever has one on a topic or group of Watershed is one of its roles (`topology acls`)."""

    username: str | None
    acls: Collection[InventoryAcl] = ()

    def list_principals(self) -> frozenset[str]:
        """`User:…` of ourselves and of all roles."""
        roles = {acl.principal for acl in self.acls if acl.name.startswith(_OWN_NAMES) and acl.permission == "ALLOW"}
        return frozenset(roles | ({f"User:{self.username}"} if self.username else set()))


def judge_synced_acls(
    flow: PlanFlow,
    flows: Iterable[PlanFlow],
    record: FlowRecord | None,
    entries: Iterable[SyncedAcl],
    here: ClusterAcls,
    there: ClusterAcls,
    username: str | None,
    now_ms: int,
) -> JudgedAcls:
    """flow: as it is served. flows: all that run into the target. entries: what is written down. here, there: all
    rights of a side, None without an authorizer. username: our own at the target. now_ms: since 1970."""
    entries = tuple(entries)
    if there is None or not here:
        return JudgedAcls(entries, blind=_explain_blindness(flow, "right", here is None) if entries else "")
    explained, origins, present = _explain_acls(flow, here), set(here), set(there)
    kept_entries: list[SyncedAcl] = []
    revoked: list[SyncedAcl] = []
    for entry in entries:
        has_reason = entry.acl in explained or not origins.isdisjoint(entry.origins)
        if has_reason:
            kept_entries.append(replace(entry, revoked_ms=None))
        elif entry.acl in present:
            gone = replace(entry, revoked_ms=now_ms if entry.revoked_ms is None else entry.revoked_ms)
            kept_entries.append(gone)
            revoked.append(gone)
        elif now_ms - entry.given_ms < _GIVING_MS:
            kept_entries.append(entry)
    others = [each for each in flows if each.id != flow.id and each.sync.acls.mode != "never"]
    principals = TargetOwners(username, there).list_principals()
    kept = {each.acl: why for each in revoked if (why := _explain_kept_acl(flow, record, others, principals, each.acl))}
    return JudgedAcls(
        tuple(kept_entries), tuple(revoked), kept, bulk=_explain_bulk(flow, "rights", len(revoked), len(kept_entries))
    )


def judge_synced_users(
    flow: PlanFlow,
    flows: Iterable[PlanFlow],
    record: FlowRecord | None,
    entries: Iterable[SyncedUser],
    here: ClusterUsers,
    there: ClusterUsers,
    owners: TargetOwners,
    now_ms: int,
) -> JudgedUsers:
    """here, there: user → mechanism → iterations. The other parameters as for `judge_synced_acls`."""
    known = {(each.user, each.mechanism): each for each in entries}
    source, target = _list_credentials(here), _list_credentials(there)
    if known and not here:
        return JudgedUsers(tuple(known.values()), blind=_explain_blindness(flow, "SCRAM user", without=False))
    for user, mechanism in sorted(source - target):
        if flow.sync.users.names.selects(user) and (user, mechanism) not in known:
            known[user, mechanism] = SyncedUser(str(flow.id), user, mechanism, now_ms)
    judged = {key: _judge_user(entry, key in source, key in target, now_ms) for key, entry in known.items()}
    found = tuple(each for _, each in sorted(judged.items()) if each is not None)
    revoked = tuple(each for each in found if each.revoked_ms is not None)
    principals = owners.list_principals()
    others = [each for each in flows if each.id != flow.id and each.sync.users.mode != "never"]
    kept = {each.user: why for each in revoked if (why := _explain_kept_user(record, others, principals, each.user))}
    made = sum(each.made_ms is not None for each in found)
    return JudgedUsers(found, revoked, kept, bulk=_explain_bulk(flow, "SCRAM users", len(revoked), made))


def find_acl_origins(flow: PlanFlow, here: Iterable[InventoryAcl]) -> dict[InventoryAcl, tuple[InventoryAcl, ...]]:
    """Right at the target → the rights of the source that it comes from, each translated by itself."""
    found: dict[InventoryAcl, list[InventoryAcl]] = {}
    for acl in here:
        for binding in translate_acls(flow, [acl]).bindings:
            found.setdefault(binding, []).append(acl)
    return {binding: tuple(origins) for binding, origins in found.items()}


def can_bring_acl(flow: PlanFlow, acl: InventoryAcl) -> bool:
    """Whether another flow may have brought the right from another source."""
    return acl.resource == "GROUP" or acl.pattern == "PREFIXED" or flow.source_topic(acl.name) is not None


def is_due(pruning: AccessPruning, since_ms: int | None, now_ms: int) -> bool:
    """Whether what has been gone since then is removed by itself now."""
    return pruning.mode == "auto" and since_ms is not None and now_ms - since_ms >= pruning.after_ms


def describe_pruning(
    flow: PlanFlow, pruning: AccessPruning, kind: str, since_ms: int, now_ms: int, obstacle: str, by_hand: str
) -> str:
    """What becomes of it, as the last part of a difference's reason. kind: the key under `sync:`. obstacle: why it
    stays although it was to be removed. by_hand: the command of Kafka that removes it."""
    if pruning.mode == "never":
        return f"it stays (`sync.{kind}.prune: never`); by hand: {by_hand}"
    if obstacle:
        return f"it stays: {obstacle}; by hand: {by_hand}"
    if is_due(pruning, since_ms, now_ms):
        return f"it is removed now (`sync.{kind}.prune: auto`)"
    command = render_shell_command("topology", "flow", "prune", flow.id, "FILE")
    if pruning.mode == "auto":
        return f"it is removed {render_duration(pruning.after_ms)} after that, or before by `{command}`"
    return f"it waits for a person's decision: `{command}`"


def _explain_acls(flow: PlanFlow, here: Iterable[InventoryAcl]) -> set[InventoryAcl]:
    """All that rights of the source come to at the target, now or when rights to write are given."""
    always = replace(flow, sync=replace(flow.sync, acls=replace(flow.sync.acls, include_write="always")))
    here, told = list(here), translate_acls(flow, here)
    return {*told.bindings, *told.withheld, *translate_acls(always, here).bindings}


def _explain_blindness(flow: PlanFlow, thing: str, without: bool) -> str:
    why = "has no authorizer" if without else f"shows no {thing} at all"
    return (
        f"{flow.source} {why}, so nobody can say what was taken away there. Nothing is removed at {flow.target}. Look "
        f"at the authorizer of {flow.source}, and at the rights of Watershed's user there (`topology acls`)"
    )


def _explain_bulk(flow: PlanFlow, what: str, revoked: int, all_of_them: int) -> str:
    if revoked <= FEW_REVOKED or revoked <= MOST_REVOKED_SHARE * all_of_them:
        return ""
    return (
        f"{revoked} of {all_of_them} {what} that the sync brought are gone at {flow.source} at once, more than "
        f"{MOST_REVOKED_SHARE:.0%}. Look if {flow.source} shows all it has. If this is meant, a person removes them: "
        f"`{render_shell_command('topology', 'flow', 'prune', flow.id, 'FILE', '--above-share')}`"
    )


def _explain_kept_acl(
    flow: PlanFlow,
    record: FlowRecord | None,
    others: Iterable[PlanFlow],
    principals: Collection[str],
    acl: InventoryAcl,
) -> str:
    if acl.principal in principals or acl.name.startswith(_OWN_NAMES):
        return f"{acl.principal} is Watershed's own, or one of its roles"
    other = next((each for each in others if can_bring_acl(each, acl)), None)
    if other is not None:
        return f"flow {other.id} may bring it from {other.source}, too"
    moved = _list_moved(record)
    there = [flow.target_topic(topic) for topic in moved]
    if moved and (acl.resource == "GROUP" or is_acl_about(acl, there, ())):
        return f"applications of {', '.join(moved[:FEW_REVOKED])} have moved to {flow.target} and may need it"
    return ""


def _explain_kept_user(
    record: FlowRecord | None, others: Iterable[PlanFlow], principals: Collection[str], user: str
) -> str:
    if f"User:{user}" in principals:
        return f"{user} is Watershed's own, or one of its roles"
    other = next((each for each in others if each.sync.users.names.selects(user)), None)
    if other is not None:
        return f"flow {other.id} may bring it from {other.source}, too"
    moved = _list_moved(record)
    return f"applications of {', '.join(moved[:FEW_REVOKED])} have moved, and may be this user" if moved else ""


def _list_moved(record: FlowRecord | None) -> list[str]:
    return sorted(record.retired) if record is not None else []


def _judge_user(entry: SyncedUser, is_here: bool, is_there: bool, now_ms: int) -> SyncedUser | None:
    """The entry as it is to be written down; None: it is over. A user that was never seen on both sides may be
    another's, who made it at the target on purpose."""
    if is_here:
        made = (entry.made_ms or now_ms) if is_there else None
        return replace(entry, made_ms=made, revoked_ms=None)
    if not is_there or entry.made_ms is None:
        return None
    return replace(entry, revoked_ms=now_ms if entry.revoked_ms is None else entry.revoked_ms)


def _list_credentials(users: ClusterUsers) -> set[tuple[str, str]]:
    return {(user, mechanism) for user, mechanisms in users.items() for mechanism in mechanisms}
