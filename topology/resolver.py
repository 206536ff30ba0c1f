"""Builds the clusters, flows and migration of the plan from the checked values of the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from watershed.topology.application_controls import (
    AirflowControl,
    HttpAuthentication,
    KubernetesControl,
    PlanApplication,
)
from watershed.topology.breach_policy import BreachPolicy
from watershed.topology.declared_compatibility import (
    build_mirror_compatibility,
    keep_source_groups_apart,
    leave_out_tool_topics,
)
from watershed.topology.egress_compression import EgressCompression, build_egress_compression
from watershed.topology.external_expansion import (
    build_declared_naming,
    build_external_flow,
    find_external_flow_problems,
)
from watershed.topology.finding import Label, Problem
from watershed.topology.migration_waves import (
    ApprovalGate,
    ConsumerLagGate,
    Decommission,
    GroupPolicy,
    HoldGate,
    HookGate,
    JournalKeys,
    LagGate,
    PlanHook,
    PlanMigration,
    ProofGate,
    RollbackPolicy,
    StragglersGate,
    Wave,
    WaveFence,
    WaveGate,
    WaveHooks,
    WaveWindow,
    complete_late_waves,
)
from watershed.topology.model import CheckedValue, Flow, Topology
from watershed.topology.naming import Naming
from watershed.topology.pattern_expansion import FlowDraft, expand_flows, merge_settings
from watershed.topology.plan import PlanCluster, PlanFlow, PlanKerberos, PlanOAuth, PlanRegistry, PlanSecurity
from watershed.topology.proof_policy import DEFAULT_RECHECK_SHARE, ProofPolicy
from watershed.topology.selectors import TopicSelection, sort_selectors
from watershed.topology.stretch_layout import StretchLayout
from watershed.topology.sync_settings import (
    DEFAULT_PRUNE_AFTER_MS,
    GROUP_SYNC_INTERVAL_MS,
    NO_SYNC,
    AccessPruning,
    AclSync,
    GroupSync,
    NameFilter,
    QuotaSync,
    SchemaSync,
    SyncSettings,
    UserSync,
)
from watershed.topology.token_providers import DEFAULT_TOKEN_PROVIDER, PROVIDER_KEYS
from watershed.topology.token_settings_check import find_token_problems

_OAUTH_KEYS = ("token_endpoint", "scope", "ca", "region", "role", "tenant", "client_id")
_WITHOUT_ACCOUNT = ("GSSAPI", "OAUTHBEARER")  # the latter: its provider decides

# not synced by default: they belong to the target's brokers (apache/kafka DefaultConfigPropertyFilter.java)
DEFAULT_EXCLUDED_CONFIGS = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)


def resolve_topology(root: CheckedValue, file: str) -> tuple[Topology, list[Problem]]:
    """The topology, as far as the file could be read. A flow without source, target or topics is left out."""
    drafts, problems = expand_flows(root)
    flows = []
    shared = _Shared(root)
    for draft in drafts:
        if not draft.settings.list("topics", "include"):
            if draft.settings.at("topics", "include") is None:
                message = f"flow {draft.id} says no `topics.include`"
                problems.append(Problem("SYN012", message, (Label(draft.declared),), draft.path, ids=(draft.id,)))
            continue
        flows.append(Flow(_plan_flow(draft, shared), draft.settings, draft.declared, draft.path))
    external, more = _external_flows(root, {draft.id for draft in drafts})
    problems += more
    clusters = root.at("clusters")
    for alias, value in clusters.fields.items() if clusters else ():
        problems += _connection_problems(alias, value)
    topology = Topology(
        file=file,
        name=root.get("metadata", "name", default=""),
        root=root,
        clusters={alias: _cluster(alias, value) for alias, value in (clusters.fields if clusters else {}).items()},
        flows=keep_source_groups_apart(flows),
        migration=_migration(root.at("migration")),
        external_flows=external,
    )
    return topology, problems


def _external_flows(root: CheckedValue, flow_ids: Collection[str]) -> tuple[tuple[Flow, ...], list[Problem]]:
    """Those that say who copies what from where to where. Of two with one name only the first."""
    problems = list(find_external_flow_problems(root, flow_ids))
    found: dict[str, Flow] = {}
    for index, value in enumerate(root.list("external_flows")):
        path = f"external_flows[{index}]"
        if value.at("topics") is not None and not value.list("topics", "include"):
            message = f"external flow {value.get('name')} says no `topics.include`"
            problems.append(Problem("SYN012", message, (Label(value.span),), path))
        elif all(value.get(name) is not None for name in ("name", "tool", "source", "target")) and value.at("topics"):
            source_id = root.get("clusters", value.get("source"), "cluster_id")
            flow = build_external_flow(value, path, _selection(value), source_id)
            found.setdefault(flow.id, flow)
    return tuple(found[name] for name in sorted(found)), problems


def _connection_problems(alias: str, cluster: CheckedValue) -> Iterable[Problem]:
    """What a client would refuse only when it connects."""
    security = cluster.at("security")
    if security is None or security.at("protocol") is None:
        return
    protocol, mechanism, path = security.get("protocol"), security.get("mechanism"), f"clusters.{alias}.security"
    here = security.at("mechanism") or security.at("protocol")
    assert here is not None, "the protocol is there"
    if protocol.startswith("SASL_") and mechanism is None:
        yield Problem("SYN012", f"`{path}`: {protocol} needs a `mechanism`", (Label(here.span),), path)
    elif protocol.startswith("SASL_") and mechanism not in _WITHOUT_ACCOUNT and security.at("credentials") is None:
        message, help_ = f"`{path}`: {mechanism} needs `credentials`", "say where they are: {env: NAME}, {file: path}"
        yield Problem("SYN012", message, (Label(here.span),), path, help=help_)
    elif mechanism is not None and not protocol.startswith("SASL_"):
        message = f"`{path}`: `mechanism: {mechanism}` needs the protocol SASL_SSL (or SASL_PLAINTEXT), not {protocol}"
        yield Problem("SYN009", message, (Label(here.span),), path, help="change the protocol, or drop the mechanism")
    for section, wanted in (("provider", "OAUTHBEARER"), ("oauth", "OAUTHBEARER"), ("kerberos", "GSSAPI")):
        said = security.at(section)
        if said is not None and mechanism != wanted:
            message = (
                f"`{path}`: `{section}` goes with `mechanism: {wanted}`, not {mechanism or f'with {protocol} alone'}"
            )
            yield Problem("SYN009", message, (Label(said.span),), path, help=f"set that mechanism, or drop `{section}`")
    opened = {"ca_password": ("ca",), "certificate_password": ("certificate", "credentials")}
    for name, stores in opened.items():
        said = security.at(name)
        if said is not None and not any(security.at(each) for each in stores):
            message = f"`{path}`: `{name}` opens a key store, and there is no `{stores[0]}`"
            yield Problem("SYN009", message, (Label(said.span),), path, help=f"name the store as `{stores[0]}`")
    if mechanism == "OAUTHBEARER":
        yield from find_token_problems(path, security, here)


def build_section_selection(settings: CheckedValue, defaults: CheckedValue | None) -> TopicSelection | None:
    """What a section's `topics` select, `defaults` under it; None when it includes nothing."""
    merged = merge_settings(defaults, settings)
    return _selection(merged) if merged.list("topics", "include") else None


def _selection(settings: CheckedValue) -> TopicSelection:
    return TopicSelection(
        include=sort_selectors(settings.texts("topics", "include")),
        exclude=sort_selectors(settings.texts("topics", "exclude")),
        allow_internal=settings.get("topics", "allow_internal", default=False),
    )


def _fields(value: CheckedValue | None) -> Iterable[tuple[str, CheckedValue]]:
    return () if value is None else value.fields.items()


def _cluster(alias: str, value: CheckedValue) -> PlanCluster:
    security = value.at("security")
    return PlanCluster(
        alias=alias,
        bootstrap=value.texts("bootstrap"),
        cluster_id=value.get("cluster_id"),
        security=PlanSecurity() if security is None else _security(security),
        registry=_registry(value.at("schema_registry")),
        rack=value.get("rack"),
        stretch=_stretch(value),
    )


def _stretch(cluster: CheckedValue) -> StretchLayout | None:
    said = cluster.at("stretch")
    if said is None:
        return None
    return StretchLayout(
        cluster.texts("regions"),
        tuple(sorted((region, each.data) for region, each in _fields(said.at("sync_replicas")))),
        said.get("tie_breaker"),
        said.texts("observers"),
    )


def _registry(value: CheckedValue | None) -> PlanRegistry | None:
    if value is None or value.get("url") is None:
        return None
    references = ("credentials", "ca", "certificate", "key", "key_password")
    return PlanRegistry(value.get("url").rstrip("/"), **{name: value.get(name) for name in references})


def _security(value: CheckedValue) -> PlanSecurity:
    kerberos = value.at("kerberos")
    return PlanSecurity(
        protocol=value.get("protocol", default="PLAINTEXT"),
        mechanism=value.get("mechanism"),
        credentials=value.get("credentials"),
        align_credentials=value.get("align_credentials"),
        ca=value.get("ca"),
        ca_password=value.get("ca_password"),
        certificate_password=value.get("certificate_password"),
        certificate=value.get("certificate"),
        key=value.get("key"),
        key_password=value.get("key_password"),
        oauth=_oauth(value),
        kerberos=None
        if kerberos is None
        else PlanKerberos(
            service=kerberos.get("service", default="kafka"),
            principal=kerberos.get("principal"),
            keytab=kerberos.get("keytab"),
        ),
    )


def _oauth(security: CheckedValue) -> PlanOAuth | None:
    """None where nothing says where tokens come from, which is a problem of its own."""
    provider = security.get("provider", default=DEFAULT_TOKEN_PROVIDER)
    said = {name: security.get("oauth", name) for name in _OAUTH_KEYS}
    undeclared = security.at("oauth") is None and security.at("provider") is None
    if undeclared or any(said[name] is None for name in PROVIDER_KEYS[provider].required):
        return None
    extensions = tuple(sorted((name, each.data) for name, each in _fields(security.at("oauth", "extensions"))))
    return PlanOAuth(extensions=extensions, provider=provider, **said)


class _Shared:
    """What many flows have from one place (`defaults:`, a pattern) is made once: ten thousand flows may share ten
    thousand names. Keyed by the values themselves, which all live as long as the file."""

    def __init__(self, root: CheckedValue) -> None:
        self._root = root
        self._selections: dict[tuple[int, int, bool], TopicSelection] = {}
        self._maps: dict[int, Naming] = {}

    def selection(self, settings: CheckedValue) -> TopicSelection:
        include, exclude = settings.at("topics", "include"), settings.at("topics", "exclude")
        key = (id(include), id(exclude), settings.get("topics", "allow_internal", default=False))
        found = self._selections.get(key)
        if found is None:
            found = self._selections[key] = _selection(settings)
        return found

    def naming(self, draft: FlowDraft) -> Naming:
        renames = draft.settings.at("naming", "map")
        if renames is None or draft.settings.get("naming", "policy") != "map":
            return self._build(draft)
        found = self._maps.get(id(renames))
        if found is None:
            found = self._maps[id(renames)] = self._build(draft)
        return found

    def _build(self, draft: FlowDraft) -> Naming:
        policy = draft.settings.get("naming", "policy", default="identity")
        return build_declared_naming(draft.settings, policy, draft.source, draft.target)

    def find_source_rack(self, draft: FlowDraft) -> str | None:
        """The rack of the source that the flow's workers stand in, where the file says one."""
        near = draft.settings.at("workers", "near")
        if near is None or near.data == "target":
            return None
        rack = near.get("rack") if near.data is None else self._root.get("clusters", draft.source, "rack")
        return None if rack is None else str(rack)


def _plan_flow(draft: FlowDraft, shared: _Shared) -> PlanFlow:
    settings = draft.settings
    transactions = settings.get("delivery", "semantics") == "transactions"
    sync, offsets = _sync(settings), settings.get("offsets", default="mapped")
    rewritten = offsets == "aligned" and sync.schemas.translated
    compatibility, naming = build_mirror_compatibility(settings, draft.source, draft.target), shared.naming(draft)
    return PlanFlow(
        id=draft.id,
        source=draft.source,
        target=draft.target,
        topics=leave_out_tool_topics(shared.selection(settings), compatibility, naming),
        naming=naming,
        guard=settings.get("provenance", "guard", default="producer_id"),
        header=settings.get("provenance", "header"),
        forward=settings.get("provenance", "forward", default="all"),
        engine=settings.get("workers", "engine", default="spark"),
        workers=settings.get("workers", "count", default=1),
        quota=settings.get("workers", "quota"),
        discovery_ms=settings.get("workers", "discovery", default=10_000),
        state=settings.get("state", default="running"),
        offsets="mapped" if rewritten else offsets,
        offsets_reason="records get other schema ids on their way (sync.schemas.ids)" if rewritten else "",
        start=settings.get("delivery", "start", default="earliest"),
        end=settings.get("delivery", "end"),
        replication_factor=settings.get("replication_factor"),
        sync_configs=settings.get("sync", "configs", "mode", default="once"),
        sync_configs_include=_sorted(settings.texts("sync", "configs", "include")),
        sync_configs_exclude=_sorted(settings.texts("sync", "configs", "exclude")) or DEFAULT_EXCLUDED_CONFIGS,
        configs_set=tuple(sorted((key, value.data) for key, value in _fields(settings.at("sync", "configs", "set")))),
        verify=_proof_policy(settings),
        merge=settings.get("merge", "allowed", default=False),
        delivery="transactions" if transactions else "sequence",  # `topology.delivery_mode` may change it
        delivery_reason="the file asks for them" if transactions else "",
        allows_repeats=settings.get("delivery", "semantics") == "at_least_once",
        isolation=settings.get("delivery", "isolation", default="read_committed"),
        on_gap=settings.get("delivery", "on_gap", default="stop"),
        rejected=settings.get("delivery", "rejected", default="stop"),
        weight=settings.get("workers", "weight", default=1),
        grow=settings.get("partitions", "mode", default="grow") == "grow",
        sync=sync,
        placement=settings.get("workers", "placement", default="embedded"),
        heal_ms=settings.get("workers", "heal"),
        compression=_compression(settings.at("compression")),
        transform=settings.get("transform"),
        protect=settings.get("protect", default=False),
        source_rack=shared.find_source_rack(draft),
        compatibility=compatibility,
        breach=_breach(settings),
    )


def _breach(settings: CheckedValue) -> BreachPolicy | None:
    """Nothing acts without a limit; `topology.unsupported_settings` says so."""
    action, lag_max_ms = settings.get("slo", "on_breach", default="alert"), settings.get("slo", "lag", "max")
    return BreachPolicy(action, lag_max_ms) if action != "alert" and lag_max_ms else None


def _compression(value: CheckedValue | None) -> EgressCompression | None:
    if value is None:
        return None
    return build_egress_compression(value.get("codec") if value.fields else value.data, value.get("level"))


def _sync(settings: CheckedValue) -> SyncSettings:
    if settings.at("sync") is None:
        return NO_SYNC
    renames = _fields(settings.at("sync", "groups", "rename"))
    return SyncSettings(
        GroupSync(
            settings.get("sync", "groups", "mode", default="never"),
            _names(settings, "groups"),
            settings.get("sync", "groups", "interval", default=GROUP_SYNC_INTERVAL_MS),
            tuple(sorted((name, to.data) for name, to in renames)),
            tuple(sorted(set(map(str, settings.texts("sync", "groups", "streams"))))),
        ),
        AclSync(
            settings.get("sync", "acls", "mode", default="never"),
            _names(settings, "acls"),
            settings.get("sync", "acls", "include_write", default="never"),
            prune=_pruning(settings, "acls"),
        ),
        QuotaSync(settings.get("sync", "quotas", "mode", default="never"), _names(settings, "quotas")),
        UserSync(
            settings.get("sync", "users", "mode", default="never"),
            _names(settings, "users"),
            _pruning(settings, "users"),
        ),
        SchemaSync(
            settings.get("sync", "schemas", "mode", default="never"),
            _names(settings, "schemas"),
            settings.get("sync", "schemas", "ids", default="preserve"),
            settings.get("sync", "schemas", "subjects", default="keep"),
        ),
    )


def _pruning(settings: CheckedValue, kind: str) -> AccessPruning:
    return AccessPruning(
        settings.get("sync", kind, "prune", default="never"),
        settings.get("sync", kind, "prune_after", default=DEFAULT_PRUNE_AFTER_MS),
    )


def _proof_policy(settings: CheckedValue) -> ProofPolicy:
    return ProofPolicy(
        every_ms=settings.get("verify", "every"),
        level=settings.get("verify", "level", default="L1"),
        rate=settings.get("verify", "rate"),
        fetches=settings.get("verify", "fetches"),
        pause_at_lag_ms=settings.get("verify", "pause_at_lag"),
        recheck=settings.get("verify", "recheck", default=DEFAULT_RECHECK_SHARE),
    )


def _names(settings: CheckedValue, kind: str) -> NameFilter:
    at = ("sync", kind)
    return NameFilter(sort_selectors(settings.texts(*at, "include")), sort_selectors(settings.texts(*at, "exclude")))


def _migration(value: CheckedValue | None) -> PlanMigration | None:
    if value is None or value.get("flow") is None or not value.list("waves"):
        return None
    strategy = value.get("strategy", default="consumers_first")
    applications = value.at("applications")
    decommission, hooks, groups = value.at("decommission"), value.at("hooks"), value.at("groups")
    return PlanMigration(
        flow=value.get("flow"),
        strategy=strategy,
        waves=complete_late_waves(tuple(_wave(wave, strategy, value.at("fence")) for wave in value.list("waves"))),
        applications={
            name: _application(each) for name, each in sorted((applications.fields if applications else {}).items())
        },
        decommission=None
        if decommission is None
        else Decommission(decommission.get("not_before", default=0), _sorted(decommission.texts("requires"))),
        hooks={name: _hook(each) for name, each in sorted((hooks.fields if hooks else {}).items())},
        groups={
            name: GroupPolicy(
                each.get("uncommitted"),
                each.get("state", default="refuse"),
                each.get("redelivery", default="refuse"),
                each.get("session_timeout"),
            )
            for name, each in sorted((groups.fields if groups else {}).items())
        },
        journal=_journal(value.at("journal")),
    )


def _application(value: CheckedValue) -> PlanApplication:
    proof, airflow, kubernetes = value.at("authentication"), value.at("airflow"), value.at("kubernetes")
    return PlanApplication(
        http=value.get("http"),
        principal=value.get("principal"),
        client_id=value.get("client_id"),
        authentication=None
        if proof is None
        else HttpAuthentication(
            proof.get("bearer"),
            proof.get("hmac"),
            *(proof.get("mtls", name) for name in ("certificate", "key", "ca")),
        ),
        person=value.get("person"),
        command=value.get("command"),
        airflow=None
        if airflow is None
        else AirflowControl(airflow.get("stop", default=""), airflow.get("start", default="")),
        kubernetes=None if kubernetes is None else _kubernetes(kubernetes),
        timeout_ms=value.get("timeout"),
    )


def _kubernetes(value: CheckedValue) -> KubernetesControl:
    values = value.at("bootstrap", "values")
    return KubernetesControl(
        namespace=value.get("namespace", default=""),
        workloads=value.texts("workloads"),
        env=value.get("bootstrap", "env"),
        container=value.get("bootstrap", "container"),
        config_map=value.get("bootstrap", "config_map"),
        key=value.get("bootstrap", "key"),
        values={alias: each.data for alias, each in sorted((values.fields if values else {}).items())},
        credentials=value.get("credentials"),
        context=value.get("context"),
    )


def _journal(value: CheckedValue | None) -> JournalKeys | None:
    if value is None or value.get("key") is None:
        return None
    return JournalKeys(value.get("key"), tuple(each.data for each in value.list("earlier_keys")))


def _hook(value: CheckedValue) -> PlanHook:
    return PlanHook(
        airflow_task=value.get("airflow_task"),
        http=value.get("http"),
        python=value.get("python"),
        secret=value.get("secret"),
        timeout_ms=value.get("timeout", default=60_000),
        on_failure=value.get("on_failure", default="refuse"),
    )


def _fence(value: CheckedValue | None, migrations: CheckedValue | None) -> WaveFence:
    chosen = value or migrations
    if chosen is None:
        return WaveFence()
    return WaveFence(chosen.get("kind", default="stop"), chosen.get("hook"), chosen.get("rate", default=1))


def _wave(value: CheckedValue, strategy: str, fence: CheckedValue | None) -> Wave:
    rollback, window, hooks = value.at("rollback"), value.at("window"), value.at("hooks")
    return Wave(
        name=value.get("name", default=""),
        topics=tuple(selector.text for selector in value.texts("topics")),
        consumers=value.texts("consumers"),
        producers=value.texts("producers"),
        after=value.texts("after"),
        strategy=value.get("strategy", default=strategy),
        gates_before=tuple(_gates(value.list("gates", "before"))),
        gates_after=tuple(_gates(value.list("gates", "after"))),
        rollback=None
        if rollback is None
        else RollbackPolicy(rollback.get("until"), rollback.get("reverse"), rollback.get("none")),
        window=None if window is None else WaveWindow(window.get("opens", default=""), window.get("length", default=0)),
        fence=_fence(value.at("fence"), fence),
        hooks=WaveHooks()
        if hooks is None
        else WaveHooks(
            hooks.texts("before"), hooks.texts("fenced"), hooks.texts("switched"), hooks.texts("rolled_back")
        ),
    )


def _gates(values: Iterable[CheckedValue]) -> Iterable[WaveGate]:
    for value in values:
        for kind, gate in value.fields.items():
            if kind == "lag":
                yield LagGate(gate.get("max_records", default=0), gate.get("hold", default=0))
            elif kind == "verify":
                yield ProofGate(gate.get("level", default="L1"), gate.get("sample", default=1.0))
            elif kind == "approval":
                yield ApprovalGate(gate.data)
            elif kind == "stragglers":
                yield StragglersGate(gate.get("watch", default=0))
            elif kind == "consumer_lag":
                yield ConsumerLagGate(gate.get("max_records", default=0), gate.get("within", default=0))
            elif kind == "hold":
                yield HoldGate(gate.get("for", default=0))
            elif kind == "check":
                yield HookGate(gate.get("hook", default=""))


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))
