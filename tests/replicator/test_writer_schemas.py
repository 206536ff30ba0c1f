"""What a worker knows of the schemas of records that it opens: asked for once, waited for, or told to be nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.replicator.registries import ADDRESS, ORDER, Pair, cluster, flow, two
from watershed.clusters.errors import ClusterError
from watershed.clusters.registry.record_schemas import UnknownSchema
from watershed.clusters.registry.schema import Schema
from watershed.replicator.copy.schema_ids import SchemaIdTranslations
from watershed.replicator.copy.writer_schemas import FlowWriterSchemas, WriterSchemas
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.sync.schemas import SchemaKind
from watershed.topology.plan import PlanFlow
from watershed.topology.record_transform import RecordTransform

KEY = PartitionKey("a-to-b", "orders", "orders", 0)
AVRO = RecordTransform(value_format="avro", schemas=(("value", "n int"),), where="value.n > 1")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with two() as found:
        yield found


def open_schemas(pair: Pair, ids: str = "preserve") -> FlowWriterSchemas:
    found = WriterSchemas(SchemaIdTranslations(pair.sides.target)).find(build_flow(ids), pair.sides.source)
    assert found is not None
    return found


def build_flow(ids: str) -> PlanFlow:
    return replace(flow(ids), transform=AVRO)


def test_a_schema_is_asked_for_once_with_all_that_it_refers_to(pair: Pair) -> None:
    first, _ = pair.orders()
    schemas = open_schemas(pair)
    assert schemas.list_known("orders").value.writers == {}
    asked = len(pair.source.asked)
    assert schemas.learn(KEY, [UnknownSchema("value", first)], 0) == ""
    known = schemas.list_known("orders").value
    assert known.writers[first].text == ORDER
    assert known.writers[first].references == (("x.Address", ADDRESS),)
    assert known.targets is None
    assert len(pair.source.asked) == asked + 2
    assert schemas.learn(KEY, [UnknownSchema("value", first)], 0) == ""
    assert len(pair.source.asked) == asked + 2
    assert schemas.list_known("payments").value.writers == {}, "what another topic has is not sent with its records"


def test_an_id_that_the_registry_does_not_have_is_told(pair: Pair) -> None:
    schemas = open_schemas(pair)
    assert schemas.learn(KEY, [UnknownSchema("value", 999)], 0) == ""
    known = schemas.list_known("orders").value
    assert "schema id 999 is not in the schema registry of a" in known.absent[999]
    assert known.is_known(999, opened=True)


def test_a_registry_that_does_not_answer_is_an_error_and_nothing_is_learnt(pair: Pair) -> None:
    schemas = FlowWriterSchemas(build_flow("preserve"), cluster("a", "http://127.0.0.1:1"))
    with pytest.raises(ClusterError, match="does not answer"):
        schemas.learn(KEY, [UnknownSchema("value", 1)], 0)
    assert not schemas.list_known("orders").value.is_known(1, opened=True)


def test_translated_ids_wait_for_the_target_as_those_of_any_flow(pair: Pair) -> None:
    first, second = pair.orders()
    schemas = open_schemas(pair, "translate")
    why = schemas.learn(KEY, [UnknownSchema("value", first)], 0)
    assert f"schema id {first} of orders-value is not at the target yet" in why
    found = build_flow("translate")
    SchemaKind().carry(found, pair.sides, SchemaKind().compare(found, pair.sides))
    assert schemas.learn(KEY, [UnknownSchema("value", first), UnknownSchema("value", second)], 0) == ""
    known = schemas.list_known("orders").value
    assert known.targets is not None
    assert [known.targets[first], known.targets[second]] == [each.id for each in pair.there.history("orders-value")]
    assert known.is_known(first, opened=True)


def test_an_id_of_no_subject_stays_and_is_asked_for_again_behind_it(pair: Pair) -> None:
    """Plain flows do the same: before anything passes the registry is asked whether the subject is there by now."""
    other = pair.here.register("elsewhere", Schema('"int"'))
    schemas = open_schemas(pair, "translate")
    unknown = [UnknownSchema("value", other)]
    for _ in range(3):  # asked for the topic, then for the subject
        assert schemas.learn(KEY, unknown, 0) == ""
    assert schemas.list_known("orders").value.targets == {other: other}
    assert schemas.list_known("orders").key.targets is None, "the bytes of a plain key look like an id"
    schemas.settle("orders")
    assert schemas.list_known("orders").value.targets == {}
    pair.here.register("orders-value", Schema('"int"'))
    assert "is not at the target yet" in [schemas.learn(KEY, unknown, 0) for _ in range(2)][-1]


def test_flows_that_open_nothing_know_no_schemas(pair: Pair) -> None:
    schemas = WriterSchemas(SchemaIdTranslations(pair.sides.target))
    plain = replace(flow(), transform=RecordTransform(where="partition > 1"))
    assert schemas.find(plain, pair.sides.source) is None
    opened = schemas.find(build_flow("preserve"), pair.sides.source)
    assert schemas.find(build_flow("preserve"), pair.sides.source) is opened
    schemas.forget("a-to-b")
    assert schemas.find(build_flow("preserve"), pair.sides.source) is not opened
