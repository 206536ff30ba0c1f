"""The reader of Terraform files: what it knows, where things stand, and that it never guesses or hangs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watershed.topology.interop.hcl import HclBlock, HclValue, parse_hcl


def body(text: str) -> HclBlock:
    root, problems = parse_hcl(text, "main.tf")
    assert problems == []
    return root


def value(text: str) -> HclValue:
    found = body(f"a = {text}\n").value("a")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "kind", "read"),
    [
        ('"plain"', "string", "plain"),
        (r'"a \"b\" \\ \n \u00e9"', "string", 'a "b" \\ \n é'),
        ('"$${kept}"', "string", "${kept}"),
        ("42", "number", "42"),
        ("-1.5", "number", "-1.5"),
        ("true", "boolean", "true"),
        ("null", "null", ""),
        ("data.confluent_kafka_cluster.east.id", "reference", "data.confluent_kafka_cluster.east.id"),
        ('"${var.name}"', "reference", "var.name"),
        ('confluent_kafka_cluster.east["eu"].id', "reference", 'confluent_kafka_cluster.east["eu"].id'),
        ("local.ids[0]", "reference", "local.ids[0]"),
        ("(1)", "number", "1"),
        ("var.a ? 1 : 2", "unknown", ""),
        ('var.a == "x" ? [1, 2] : []', "unknown", ""),
        ("[for x in var.topics : upper(x)]", "unknown", ""),
        ("{ for k, v in var.m : k => v }", "unknown", ""),
        ("aws_instance.x[*].id", "unknown", ""),
        ("!var.a", "unknown", ""),
        ("<<EOT\n{\n  1\n}\nEOT", "string", "{\n  1\n}\n"),
        ("<<-EOT\n    {\n      1\n    }\n  EOT", "string", "{\n  1\n}\n"),
    ],
)
def test_a_value(text: str, kind: str, read: str) -> None:
    found = value(text)
    assert (found.kind, found.text) == (kind, read)


def test_interpolations_stay_text_and_are_no_literals() -> None:
    found = value(r'"from-${var.a["x}"]}-${"q${1}"}"')
    assert found.interpolated
    assert found.literal is None
    assert found.text == r'from-${var.a["x}"]}-${"q${1}"}'


def test_lists_maps_and_calls_nest() -> None:
    found = value('jsonencode({\n  "a" = [1, "b",\n    c.d]\n  e : true, (f) = 1\n})')
    assert (found.kind, found.text) == ("call", "jsonencode")
    [document] = found.items
    assert [name for name, _, _ in document.entries] == ["a", "e", None]
    assert [item.text for item in document.entries[0][2].items] == ["1", "b", "c.d"]


def test_blocks_have_labels_places_and_one_line_forms() -> None:
    root = body(
        "# a comment\n// another\n/* and\n another */\n"
        'resource "confluent_cluster_link" "main" {\n'
        "  credentials { key = var.key }\n"
        "  config = {}\n"
        "}\n"
    )
    [block] = root.blocks
    assert (block.type, block.labels) == ("resource", ("confluent_cluster_link", "main"))
    assert (block.span.line, block.span.column) == (5, 1)
    inner = block.block("credentials")
    assert inner is not None
    key = inner.value("key")
    assert key is not None
    assert (key.kind, key.text, key.span.line, key.span.column) == ("reference", "var.key", 6, 23)


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ('a = "open\nb = 1\n', 1, 5, "closing quote"),
        ("a = <<EOT\nnever\n", 1, 5, "closing line `EOT`"),
        ("a = 1\nresource x {\n  b = 2\n", 2, 1, "never closed"),
        ("a =\nb = 2\n", 1, 4, "value is missing"),
        ("a = [1, 2\nb = 3\n", 1, 5, "never closed"),
        ("}\n", 1, 1, "without its `{`"),
        ("/* open\n", 1, 1, "without its `*/`"),
        ('a = "${open"\n', 1, 6, "interpolation"),
        ("resource ?\n", 1, 10, "expected `=` or `{`"),
        ("a = \x07\n", 1, 5, "does not read"),
        (r'a = "\q"', 1, 6, "escape"),
        ("a = 1\na = 2\n", 2, 1, "said twice"),
    ],
)
def test_what_is_broken_is_named_with_its_place(text: str, line: int, column: int, part: str) -> None:
    _, problems = parse_hcl(text, "main.tf")
    first = problems[0]
    span = first.labels[0].span
    assert part in first.message
    assert (span.file, span.line, span.column) == ("main.tf", line, column)


def test_what_stands_after_a_broken_line_is_still_read() -> None:
    root, problems = parse_hcl("a = ,\nb = 2\n", "main.tf")
    assert len(problems) == 1
    assert root.value("b") is not None


def test_deep_nesting_is_refused_instead_of_followed() -> None:
    for text in ("a = " + "[" * 5_000, "b {" * 5_000, "a = " + "(" * 5_000 + ")" * 5_000, 'a = "' + "${" * 5_000):
        _, problems = parse_hcl(text, "main.tf")
        assert problems


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='ab=[]{}()",.\n ${}<EOT-#/*1?:\\', max_size=80))
def test_any_text_gives_a_block_and_problems_but_no_exception(text: str) -> None:
    root, problems = parse_hcl(text, "main.tf")
    assert root.type == ""
    assert all(problem.labels[0].span.line >= 1 for problem in problems)


_LITERALS = st.recursive(
    st.text(alphabet='abc-${}"\\\n é', max_size=8) | st.integers(0, 99) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)


def written(data: object) -> str:
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, int):
        return str(data)
    if isinstance(data, str):
        plain = data.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return '"' + plain.replace("${", "$${") + '"'
    if isinstance(data, list):
        return "[" + ",\n".join(map(written, data)) + "]"
    assert isinstance(data, dict)
    return "{\n" + "".join(f"{key} = {written(each)}\n" for key, each in data.items()) + "}"


def plain(found: HclValue) -> object:
    if found.kind == "list":
        return [plain(each) for each in found.items]
    if found.kind == "map":
        return {name: plain(each) for name, _, each in found.entries}
    return {"number": int, "boolean": lambda text: text == "true"}.get(found.kind, str)(found.text)


@settings(max_examples=60, deadline=None)
@given(_LITERALS)
def test_literals_come_back_as_they_were_written(data: object) -> None:
    assert plain(value(written(data))) == data
