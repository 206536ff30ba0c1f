"""The compiled plan, the input of all other rooms: plain data, canonical JSON, one content hash.

The hash covers the whole document except itself. Two machines that compile the same file get the same hash, and a run
that is pinned to a hash notices when the file changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from watershed.topology.bounded_json import parse_json_object
from watershed.topology.breach_policy import BreachPolicy
from watershed.topology.copy_bounds import CopyEnd, CopyStart, decode_bound, encode_bound
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.errors import NotInPlan, UnknownKeys, UnreadablePlan
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.migration_waves import PlanMigration
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.naming import Naming
from watershed.topology.proof_policy import PROVEN_ON_DEMAND, ProofPolicy
from watershed.topology.record_transform import RecordTransform
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import TopicSelection
from watershed.topology.stretch_layout import StretchLayout
from watershed.topology.sync_settings import NO_SYNC, SyncMode, SyncSettings
from watershed.topology.token_providers import DEFAULT_TOKEN_PROVIDER, TokenProvider

_SCHEMA = 1
_IDENTITY = Naming()
# Topic configs that are never synced: they describe the source's brokers, or would make the target rewrite batches.
# compression.type: only `producer` stores batches as they come (docs/research/batches.md, 1.3).
NEVER_SYNCED_CONFIGS = frozenset(
    {
        "compression.type",
        "min.insync.replicas",
        "message.timestamp.type",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.storage.enable",
        "unclean.leader.election.enable",
    }
)
_Protocol = Literal["PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"]
WorkerPlacement = Literal["embedded", "task", "external"]


@dataclass(frozen=True, slots=True)
class PlanOAuth:
    """Where OAUTHBEARER gets its tokens. What the cluster's credentials hold depends on the provider
    (`topology.token_providers`): with client credentials the client's id and secret."""

    token_endpoint: str | None = None
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    ca: SecretRef | None = None
    provider: TokenProvider = DEFAULT_TOKEN_PROVIDER
    region: str | None = None
    role: str | None = None
    tenant: str | None = None
    client_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON form of the plan. What older plans did not have is left out where unused: they keep their hash."""
        value = asdict(self) | {"extensions": dict(self.extensions)}
        late = {"provider": DEFAULT_TOKEN_PROVIDER} | dict.fromkeys(("region", "role", "tenant", "client_id"))
        return {key: each for key, each in value.items() if key not in late or each != late[key]}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> PlanOAuth | None:
        """Reads the JSON form of the plan."""
        if value is None:
            return None
        extensions = tuple(sorted(value["extensions"].items()))
        return cls(**value | {"extensions": extensions, "ca": SecretRef.from_json(value["ca"])})


@dataclass(frozen=True, slots=True)
class PlanKerberos:
    """For GSSAPI. service is the first part of the brokers' principals."""

    service: str = "kafka"
    principal: str | None = None
    keytab: SecretRef | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> PlanKerberos | None:
        """Reads the JSON form of the plan."""
        if value is None:
            return None
        return cls(value["service"], value["principal"], SecretRef.from_json(value["keytab"]))


@dataclass(frozen=True, slots=True)
class PlanSecurity:
    """`mechanism` is Kafka's sasl.mechanism, only with a SASL protocol. key_password opens `key`; ca_password and
    certificate_password open key stores. align_credentials: of the account that deletes records for `offsets: aligned`,
    where that is another one."""

    protocol: _Protocol = "PLAINTEXT"
    mechanism: str | None = None
    credentials: SecretRef | None = None
    ca: SecretRef | None = None
    certificate: SecretRef | None = None
    key: SecretRef | None = None
    key_password: SecretRef | None = None
    oauth: PlanOAuth | None = None
    kerberos: PlanKerberos | None = None
    align_credentials: SecretRef | None = None
    ca_password: SecretRef | None = None
    certificate_password: SecretRef | None = None

    def to_json(self) -> dict[str, Any]:
        """The `security` of a cluster in the plan: references to secrets, never their values."""
        value = asdict(self)
        # Left out where unused: older plans keep their hash.
        for late in ("key_password", "oauth", "kerberos", "align_credentials", "ca_password", "certificate_password"):
            if value[late] is None:
                del value[late]
        if self.oauth is not None:
            value["oauth"] = self.oauth.to_json()
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PlanSecurity:
        """Reads the JSON form of the plan."""
        references = ("credentials", "ca", "ca_password", "certificate", "certificate_password", "key", "key_password")
        return cls(
            protocol=value["protocol"],
            mechanism=value["mechanism"],
            oauth=PlanOAuth.from_json(value.get("oauth")),
            kerberos=PlanKerberos.from_json(value.get("kerberos")),
            **{key: SecretRef.from_json(value.get(key)) for key in (*references, "align_credentials")},
        )


@dataclass(frozen=True, slots=True)
class PlanRegistry:
    """A schema registry with the REST API of Confluent's. certificate, key and key_password are the client's own."""

    url: str
    credentials: SecretRef | None = None
    ca: SecretRef | None = None
    certificate: SecretRef | None = None
    key: SecretRef | None = None
    key_password: SecretRef | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> PlanRegistry | None:
        """Reads the JSON form of the plan."""
        if value is None:
            return None
        references = {key: SecretRef.from_json(each) for key, each in value.items() if key != "url"}
        return cls(value["url"], **references)


@dataclass(frozen=True, slots=True)
class PlanCluster:
    """rack: where our readers of it stand, as its brokers say it (`broker.rack`). stretch: how it is laid out over
    regions; None: it is no stretch cluster, or the file does not say."""

    alias: str
    bootstrap: tuple[str, ...]
    cluster_id: str | None = None
    security: PlanSecurity = PlanSecurity()
    registry: PlanRegistry | None = None
    rack: str | None = None
    stretch: StretchLayout | None = None

    def to_json(self) -> dict[str, Any]:
        """One element of `clusters` in the plan."""
        value = asdict(self) | {"bootstrap": list(self.bootstrap), "security": self.security.to_json()}
        value["stretch"] = None if self.stretch is None else self.stretch.to_json()
        for late in ("registry", "rack", "stretch"):  # older plans keep their hash
            if value[late] is None:
                del value[late]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PlanCluster:
        """Reads the JSON form of the plan."""
        return cls(
            alias=value["alias"],
            bootstrap=tuple(value["bootstrap"]),
            cluster_id=value["cluster_id"],
            security=PlanSecurity.from_json(value["security"]),
            registry=PlanRegistry.from_json(value.get("registry")),
            rack=value.get("rack"),
            stretch=StretchLayout.from_json(value.get("stretch")),
        )


@dataclass(frozen=True, slots=True)
class PlanFlow:
    """One flow: which topics are copied from where to where, and how.

    quota: bytes a second, None without a limit. workers: number of workers that the fleet should have for the flow.
    sync_configs_include, sync_configs_exclude: topic config keys; an empty include means all.
    configs_set: configs that target topics get in any case. See `target_configs`.
    verify: how the flow is proven.
    delivery: `sequence` if the flow is the only writer of its target partitions, else `transactions`;
    delivery_reason says why transactions.
    paths: the flow writes with one producer id a path, because it forwards on a ring of three or more clusters.
    weight: share of a worker's bandwidth among its flows.
    grow: target topics get more partitions when the source topics do.
    offsets_reason: why the flow is `mapped` although the file asks for `aligned`.
    sync: group offsets, ACLs, quotas, users and schemas that the flow keeps in sync.
    allows_repeats: the file asks for `at_least_once`; the flow has more wherever its clusters can give more.
    compression: of batches that the source stores uncompressed; None: they pass as they are.
    transform: which records travel and what is changed in them; None: all of them, as they are.
    protect: whether the target's topics refuse the writes of everybody else until applications move there.
    end: the copy goes no further; None: it never ends.
    placement: who starts and heals the workers; heal_ms: how often Airflow looks after the fleet, None: never.
    beside: what other tools copy from or to the flow's source; the flow leaves their records and topics to them.
    source_rack: the rack of the source that the workers stand in; they fetch from a replica there (KIP-392). None: from
    leaders.
    compatibility: what is written beside the copy for tools that were made for MirrorMaker 2; None: nothing.
    header: the header that each record gets, with the place that it came from (`clusters.provenance_header`).
    breach: what workers do when `slo.lag.max` is exceeded; None: nothing, alerts tell a person.
    """

    id: str
    source: str
    target: str
    topics: TopicSelection
    naming: Naming = _IDENTITY
    guard: Literal["producer_id", "none"] = "producer_id"
    forward: Literal["all", "local"] = "all"
    engine: Literal["spark", "process"] = "spark"
    workers: int = 1
    quota: int | None = None
    discovery_ms: int = 10_000
    state: Literal["running", "paused"] = "running"
    offsets: Literal["mapped", "aligned"] = "mapped"
    start: CopyStart = "earliest"
    replication_factor: int | None = None
    sync_configs: SyncMode = "once"
    sync_configs_include: tuple[str, ...] = ()
    sync_configs_exclude: tuple[str, ...] = ()
    configs_set: tuple[tuple[str, str], ...] = ()
    verify: ProofPolicy = PROVEN_ON_DEMAND
    merge: bool = False
    delivery: Literal["sequence", "transactions"] = "sequence"
    delivery_reason: str = ""
    paths: bool = False
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    on_gap: Literal["stop", "continue"] = "stop"
    rejected: Literal["stop", "quarantine"] = "stop"
    weight: int = 1
    grow: bool = True
    offsets_reason: str = ""
    sync: SyncSettings = NO_SYNC
    allows_repeats: bool = False
    placement: WorkerPlacement = "embedded"
    heal_ms: int | None = None
    compression: EgressCompression | None = None
    transform: RecordTransform | None = None
    end: CopyEnd | None = None
    beside: tuple[ExternalFlow, ...] = ()
    source_rack: str | None = None
    protect: bool = False
    compatibility: MirrorCompatibility | None = None
    header: str | None = None
    breach: BreachPolicy | None = None

    def selects(self, topic: str) -> bool:
        """Whether this source topic travels: included, not excluded, not internal, not left to another tool."""
        return self.topics.selects(topic) and not (self.beside and self._is_left_to_others(topic))

    def _is_left_to_others(self, topic: str) -> bool:
        """Whether the topic is one with which a tool talks to itself, or holds only what a tool brought and the guard
        would leave out."""
        for tool in self.beside:
            if topic in tool.list_own_topics(self.source) and topic not in self.topics.included.literals:
                return True
            if tool.target == self.source and self.leaves_out_records_of(tool) and tool.is_only_writer(topic):
                return True
        return False

    def leaves_out_records_of(self, tool: ExternalFlow) -> bool:
        """Whether records that the tool brought to the flow's source do not travel on: the flow takes only what is born
        there, or they come from where it would bring them."""
        return self.forward == "local" or (self.guard == "producer_id" and tool.source == self.target)

    def list_left_out_marks(self, topic: str) -> tuple[str, ...]:
        """Headers of records in a source topic that other tools brought and that do not travel on."""
        found = (tool for tool in self.beside if tool.target == self.source and tool.brings(topic))
        return tuple(tool.marks_with for tool in found if tool.marks_with and self.leaves_out_records_of(tool))

    def target_topic(self, topic: str) -> str:
        """What a source topic is called at the target (whether or not the flow selects it)."""
        return self.naming.apply(topic)

    def source_topic(self, target_topic: str) -> str | None:
        """The source topic that this flow copies into `target_topic`; None when it copies nothing there."""
        name = self.naming.invert(target_topic)
        return name if name is not None and self.selects(name) else None

    def to_json(self) -> dict[str, Any]:
        """One element of `flows` in the plan. Its text is part of the plan hash."""
        value = {
            "id": self.id,
            "source": self.source,
            "target": self.target,
            "topics": self.topics.to_json(),
            "naming": self.naming.to_json(),
            "guard": self.guard,
            "forward": self.forward,
            "engine": self.engine,
            "workers": self.workers,
            "quota": self.quota,
            "discovery_ms": self.discovery_ms,
            "state": self.state,
            "offsets": self.offsets,
            "start": encode_bound(self.start),
            "replication_factor": self.replication_factor,
            "sync_configs": self.sync_configs,
            "sync_configs_include": list(self.sync_configs_include),
            "sync_configs_exclude": list(self.sync_configs_exclude),
            "configs_set": dict(self.configs_set),
            "verify_every_ms": self.verify.every_ms,
            "merge": self.merge,
            "delivery": self.delivery,
            "delivery_reason": self.delivery_reason,
            "paths": self.paths,
            "isolation": self.isolation,
            "on_gap": self.on_gap,
            "rejected": self.rejected,
            "weight": self.weight,
            "grow": self.grow,
            "offsets_reason": self.offsets_reason,
            "sync": self.sync.to_json(),
        }
        late = {  # what older plans did not have is left out where it is unused: they keep their hash
            "verify": None if replace(self.verify, every_ms=None) == PROVEN_ON_DEMAND else self.verify.to_json(),
            "allows_repeats": self.allows_repeats or None,
            "placement": None if self.placement == "embedded" else self.placement,
            "heal_ms": self.heal_ms,
            "compression": None if self.compression is None else self.compression.to_json(),
            "transform": None if self.transform is None else self.transform.to_json(),
            "end": None if self.end is None else encode_bound(self.end),
            "beside": [each.to_json() for each in self.beside] or None,
            "source_rack": self.source_rack or None,
            "protect": self.protect or None,
            "compatibility": None if self.compatibility is None else self.compatibility.to_json(),
            "header": self.header,
            "breach": None if self.breach is None else self.breach.to_json(),
        }
        return value | {key: each for key, each in late.items() if each is not None}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PlanFlow:
        """Raises UnknownKeys for keys of a newer version, one of which may say that records stay behind; KeyError,
        TypeError or ValueError for anything else than what `to_json` gave."""
        told, value = value, {name: each for name, each in value.items() if name in _FLOW_KEYS}
        every_ms = value.pop("verify_every_ms")
        flow = cls(
            **value
            | {
                "breach": BreachPolicy.from_json(value.get("breach")),
                "compression": EgressCompression.from_json(value.get("compression")),
                "transform": RecordTransform.from_json(value.get("transform")),
                "start": decode_bound(value.get("start", "earliest")),
                "end": decode_bound(value.get("end")),
                "beside": tuple(map(ExternalFlow.from_json, value.get("beside", ()))),
                "compatibility": MirrorCompatibility.from_json(value.get("compatibility")),
                "verify": ProofPolicy.from_json(value.get("verify", {}), every_ms),
                "topics": TopicSelection.from_json(value["topics"]),
                "naming": Naming.from_json(value["naming"]),
                "sync_configs_include": tuple(value.get("sync_configs_include", ())),
                "sync_configs_exclude": tuple(value["sync_configs_exclude"]),
                "configs_set": tuple(sorted(value.get("configs_set", {}).items())),
                "sync": SyncSettings.from_json(value["sync"]) if "sync" in value else NO_SYNC,
            }
        )
        unknown = [*sorted(told.keys() - _FLOW_KEYS), *_find_unread_keys(told, flow.to_json())]
        if unknown:
            raise UnknownKeys(f"a newer version of Watershed wrote it, with keys unknown here: {', '.join(unknown)}")
        return flow


_FLOW_KEYS = frozenset({*(each.name for each in fields(PlanFlow)), "verify_every_ms"})


def _find_unread_keys(told: Mapping[str, Any], read: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Keys inside of what both have that got lost when it was read: `sync.acls.mode`, say."""
    for name, each in told.items():
        known = read.get(name)
        if isinstance(each, dict) and isinstance(known, dict):
            yield from (f"{above}{name}.{key}" for key in sorted(each.keys() - known.keys()))
            yield from _find_unread_keys(each, known, f"{above}{name}.")


@dataclass(frozen=True, slots=True)
class Plan:
    """Clusters and flows are sorted by alias and id. proofs: name → what was shown, as JSON. external_flows: what other
    tools copy beside, sorted by id; nothing here executes it."""

    topology: str
    clusters: tuple[PlanCluster, ...]
    flows: tuple[PlanFlow, ...]
    migration: PlanMigration | None = None
    proofs: dict[str, Any] = field(default_factory=dict)
    schema: int = _SCHEMA
    hash: str = ""
    external_flows: tuple[ExternalFlow, ...] = ()

    def cluster(self, alias: str) -> PlanCluster:
        """Raises NotInPlan (a KeyError)."""
        for cluster in self.clusters:
            if cluster.alias == alias:
                return cluster
        known = ", ".join(cluster.alias for cluster in self.clusters)
        raise NotInPlan(f"topology {self.topology} has no cluster {alias}; it has {known}")

    def flow(self, flow_id: str) -> PlanFlow:
        """Raises NotInPlan (a KeyError)."""
        for flow in self.flows:
            if flow.id == flow_id:
                return flow
        known = ", ".join(flow.id for flow in self.flows) or "none"
        raise NotInPlan(f"topology {self.topology} has no flow {flow_id}; its flows: {known}")


def seal_plan(plan: Plan) -> Plan:
    """The same plan with its content hash."""
    content = {key: value for key, value in _document(plan).items() if key != "hash"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return replace(plan, hash=f"sha256:{digest}")


def encode_plan(plan: Plan) -> str:
    """Canonical: sorted keys, two spaces, newline at the end. The same plan gives the same bytes."""
    return json.dumps(_document(plan), sort_keys=True, indent=2) + "\n"


def decode_plan(text: str, *, own: bool = False) -> Plan:
    """Raises UnreadablePlan when it is not a plan of this schema, or its content does not give its hash.

    own: it is this very version's note to itself, whose hash need not be computed anew."""
    try:
        value = parse_json_object(text)
        if value["schema"] != _SCHEMA:
            raise UnreadablePlan(
                f"the plan has schema {value['schema']}, this Watershed reads {_SCHEMA}; compile again"
            )
        migration = value["migration"]
        plan = Plan(
            topology=value["topology"],
            clusters=tuple(map(PlanCluster.from_json, value["clusters"])),
            flows=tuple(map(PlanFlow.from_json, value["flows"])),
            migration=None if migration is None else PlanMigration.from_json(migration),
            proofs=value["proofs"],
            external_flows=tuple(map(ExternalFlow.from_json, value.get("external_flows", ()))),
        )
        stated = value["hash"]
    except UnknownKeys as error:
        raise UnreadablePlan(f"this plan cannot be used: {error}; compile again with this version") from None
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UnreadablePlan(f"this is not a plan written by `topology compile` ({error!r})") from None
    if own:
        return replace(plan, hash=stated)
    plan = seal_plan(plan)
    if plan.hash != stated:
        raise UnreadablePlan(f"the plan says {stated} but its content gives {plan.hash}; compile it again")
    return plan


def _document(plan: Plan) -> dict[str, Any]:
    document = {
        "schema": plan.schema,
        "hash": plan.hash,
        "topology": plan.topology,
        "clusters": [cluster.to_json() for cluster in plan.clusters],
        "flows": [flow.to_json() for flow in plan.flows],
        "migration": None if plan.migration is None else plan.migration.to_json(),
        "proofs": plan.proofs,
    }
    if plan.external_flows:  # older plans keep their hash
        document["external_flows"] = [each.to_json() for each in plan.external_flows]
    return document
