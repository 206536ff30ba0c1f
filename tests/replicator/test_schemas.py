"""Schemas between two registries: what differs, what is carried over, what is left alone and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.replicator.registries import AT, WIDER, Pair, cluster, flow, two
from watershed.clusters.errors import AuthenticationFailed
from watershed.clusters.fake_registry import FakeRegistry
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistryNotDeclared, resolve_registry_settings
from watershed.clusters.registry.schema import Schema, SchemaReference
from watershed.clusters.registry.subject_selection import can_create_subject
from watershed.clusters.settings import resolve_connection_settings
from watershed.cutover.operations.plan_review import render_drift
from watershed.replicator.sync.schemas import SchemaKind
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology import compile_path
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import PlanCluster, PlanFlow
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import NameFilter

SCHEMAS = SchemaKind()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with two() as found:
        yield found


def compare(pair: Pair, flow: PlanFlow) -> list[FieldDrift]:
    return SCHEMAS.compare(flow, pair.sides)


def carry(pair: Pair, flow: PlanFlow) -> list[DifferenceOutcome]:
    return SCHEMAS.carry(flow, pair.sides, compare(pair, flow))


def told(differences: list[FieldDrift]) -> list[tuple[str, str, str | None, str | None]]:
    return [(each.name, each.field, each.live, each.wanted) for each in differences]


def test_ids_are_preserved_and_what_is_referred_to_goes_first(pair: Pair) -> None:
    ids = pair.orders()
    assert told(compare(pair, flow())) == [
        ("orders-key", "version 1", None, "AVRO, id 104"),
        ("address", "version 1", None, "AVRO, id 101"),
        ("orders-value", "version 1", None, f"AVRO, id {ids[0]}"),
        ("orders-value", "version 2", None, f"AVRO, id {ids[1]}"),
    ]
    assert [each.error for each in carry(pair, flow())] == [None] * 4
    assert [(each.version, each.id) for each in pair.there.history("orders-value")] == [(1, ids[0]), (2, ids[1])]
    assert pair.there.history("orders-value")[0].schema.references == (AT,)
    assert pair.there.subjects() == ["address", "orders-key", "orders-value"]
    assert pair.there.mode("orders-value") is None, "the mode is put back"
    assert compare(pair, flow()) == []


def test_a_version_that_comes_later_is_imported_behind_the_others(pair: Pair) -> None:
    pair.orders()
    carry(pair, flow())
    id = pair.here.register("orders-value", Schema(WIDER.replace('"n"', '"m"'), references=(AT,)))
    assert told(compare(pair, flow())) == [("orders-value", "version 3", None, f"AVRO, id {id}")]
    assert [each.error for each in carry(pair, flow())] == [None]
    assert pair.there.history("orders-value")[-1].id == id
    assert pair.there.mode("orders-value") is None


def test_an_id_that_is_another_schema_there_is_refused_by_name(pair: Pair) -> None:
    pair.here.register("orders-value", Schema('"string"'))
    pair.there.set_mode("others-value", "IMPORT")
    pair.there.register("others-value", Schema('"long"'), id=101, version=1)
    [refused] = compare(pair, flow())
    assert (refused.applied, refused.drift, refused.why) == (
        False,
        "unsupported",
        "id 101 is another schema at b; or say `ids: translate`",
    )
    assert carry(pair, flow()) == []


def test_a_schema_that_has_another_id_there_is_refused(pair: Pair) -> None:
    pair.here.register("orders-value", Schema('"string"'))
    pair.there.register("orders-value", Schema('{"type": "string"}'))
    [refused] = compare(pair, flow())
    assert not refused.applied
    assert (refused.live, refused.wanted) == ("AVRO, id 1", "AVRO, id 101")
    assert compare(pair, flow("translate")) == []


def test_versions_of_its_own_are_not_mixed_with_imported_ones(pair: Pair) -> None:
    pair.here.register("orders-value", Schema('"string"'))
    pair.there.register("orders-value", Schema('"int"'))
    [refused] = compare(pair, flow())
    assert not refused.applied
    assert "versions of its own at b (1)" in refused.why


def test_a_registry_without_import_is_told_before_anything_is_written(pair: Pair) -> None:
    pair.here.register("orders-value", Schema('"string"'))
    pair.target.modes = False
    [refused] = compare(pair, flow())
    assert not refused.applied
    assert "no mode IMPORT" in refused.why
    assert [each.error for each in carry(pair, flow("translate"))] == [None]


def test_a_registry_that_heeds_no_ids_is_found_out_at_the_first(pair: Pair) -> None:
    pair.orders()
    pair.target.heeds_ids = False
    errors = [each.error or "" for each in carry(pair, flow())]
    assert all("gave id 1 to orders-key where 104 was asked for" in each for each in errors)
    assert pair.there.subjects() == ["orders-key"], "and nothing behind it"
    assert pair.there.mode("orders-key") is None


def test_translated_schemas_get_ids_of_the_target(pair: Pair) -> None:
    pair.orders()
    pair.there.register("others-value", Schema('"bytes"'))
    assert [each.error for each in carry(pair, flow("translate"))] == [None] * 4
    assert [each.id for each in pair.there.history("orders-value")] == [4, 5]
    assert compare(pair, flow("translate")) == []


def test_subjects_follow_their_topics_and_references_keep_their_names(pair: Pair) -> None:
    pair.orders()
    renamed = flow(prefix="a.", subjects="follow_topic")
    carry(pair, renamed)
    assert pair.there.subjects() == ["a.orders-key", "a.orders-value", "address"]
    assert compare(pair, renamed) == []


def test_references_between_versions_of_two_subjects(pair: Pair) -> None:
    """The second version of each refers to the first of the other: no order of the subjects would do."""
    one = '{"type":"record","name":"x.One","fields":[{"name":"t","type":"x.Two"}]}'
    two = '{"type":"record","name":"x.Two","fields":[{"name":"o","type":"x.One"}]}'
    for subject, name in (("orders-one-value", "One"), ("orders-two-value", "Two")):
        pair.here.register(subject, Schema(f'{{"type":"record","name":"x.{name}","fields":[]}}'))
    pair.here.register("orders-one-value", Schema(one, references=(SchemaReference("x.Two", "orders-two-value", 1),)))
    pair.here.register("orders-two-value", Schema(two, references=(SchemaReference("x.One", "orders-one-value", 1),)))
    assert [each.error for each in carry(pair, flow("translate"))] == [None] * 4
    assert compare(pair, flow("translate")) == []


def test_compatibility_and_modes(pair: Pair) -> None:
    pair.orders()
    pair.here.set_compatibility("orders-value", "FULL")
    pair.here.set_mode("orders-key", "READONLY")
    carry(pair, flow("translate"))
    assert pair.there.compatibility("orders-value") == "FULL"
    assert pair.there.mode("orders-key") == "READONLY"
    pair.there.set_compatibility("orders-value", "NONE")
    assert told(compare(pair, flow("translate"))) == [("orders-value", "compatibility", "NONE", "FULL")]


def test_a_mode_that_was_left_behind_is_put_back(pair: Pair) -> None:
    pair.orders()
    carry(pair, flow())
    pair.there.set_mode("orders-value", "IMPORT", force=True)  # as if the worker had died while importing
    assert told(compare(pair, flow())) == [("orders-value", "mode", "IMPORT", "READWRITE")]
    assert [each.error for each in carry(pair, flow())] == [None]
    assert pair.there.mode("orders-value") is None


def test_softly_deleted_versions_are_reported_and_nothing_is_deleted(pair: Pair) -> None:
    pair.orders()
    carry(pair, flow())
    pair.source.answer("DELETE", "/subjects/orders-value/versions/1", None)
    [left] = compare(pair, flow())
    assert (left.field, left.wanted, left.applied, left.drift) == ("version 1", "deleted", False, "unknown")
    assert "nothing is ever deleted" in left.why
    assert pair.there.versions("orders-value") == [1, 2]
    assert not any(each.startswith("DELETE /subjects") for each in pair.target.asked)


def test_contexts_have_ids_of_their_own(pair: Pair) -> None:
    pair.here.register("orders-value", Schema('"string"'))
    id = pair.here.register(":.eu:orders-value", Schema('"long"'))
    assert [each.error for each in carry(pair, flow())] == [None, None]
    assert pair.there.subjects() == [":.eu:orders-value", "orders-value"]
    assert [each.id for each in pair.there.history(":.eu:orders-value")] == [id]


def test_named_subjects_and_those_left_out(pair: Pair) -> None:
    pair.orders()
    only = NameFilter(include=(Selector("literal", "payments-value"),))
    assert {each.name for each in compare(pair, flow(names=only))} == {"payments-value"}
    without = NameFilter(exclude=(Selector("literal", "orders-key"), Selector("literal", "address")))
    found = compare(pair, flow(names=without))
    assert {each.name for each in found if each.applied} == {"orders-value"}
    assert [each.why for each in found if each.name == "address"] == [
        "another schema refers to it, and `sync.schemas.exclude` keeps it from b"
    ]
    assert [each.error for each in carry(pair, flow(names=without))] == [
        "a schema that it refers to is not there",
        "what comes before it could not be carried over: a schema that it refers to is not there",
    ]


def test_secrets_and_registries_that_are_missing(pair: Pair) -> None:
    bare = resolve_connection_settings(PlanCluster("b", ("127.0.0.1:1",)), {})
    with pytest.raises(RegistryNotDeclared, match=r"clusters\.b\.schema_registry\.url"):
        SCHEMAS.compare(flow(), SyncClusters(pair.sides.source, bare))
    pair.orders()
    pair.target.accounts = {"app": "right"}
    for password, error in (("wrong", AuthenticationFailed), ("right", None)):
        side = cluster("b", pair.target.url, SecretRef("env", "REGISTRY"), {"REGISTRY": f"app:{password}"})
        if error is None:
            assert len(SCHEMAS.compare(flow(), SyncClusters(pair.sides.source, side))) == 4
        else:
            with pytest.raises(error, match=r"clusters\.b\.schema_registry\.credentials"):
                SCHEMAS.compare(flow(), SyncClusters(pair.sides.source, side))


def test_a_refused_version_stops_those_behind_it_only(pair: Pair) -> None:
    pair.orders()
    pair.there.set_mode("orders-value", "READONLY")
    done = {each.difference.name + each.difference.field: each.error for each in carry(pair, flow("translate"))}
    assert "read-only mode" in (done["orders-valueversion 1"] or "")
    assert "what comes before it" in (done["orders-valueversion 2"] or "")
    assert done["orders-keyversion 1"] is None
    assert json.loads(pair.there.history("address")[0].schema.text)["name"] == "Address"


DOCS = Path(__file__).parents[2] / "docs" / "schemas.md"


def test_the_example_of_the_docs(pair: Pair, tmp_path: Path) -> None:
    """Its file compiles, and `topology plan` says of its flow what the page shows."""
    text, shown = (part.split("```")[0] for part in (DOCS.read_text().split("```yaml\n")[1], _plan_shown()))
    (tmp_path / "shop.yaml").write_text(text)
    plan = compile_path(tmp_path / "shop.yaml")
    assert [each.registry and each.registry.url for each in plan.clusters] == [
        "https://registry.cloud.example.internal",
        "https://registry.onprem.example.internal",
    ]
    pair.orders()
    pair.here.register("orders-paid-value", Schema('"double"'))
    pair.here.set_compatibility("orders-value", "FULL")
    pair.there.set_mode("others-value", "IMPORT")
    pair.there.register("others-value", Schema('"bytes"'), id=106, version=1)
    found = compare(pair, plan.flows[0])
    lines = [
        line
        for name in dict.fromkeys(each.name for each in found)
        for line in render_drift("schema subject", name, [each for each in found if each.name == name])
    ]
    assert lines == shown.rstrip("\n").split("\n")


def _plan_shown() -> str:
    return DOCS.read_text().split("before anything is done:\n\n```\n")[1]


def test_what_two_flows_bring_is_not_set_to_and_fro(pair: Pair) -> None:
    """The first to come sets the compatibility; a difference is told then, by both."""
    with (
        FakeRegistry(next_id=201) as other,
        RegistryClient(resolve_registry_settings(cluster("c", other.url))) as elsewhere,
    ):
        for registry, level in ((pair.here, "FULL"), (elsewhere, "NONE")):
            registry.register("orders-value", Schema('"string"'))
            registry.set_compatibility("orders-value", level)
        one = flow("translate")
        two = replace(one, id="c-to-b", source="c")
        sides = replace(pair.sides, flows=(one, two))
        others = replace(sides, source=cluster("c", other.url))
        for _ in range(2):
            SCHEMAS.carry(one, sides, SCHEMAS.compare(one, sides))
            SCHEMAS.carry(two, others, SCHEMAS.compare(two, others))
            assert pair.there.compatibility("orders-value") == "FULL"
        [left] = SCHEMAS.compare(two, others)
        assert (left.field, left.applied, left.drift) == ("compatibility", False, "unknown")
        assert "a-to-b" in left.why


@pytest.mark.parametrize(
    ("given", "subject", "brings"),
    [
        (flow(), "orders-value", True),
        (flow(), "payments-value", False),
        (flow(names=NameFilter((Selector("literal", "x.Order"),))), "x.Order", True),
        (flow(names=NameFilter((Selector("literal", "x.Order"),))), "orders-value", False),
        (flow(prefix="a.", subjects="follow_topic"), "a.orders-value", True),
        (flow(prefix="a.", subjects="follow_topic"), "orders-value", False),
        (flow(prefix="a."), "orders-value", True),
    ],
)
def test_which_subjects_a_flow_may_bring(given: PlanFlow, subject: str, brings: bool) -> None:
    assert can_create_subject(given, subject) == brings
