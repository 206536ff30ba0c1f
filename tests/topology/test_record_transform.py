"""`transform` of a flow: what the language refuses, what a plan makes of it, and which functions are known."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from watershed.topology import compile_path
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.plan import PlanFlow
from watershed.topology.record_expressions import find_read_fields, find_unknown_functions, split_schema_fields
from watershed.topology.record_transform import RecordTransform
from watershed.topology.rule_manual import complete_example

FLOW = "flows:\n  - source: a\n    target: b\n    topics: {include: [orders]}\n    transform: "
JSON = 'format: {value: json}, schema: {value: "country string, email string"}'


def find_errors(transform: str) -> list[str]:
    result = lint_topology(parse_topology(complete_example(f"{FLOW}{transform}\n")))
    return [finding.message for finding in result.findings if finding.severity == "error"]


def read_flow(transform: str) -> PlanFlow:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.yaml"
        path.write_text(complete_example(f"{FLOW}{transform}\n"), encoding="utf-8")
        [flow] = compile_path(path).flows
    return flow


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        ("{}", "it changes nothing"),
        ("{engine: spark}", "it changes nothing"),
        ('{where: "true", set: {key: "key"}}', "changes keys, and a record keeps its partition"),
        (
            f'{{{JSON}, drop: [key.a], set: {{value.a: "1"}}}}',
            "needs `format: {key: json}`",
        ),
        ('{format: {key: json}, set: {key: "null"}}', "a JSON key is changed by field; say `key.FIELD`"),
        ('{format: {key: avro}, set: {key.a: "1"}}', "with the fields that expressions use and those that are set"),
        ('{format: {key: avro}, schema: {key: "a int"}, set: {key.b: "1"}}', "`schema.key` does not name `b`"),
        ('{set: {key.: "1"}}', "say `value`, `value.FIELD`, `key`, `key.FIELD` or `headers.NAME`"),
        ('{set: {offset: "1"}}', "say `value`, `value.FIELD`, `key`, `key.FIELD` or `headers.NAME`"),
        ('{set: {value.email: "null"}}', "needs `format: {value: json}`"),
        (f'{{{JSON}, set: {{value: "null"}}}}', "a JSON value is changed by field"),
        ("{drop: [value]}", "`drop: [value]` would drop nothing: fields are dropped; say `set: {value: "),
        ("{format: {key: string}, drop: [key]}", 'say `set: {key: "cast(null as string)"}`'),
        (f'{{{JSON}, set: {{value.a: "1"}}, drop: [value.a.b]}}', "are about the same"),
        (f'{{{JSON}, set: {{value.a: "1"}}, drop: [value.a]}}', "are about the same"),
        ('{format: {value: json}, where: "value.a = 1"}', "format json needs `schema"),
        ('{schema: {value: "a string"}, where: "true"}', "is for formats json, avro and protobuf"),
        ('{format: {value: avro}, where: "value.a = 1"}', "format avro needs `schema"),
        ('{format: {value: avro}, set: {value.a: "1"}}', "with the fields that expressions use and those that are set"),
        (
            '{format: {value: avro}, schema: {value: "a int"}, set: {value: "null"}}',
            "is changed by field, under its own",
        ),
        ('{format: {value: avro}, schema: {value: "a int"}, set: {value.b: "1"}}', "`schema.value` does not name `b`"),
        ('{format: {key: avro}, set: {value.a: "1"}}', "avro or protobuf; the values are bytes"),
        ("{where: \"sha2(secret('P'), 256) = 'x'\"}", "`secrets` has no P"),
        ('{where: "true", secrets: {P: {env: WATERSHED_SECRET_P}}}', "is not used"),
        ("{where: \"sha2(secret('a b'), 256) = 'x'\"}", "a secret cannot be called `a b`"),
        ('{where: "rand() > 0.5"}', "`rand` is not among the functions"),
        ("{where: \"reflect('java.lang.System', 'exit') = 1\"}", "`reflect` is not among the functions"),
        ('{wher: "true"}', "unknown key `wher`"),
        ('{engine: flink, where: "true"}', "flink"),
    ],
)
def test_what_cannot_be_is_refused(transform: str, why: str) -> None:
    assert any(why in message for message in find_errors(transform)), find_errors(transform)


def test_a_flow_that_changes_records_copies_in_transactions_and_is_never_aligned() -> None:
    plan = read_flow('{where: "partition < 3"}\n    offsets: aligned')
    assert (plan.delivery, plan.offsets) == ("transactions", "mapped")
    assert "transform" in plan.delivery_reason


def test_a_plan_holds_the_whole_transform_and_reads_it_again() -> None:
    text = f"""{{{JSON}, where: "value.country <> 'XX'", set: {{
      value.email: "sha2(concat(value.email, secret('P')), 256)", headers.by: "'us'"}},
      drop: [value.notes], secrets: {{P: {{env: WATERSHED_SECRET_P}}}}}}"""
    plan = read_flow(text)
    assert plan.transform is not None
    again = PlanFlow.from_json(plan.to_json())
    assert again == plan
    assert again.transform is not None
    assert again.transform.hash == plan.transform.hash
    assert plan.transform.describe() == (
        "keeps records where value.country <> 'XX'; sets headers.by, value.email; drops value.notes"
    )


def test_keys_are_changed_where_the_file_says_that_partitions_do_not_follow_them() -> None:
    plan = read_flow(
        '{format: {key: json, value: json}, set: {key.id: "topic", headers.a: "topic"}, '
        "drop: [key.email, value.note]}\n    partitions: {mapping: key}"
    )
    assert plan.transform is not None
    assert plan.transform.key_changes == ("set.key.id", "drop.key.email")


def test_each_part_changes_the_hash_and_the_order_of_the_file_does_not() -> None:
    base = read_flow('{where: "true", set: {headers.a: "topic", headers.b: "topic"}}').transform
    other = read_flow('{where: "true", set: {headers.b: "topic", headers.a: "topic"}}').transform
    assert base is not None
    assert base == other
    changed = (
        RecordTransform(where="true", changes=base.changes, value_format="string"),
        RecordTransform(where="true ", changes=base.changes),
        RecordTransform(where="true", changes=(*base.changes, ("headers.c", "topic"))),
        RecordTransform(where="true", changes=base.changes, drops=("headers.c",)),
    )
    assert len({base.hash, *(each.hash for each in changed)}) == 5


def test_a_flow_without_transform_has_the_plan_that_it_had() -> None:
    assert "transform" not in PlanFlow("f", "a", "b", read_flow('{where: "true"}').topics).to_json()


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("upper(topic) = 'A' and (partition in (1, 2) or not (offset > 3))", []),
        ("cast(offset as decimal(10,2)) > 1 and case when (true) then 1 else (2) end = 1", []),
        ("topic = 'rand()' and `now()` = \"uuid()\"", []),
        ("RAND() + Now () + my.func(1)", ["RAND", "Now", "my.func"]),
        ("'it''s' = uuid()", ["uuid"]),
        ("'a\\'b' = uuid()", ["uuid"]),
    ],
)
def test_functions_are_found_outside_quotes(text: str, unknown: list[str]) -> None:
    assert find_unknown_functions(text) == unknown


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("sha2(concat(value.email, secret('PEPPER'), 'value.x'), 256)", ["value.email"]),
        ("cast(timestamp(value.at) as timestamp) > timestamp '2026-01-01' and key is null", ["value.at", "key"]),
        (
            "value.`odd name`.b = value.a.b or element_at(headers, 'key') = ''",
            ["value.odd name.b", "value.a.b", "headers"],
        ),
        ("position('a', value.position) + offset + offset", ["value.position", "offset"]),
        ("null", []),
    ],
)
def test_fields_that_an_expression_reads(text: str, read: list[str]) -> None:
    assert find_read_fields(text) == read


def test_fields_of_a_schema() -> None:
    text = "country string, amount decimal(12,2), a struct<b: int, c: array<string>>, `x, y`: int"
    assert split_schema_fields(text) == [
        ("country", "string"),
        ("amount", "decimal(12,2)"),
        ("a", "struct<b: int, c: array<string>>"),
        ("x, y", "int"),
    ]
