"""The newest versions of subjects beside what a flow's `schema` says."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from watershed.clusters.fake_registry import FakeRegistry
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import PROTOBUF, Schema
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.newest_schemas import (
    find_sides_without_subjects,
    find_unfit_versions,
    find_versions_beside_json,
)
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

FLOW = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),)))
COLUMNS = pa.struct([("email", pa.string()), ("n", pa.int64())])
PLAN = FieldPlan("value", "avro", COLUMNS, (("email",),), (("note",),))


@pytest.fixture
def registry() -> Iterator[RegistryClient]:
    with FakeRegistry() as fake, RegistryClient(RegistrySettings("a", fake.url)) as client:
        yield client


def avro(**fields: object) -> Schema:
    told = [{"name": name, "type": type} for name, type in fields.items()]
    return Schema(json.dumps({"type": "record", "name": "Order", "fields": told}))


def tell(registry: RegistryClient, *plans: FieldPlan) -> list[str]:
    return [f"{each.subject} {each.version}: {each.reason}" for each in find_unfit_versions(FLOW, plans, registry)]


def test_a_version_that_fits_is_not_told_and_one_that_lacks_a_field_is(registry: RegistryClient) -> None:
    registry.register("orders-value", avro(email="string", n="int"))
    assert tell(registry, PLAN) == []
    id = registry.register("orders-value", avro(email=["null", "string"]))
    assert tell(registry, PLAN) == [f"orders-value 2: schema id {id}: has no field `n`"]
    registry.register("orders-value", avro(email="string", n="long", more="string"))
    assert tell(registry, PLAN) == []


def test_another_type_is_told_and_what_cannot_be_dropped(registry: RegistryClient) -> None:
    id = registry.register("orders-value", avro(email="string", n="string"))
    assert tell(registry, PLAN) == [f"orders-value 1: schema id {id}: `n` is string, and the column is bigint"]
    id = registry.register("orders-value", avro(email="string", n="long", note="string"))
    [told] = tell(registry, PLAN)
    assert told.startswith(f"orders-value 2: schema id {id}: `note` cannot be null in it, so it cannot be dropped")


def test_only_subjects_of_the_flow_and_sides_that_are_opened_are_looked_at(registry: RegistryClient) -> None:
    for subject in ("orders-key", "payments-value", "orders"):
        registry.register(subject, avro(other="string"))
    assert tell(registry, PLAN) == []
    assert tell(registry, FieldPlan("key", "avro", pa.struct([]))) == []
    [told] = tell(registry, FieldPlan("key", "avro", COLUMNS))
    assert told.endswith("has no field `email`")


def test_another_format_is_told(registry: RegistryClient) -> None:
    registry.register("orders-value", Schema('syntax = "proto3"; message A { string email = 1; }', PROTOBUF))
    [told] = tell(registry, PLAN)
    assert told.endswith("is of type PROTOBUF, and `transform.format.value` is avro")


def test_the_first_message_of_protobuf_counts(registry: RegistryClient) -> None:
    text = 'syntax = "proto3"; message A { string email = 1; string n = 2; } message B { int32 x = 1; }'
    registry.register("orders-value", Schema(text, PROTOBUF))
    plan = FieldPlan("value", "protobuf", COLUMNS)
    assert tell(registry, plan) == ["orders-value 1: schema id 1, message A: `n` is string, and the column is bigint"]
    registry.register("orders-value", Schema(text.replace("string n", "int64 n"), PROTOBUF))
    assert tell(registry, plan) == []


def test_sides_of_which_no_subject_is_called_after_a_topic_are_told(registry: RegistryClient) -> None:
    plans = (PLAN, FieldPlan("key", "avro", COLUMNS), FieldPlan("value", "avro", pa.struct([])))
    assert find_sides_without_subjects(FLOW, plans[:2], registry) == ["value", "key"]
    assert find_sides_without_subjects(FLOW, plans[2:], registry) == []
    registry.register("payments-value", avro(n="int"))
    registry.register("orders-key", avro(n="int"))
    assert find_sides_without_subjects(FLOW, plans[:2], registry) == ["value"]


def test_subjects_beside_plain_json_are_told_of_the_sides_that_are_opened(registry: RegistryClient) -> None:
    """A record that is written by JSON Schema begins with its id, and is no JSON."""
    assert list(find_versions_beside_json(FLOW, ["value"], registry)) == []
    registry.register("orders-value", Schema('{"type": "object"}', "JSON"))
    registry.register("orders-key", avro(id="string"))
    registry.register("payments-value", avro(n="int"))
    [told] = find_versions_beside_json(FLOW, ["value"], registry)
    assert (told.subject, told.version, told.side) == ("orders-value", 1, "value")
    assert told.reason.startswith("clients that write by a schema (this one is of type JSON) put five bytes")
    both = list(find_versions_beside_json(FLOW, ["key", "value"], registry))
    assert [each.subject for each in both] == ["orders-key", "orders-value"]
    assert list(find_versions_beside_json(FLOW, [], registry)) == []
