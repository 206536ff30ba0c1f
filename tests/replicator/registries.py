"""Two registries in memory with the settings that lead to them, and payloads in Confluent's wire format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from watershed.clusters.fake_registry import FakeRegistry
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import resolve_registry_settings
from watershed.clusters.registry.schema import Schema, SchemaReference
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.naming import Naming
from watershed.topology.plan import PlanCluster, PlanFlow, PlanRegistry
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import SchemaSync, SyncSettings

ADDRESS = '{"type":"record","name":"Address","namespace":"x","fields":[{"name":"street","type":"string"}]}'
ORDER = '{"type":"record","name":"Order","namespace":"x","fields":[{"name":"to","type":"x.Address"}]}'
WIDER = '{"type":"record","name":"Order","namespace":"x","fields":[{"name":"to","type":"x.Address"},{"name":"n","type":"int","default":0}]}'  # noqa: E501
AT = SchemaReference("x.Address", "address", 1)
FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection(include=(Selector("glob", "orders*"),)))


def flow(ids: str = "preserve", *, prefix: str = "", **schemas) -> PlanFlow:
    naming = Naming("prefix", before=prefix) if prefix else FLOW.naming
    return replace(FLOW, naming=naming, sync=SyncSettings(schemas=SchemaSync("continuous", ids=ids, **schemas)))  # type: ignore[arg-type]


def cluster(
    alias: str, url: str, credentials: SecretRef | None = None, environ: Mapping[str, str] | None = None
) -> ConnectionSettings:
    declared = PlanCluster(alias, ("127.0.0.1:1",), registry=PlanRegistry(url, credentials))
    return resolve_connection_settings(declared, environ or {})


@dataclass(slots=True)
class Pair:
    source: FakeRegistry
    target: FakeRegistry
    here: RegistryClient
    there: RegistryClient
    sides: SyncClusters

    def orders(self) -> list[int]:
        """An address, two versions of orders that refer to it, a key, something else; the ids of orders."""
        self.here.register("address", Schema(ADDRESS))
        ids = [self.here.register("orders-value", Schema(text, references=(AT,))) for text in (ORDER, WIDER)]
        self.here.register("orders-key", Schema('"string"'))
        self.here.register("payments-value", Schema('"long"'))
        return ids


@contextmanager
def two() -> Iterator[Pair]:
    """The source's ids begin with 101, the target's with 1."""
    with FakeRegistry(next_id=101) as source, FakeRegistry() as target:
        sides = SyncClusters(cluster("a", source.url), cluster("b", target.url))
        at_source, at_target = resolve_registry_settings(sides.source), resolve_registry_settings(sides.target)
        with RegistryClient(at_source) as here, RegistryClient(at_target) as there:
            yield Pair(source, target, here, there, sides)


def framed(id: int, content: bytes) -> bytes:
    """Magic byte, id, content; of Protobuf the content begins with the indexes of the message."""
    return b"\0" + id.to_bytes(4, "big") + content
