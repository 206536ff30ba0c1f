"""What each cluster gets: topics, SCRAM users, ACLs and client quotas, from a plan and an inventory. Pure.

The same functions decide here as where the replicator creates things (`target_configs`, `acl_translation`). What
cannot be carried over is listed with the reason; nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from watershed.topology.acl_translation import render_acl, takes_from, translate_acls
from watershed.topology.drift import classify_config_change
from watershed.topology.errors import IncompleteInventory
from watershed.topology.inventory import Inventory, InventoryAcl, InventoryCluster, InventoryTopic
from watershed.topology.plan import Plan, PlanCluster, PlanFlow
from watershed.topology.quota_entity_text import QuotaKey, parse_quota_entity
from watershed.topology.target_configs import count_created_replicas, find_withdrawn_topic_configs, plan_target_configs

AssetKind = Literal["topics", "users", "acls", "quotas"]
ASSET_KINDS: Final[tuple[AssetKind, ...]] = get_args(AssetKind)
_FENCED_LIMIT: Final = "producer_byte_rate"  # what a migration's fence lowers (clusters.producer_fence)
# Lines of `InventoryCluster.not_seen` begin with these words (clusters.inventory_scan).
_NOT_SEEN: Final[Mapping[AssetKind, str]] = {"users": "SCRAM users", "acls": "ACLs", "quotas": "client quotas"}


@dataclass(frozen=True, slots=True)
class AssetTopic:
    """A topic as it is created. configs: its own, by Kafka's key. exists: the scan saw it at the target; then
    partitions, replicas and configs are those that it has, but for what `topology apply` would change."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str]
    exists: bool = False


@dataclass(frozen=True, slots=True)
class AssetUser:
    """A SCRAM user. mechanisms: `SCRAM-SHA-512` → iterations. Nobody can read its password (KIP-554). existing: the
    mechanisms with which the target has this user; its password there must not be written over."""

    name: str
    mechanisms: Mapping[str, int]
    existing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AssetQuota:
    """Limits of one entity, for each broker. entity: pairs of `user` or `client-id` and a name, the user first; a name
    of None is the default. limits: `producer_byte_rate` → bytes a second, `request_percentage` → percent, …"""

    entity: QuotaKey
    limits: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LeftOutAsset:
    """Something that is in no file, and why. what: for people, such as `acl User:ann READ topic orders`."""

    kind: AssetKind
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class TargetAssets:
    """What one cluster gets. Lists are sorted by name, ACLs with denials first. withheld: number of rights to write
    that are not among the ACLs, because `include_write` does not say `always`. with_password: users whom the cluster
    has with SCRAM-SHA-512, whether they are among `users` or not."""

    cluster: PlanCluster
    topics: tuple[AssetTopic, ...] = ()
    users: tuple[AssetUser, ...] = ()
    acls: tuple[InventoryAcl, ...] = ()
    quotas: tuple[AssetQuota, ...] = ()
    left_out: tuple[LeftOutAsset, ...] = ()
    withheld: int = 0
    with_password: frozenset[str] = frozenset()

    def is_empty(self) -> bool:
        """Whether there is nothing to write down for this cluster."""
        return not (self.topics or self.users or self.acls or self.quotas)

    def leave_out(self, left_out: Iterable[LeftOutAsset]) -> TargetAssets:
        """The same with more things that a format cannot say."""
        return replace(self, left_out=(*self.left_out, *left_out))


@dataclass(frozen=True, slots=True)
class AssetChoice:
    """What is wanted. clusters: only these; empty: all. write_rights: also the rights to write, whatever
    `include_write` says. own_topics, own_acls: by cluster, what Watershed itself needs there, whatever the kinds."""

    kinds: frozenset[AssetKind] = frozenset(ASSET_KINDS)
    clusters: frozenset[str] = frozenset()
    write_rights: bool = False
    own_topics: Mapping[str, tuple[AssetTopic, ...]] = field(default_factory=dict)
    own_acls: Mapping[str, tuple[InventoryAcl, ...]] = field(default_factory=dict)


def collect_target_assets(plan: Plan, inventory: Inventory, choice: AssetChoice) -> tuple[TargetAssets, ...]:
    """One for each cluster that gets something or has something left out, in the order of their aliases.

    Flows that are paused bring nothing, as in `topology.drift`. A target that was never scanned counts as empty.
    Raises IncompleteInventory where the source of a running flow to a chosen cluster was not scanned, where the scan
    could not read the target, and where users would come to a target whose own could not be read.
    """
    found = []
    for cluster in plan.clusters:
        if choice.clusters and cluster.alias not in choice.clusters:
            continue
        flows = [flow for flow in plan.flows if flow.target == cluster.alias and flow.state == "running"]
        sources = {flow.id: _find_source(inventory, flow) for flow in flows}
        if flows and cluster.alias in inventory.missing:
            raise IncompleteInventory(
                f"cluster {cluster.alias} could not be scanned ({inventory.missing[cluster.alias]}), so nobody knows "
                "what it has. Scan it again: `topology scan FILE --update -o INVENTORY`"
            )
        target = inventory.cluster(cluster.alias) or InventoryCluster(cluster.alias, "", 0, users={})
        assets = _Collected(cluster, target, choice).collect(flows, sources)
        if not assets.is_empty() or assets.left_out:
            found.append(assets)
    return tuple(found)


def keep_acls(
    acls: Iterable[InventoryAcl], find_problem: Callable[[InventoryAcl], str], left: list[LeftOutAsset]
) -> tuple[InventoryAcl, ...]:
    """The ACLs that can be said. find_problem: why an ACL cannot be said; empty: it can.

    An ALLOW that such a DENY restricts is left out, too: without the DENY, the target would allow more.
    """
    problems = [(acl, find_problem(acl)) for acl in acls]
    denials = [acl for acl, why in problems if why and acl.permission == "DENY"]
    kept = []
    for acl, problem in problems:
        why = problem
        if not why and acl.permission == "ALLOW":
            denial = next((each for each in denials if takes_from(each, acl)), None)
            why = f"{render_acl(denial)} restricts it and cannot be said" if denial else ""
        if why:
            left.append(LeftOutAsset("acls", render_acl(acl), why))
        else:
            kept.append(acl)
    return tuple(kept)


def render_quota_key(entity: QuotaKey) -> str:
    """For people: `user=ann, client-id=<default>`."""
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


def _find_source(inventory: Inventory, flow: PlanFlow) -> InventoryCluster:
    source = inventory.cluster(flow.source)
    if source is None:
        known = ", ".join(sorted(inventory.clusters)) or "none"
        raise IncompleteInventory(
            f"flow {flow.id} copies from cluster {flow.source}, which the inventory does not have (it has {known}); "
            "scan it: `topology scan FILE -o INVENTORY`"
        )
    return source


class _Collected:
    """What one cluster gets, flow by flow."""

    def __init__(self, cluster: PlanCluster, target: InventoryCluster, choice: AssetChoice) -> None:
        self.cluster, self.target, self.choice = cluster, target, choice
        self.topics: dict[str, AssetTopic] = {}
        self.brought_by: dict[str, str] = {}
        self.users: dict[str, dict[str, int]] = {}
        self.acls: dict[InventoryAcl, None] = {}
        self.withheld: set[InventoryAcl] = set()
        self.quotas: dict[QuotaKey, dict[str, float]] = {}
        self.left_out: dict[LeftOutAsset, None] = {}

    def collect(self, flows: list[PlanFlow], sources: Mapping[str, InventoryCluster]) -> TargetAssets:
        for flow in flows:
            source = sources[flow.id]
            for kind, add in (
                ("topics", self._add_topics),
                ("users", self._add_users),
                ("acls", self._add_acls),
                ("quotas", self._add_quotas),
            ):
                if kind in self.choice.kinds:
                    add(flow, source)
        alias = self.cluster.alias
        for topic in self.choice.own_topics.get(alias, ()):
            self.topics[topic.name] = self._meet_existing(topic, self.target.topics.get(topic.name), None)
        own = self.choice.own_acls.get(alias, ())
        # Denials first: nobody has more rights while ACLs are applied than afterwards.
        acls = sorted((*self.acls, *own), key=lambda acl: acl.permission != "DENY")
        return TargetAssets(
            self.cluster,
            tuple(topic for _, topic in sorted(self.topics.items())),
            tuple(self._build_user(name, each) for name, each in sorted(self.users.items())),
            tuple(dict.fromkeys(acls)),
            tuple(AssetQuota(key, limits) for key, limits in sorted(self.quotas.items(), key=_order_quota)),
            tuple(self.left_out),
            len(self.withheld - self.acls.keys()),
            frozenset(name for name, known in (self.target.users or {}).items() if "SCRAM-SHA-512" in known),
        )

    def _build_user(self, name: str, mechanisms: Mapping[str, int]) -> AssetUser:
        there = (self.target.users or {}).get(name, {})
        return AssetUser(name, dict(sorted(mechanisms.items())), frozenset(there.keys() & mechanisms.keys()))

    def _leave(self, kind: AssetKind, what: str, why: str) -> None:
        self.left_out[LeftOutAsset(kind, what, why)] = None

    def _add_topics(self, flow: PlanFlow, source: InventoryCluster) -> None:
        for name, here in sorted(source.topics.items()):
            if not flow.selects(name):
                continue
            arriving = flow.target_topic(name)
            if arriving in self.topics:
                self._merge_topic(flow, arriving, here)
                continue
            replicas = count_created_replicas(flow, here.replication_factor, len(self.target.brokers))
            planned = AssetTopic(arriving, here.partitions, replicas, plan_target_configs(flow, here, self.target))
            self.topics[arriving] = self._meet_existing(planned, self.target.topics.get(arriving), flow)
            self.brought_by[arriving] = flow.id
            for key, why in find_withdrawn_topic_configs(flow, here, self.target).items():
                self._leave("topics", f"{key} of topic {arriving}", f"{self.target.alias} knows no such config: {why}")

    def _meet_existing(self, planned: AssetTopic, there: InventoryTopic | None, flow: PlanFlow | None) -> AssetTopic:
        """A topic that is there stays as it is, but for what `topology apply` and the workers would change, too: more
        partitions (`partitions.mode: grow`), and configs that are kept equal, where that is safe. A tool that declares
        less would take away what the topic has. flow: None for Watershed's own topics."""
        if there is None:
            return planned
        configs = {key: there.configs[key] for key in sorted(there.overridden) if key in there.configs}
        if flow is not None and flow.sync_configs == "continuous":
            configs |= self._keep_safe(planned, there)
        partitions = max(planned.partitions, there.partitions) if flow is not None and flow.grow else there.partitions
        return AssetTopic(planned.name, partitions, there.replication_factor, configs, exists=True)

    def _keep_safe(self, planned: AssetTopic, there: InventoryTopic) -> dict[str, str]:
        """The planned configs that a topic with records may get. The others are left out, by name."""
        kept = {}
        for key, wanted in planned.configs.items():
            live = there.config(key)
            drift, why = ("safe", "") if live == wanted else classify_config_change(key, live or "", wanted)
            if drift == "safe":
                kept[key] = wanted
            else:
                shown = "an unknown value" if live is None else live
                self._leave("topics", f"{key} of topic {planned.name}", f"{shown} stays, {wanted} is {drift}: {why}")
        return kept

    def _merge_topic(self, flow: PlanFlow, arriving: str, here: InventoryTopic) -> None:
        """The first flow creates it; a second one only needs as many partitions."""
        known = self.topics[arriving]
        if flow.grow or not known.exists:
            self.topics[arriving] = replace(known, partitions=max(known.partitions, here.partitions))
        wanted = plan_target_configs(flow, here, self.target)
        if not known.exists and wanted != dict(known.configs):
            differing = sorted(key for key in {*wanted, *known.configs} if wanted.get(key) != known.configs.get(key))
            first = self.brought_by.get(arriving, "Watershed")
            why = f"{first} brings the topic, too, with other values: {', '.join(differing)}"
            self._leave("topics", f"configs of topic {arriving} by flow {flow.id}", why)

    def _add_users(self, flow: PlanFlow, source: InventoryCluster) -> None:
        if source.users is None:
            self._leave_unseen("users", source)
        for name, mechanisms in sorted((source.users or {}).items()):
            if not mechanisms or not flow.sync.users.names.selects(name):
                continue
            if self.target.users is None:
                raise IncompleteInventory(
                    f"flow {flow.id} brings users to {flow.target}, and the inventory does not have its own users, "
                    "whose passwords would be written over. Scan it with a user that may describe the cluster, or "
                    "leave users out: `--only topics --only acls --only quotas`"
                )
            known = self.users.setdefault(name, {})
            for mechanism, iterations in mechanisms.items():
                known[mechanism] = max(iterations, known.get(mechanism, 0))

    def _add_acls(self, flow: PlanFlow, source: InventoryCluster) -> None:
        if source.acls is None:
            self._leave_unseen("acls", source)
        always = replace(flow, sync=replace(flow.sync, acls=replace(flow.sync.acls, include_write="always")))
        whole = translate_acls(always, source.acls or ())
        translated = whole if self.choice.write_rights else translate_acls(flow, source.acls or ())
        self.acls |= dict.fromkeys(translated.bindings)
        self.withheld.update(whole.bindings)
        for each in translated.left:
            self._leave("acls", render_acl(each.acl), each.why)

    def _add_quotas(self, flow: PlanFlow, source: InventoryCluster) -> None:
        self._leave_unseen("quotas", source)
        for text, limits in sorted(source.quotas.items()):
            entity = parse_quota_entity(text)
            if entity is None:
                self._leave("quotas", text, "nobody can tell where a name in it ends; set it by hand")
            elif flow.sync.quotas.selects(entity):
                self._add_limits(flow, entity, limits)

    def _add_limits(self, flow: PlanFlow, entity: QuotaKey, limits: Mapping[str, float]) -> None:
        if any(kind == "ip" for kind, _ in entity):
            why = "clients have other addresses there"
            self._leave("quotas", render_quota_key(entity), why)
            return
        for key, value in sorted(limits.items()):
            if key == _FENCED_LIMIT and flow.sync.quotas.is_fence(dict(entity)):
                continue  # it stays at the source
            first = self.quotas.setdefault(entity, {}).setdefault(key, value)
            if first != value:
                why = f"another source carries {render_limit(first)} to {flow.target}; exclude one of the two"
                self._leave("quotas", f"{key} of {render_quota_key(entity)} by flow {flow.id}", why)

    def _leave_unseen(self, kind: AssetKind, source: InventoryCluster) -> None:
        """What the scan says of this kind; a kind that was not read is none without a reason."""
        told = [line for line in source.not_seen if line.startswith(_NOT_SEEN[kind])]
        if not told and kind != "quotas":
            told = [f"{_NOT_SEEN[kind]}: the inventory does not have them; scan again"]
        for line in told:
            self._leave(kind, f"{_NOT_SEEN[kind]} of {source.alias}", line.partition(": ")[2])


def render_limit(value: float) -> str:
    """A limit as tools read it: `1048576`, `12.5`."""
    return str(int(value)) if value.is_integer() else str(value)


def _order_quota(item: tuple[QuotaKey, object]) -> tuple[tuple[str, bool, str], ...]:
    return tuple((kind, name is not None, name or "") for kind, name in item[0])
