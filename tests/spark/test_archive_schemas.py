"""Archived schemas in a registry: with their ids, what they refer to first, and never over another schema."""

from __future__ import annotations

import pytest

from watershed.clusters.fake_registry import FakeRegistry
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema
from watershed.spark.archive.manifest import ArchivedSchema, ArchiveManifest
from watershed.spark.archive.schema_restore import (
    SchemaOutcome,
    explain_schemas_without_registry,
    plan_schemas,
    restore_schemas,
    select_archived_schemas,
)

ADDRESS = '{"type":"record","name":"Address","namespace":"x","fields":[{"name":"city","type":"string"}]}'
ORDER = '{"type":"record","name":"Order","namespace":"x","fields":[{"name":"to","type":"x.Address"}]}'
REFERENCE = (("x.Address", "address", 1),)
SCHEMAS = (
    ArchivedSchema("address", 1, 41, "AVRO", ADDRESS),
    ArchivedSchema("orders-key", 1, 7, "AVRO", '"string"'),
    ArchivedSchema("orders-value", 1, 42, "AVRO", ORDER, REFERENCE),
    ArchivedSchema("orders-value", 3, 44, "AVRO", ORDER.replace('"Order"', '"Order","doc":"more"'), REFERENCE),
    ArchivedSchema("other-value", 1, 50, "AVRO", '"long"'),
)
MANIFEST = ArchiveManifest(1, 0, "onprem", "id", schemas=SCHEMAS)


def test_schemas_come_back_with_their_ids_and_once() -> None:
    with FakeRegistry(next_id=7) as registry:
        settings = RegistrySettings("cloud", registry.url)
        assert plan_schemas(settings, MANIFEST, ["orders"]) == SchemaOutcome(4, 0, ())
        with RegistryClient(settings) as client:
            assert client.subjects() == []  # a plan writes nothing
            assert restore_schemas(settings, MANIFEST, ["orders"]) == SchemaOutcome(4, 0, ())
            found = {
                (subject, each.version): each.id for subject in client.subjects() for each in client.history(subject)
            }
            assert found == {(each.subject, each.version): each.id for each in SCHEMAS[:4]}
            assert client.mode("orders-value") in (None, "READWRITE")
        assert restore_schemas(settings, MANIFEST, ["orders"]) == SchemaOutcome(0, 4, ())


def test_an_id_that_means_another_schema_is_left_and_named() -> None:
    with FakeRegistry(next_id=42) as registry:
        settings = RegistrySettings("cloud", registry.url)
        with RegistryClient(settings) as client:
            client.register("somebody", Schema('"bytes"'))
        found = restore_schemas(settings, MANIFEST, ["orders"])
        assert any(each.startswith("orders-value, version 1: id 42 is another schema at cloud") for each in found.left)
        with RegistryClient(settings) as client:
            assert [each.id for each in client.history("orders-key")] == [7]


@pytest.mark.parametrize(("topics", "subjects"), [(["orders"], 4), (["other"], 1), (["nothing"], 0)])
def test_only_schemas_of_the_chosen_topics_count(topics: list[str], subjects: int) -> None:
    assert len(select_archived_schemas(MANIFEST, topics)) == subjects
    left = explain_schemas_without_registry(MANIFEST, topics, "cloud").left
    assert bool(left) == bool(subjects)
    assert all("clusters.cloud.schema_registry" in each for each in left)
