"""What the tests with real registries share: subjects, records in Confluent's wire format, and what they mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.replicator.real import Record, plan_for, producer, settings_of
from tests.replicator.registries import ADDRESS, ORDER, WIDER, framed
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema, SchemaReference
from watershed.clusters.settings import resolve_connection_settings
from watershed.topology.plan import Plan, PlanRegistry, seal_plan
from watershed.topology.sync_settings import SchemaSync, SyncSettings

PARTITIONS = 2


def plan_with(lab, topic: str, urls: dict[str, str], delivery: str = "sequence", **schemas) -> Plan:
    plan = plan_for(settings_of(lab), topic, topic, delivery=delivery)
    clusters = tuple(replace(each, registry=PlanRegistry(urls[each.alias])) for each in plan.clusters)
    sync = SyncSettings(schemas=SchemaSync(**{"mode": "continuous"} | schemas))  # type: ignore[arg-type]
    return seal_plan(replace(plan, clusters=clusters, flows=tuple(replace(each, sync=sync) for each in plan.flows)))


def connect_to(plan: Plan):
    return lambda alias: resolve_connection_settings(plan.cluster(alias), {})


@contextmanager
def clients(urls: dict[str, str]) -> Iterator[tuple[RegistryClient, RegistryClient]]:
    with (
        RegistryClient(RegistrySettings("onprem", urls["onprem"])) as here,
        RegistryClient(RegistrySettings("cloud", urls["cloud"])) as there,
    ):
        yield here, there


def registered(here: RegistryClient, topic: str) -> tuple[list[int], int]:
    """Two versions of the values, which refer to an address, and one of the keys; their ids."""
    address = f"{topic}-address"
    here.register(address, Schema(ADDRESS))
    at = (SchemaReference("x.Address", address, 1),)
    values = [here.register(f"{topic}-value", Schema(text, references=at)) for text in (ORDER, WIDER)]
    return values, here.register(f"{topic}-key", Schema('{"type":"string","doc":"of an order"}'))


def write(settings, topic: str, ids: list[int], key: int, count: int, start: int = 0) -> None:
    """Records in Confluent's wire format, with tombstones, plain bytes and headers among them."""
    sending = producer(settings, **{"compression.type": "lz4"})
    for number in range(start, start + count):
        value = {0: None, 1: b"plain %d" % number}.get(number % 50)
        if number % 50 > 1:
            value = framed(ids[number % len(ids)], b"\x08order %d" % number)
        sending.produce(topic, value, key=framed(key, b"%d" % (number % 31)), headers=[("n", b"%d" % number)])
        sending.poll(0)
    assert sending.flush(60) == 0


def contents(found: dict[int, list[tuple[int, Record]]], registry: RegistryClient) -> list[object]:
    """Every record as a consumer of that side understands it: ids stand for what the registry says they are."""
    schemas: dict[int, Schema] = {}

    def understood(payload: bytes | None) -> object:
        if payload is None or len(payload) < 5 or payload[0] != 0:
            return payload
        id = int.from_bytes(payload[1:5], "big")
        if id not in schemas:
            schema = registry.schema(id)
            assert schema is not None, f"id {id} leads nowhere"
            schemas[id] = schema
        return schemas[id].text, payload[5:]

    return [
        (number, understood(key), understood(value), timestamp, headers)
        for number, records in found.items()
        for _, (key, value, timestamp, headers) in records
    ]


def until(what: Callable[[], object], seconds: float = 180) -> object:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)
    return found
