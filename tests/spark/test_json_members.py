"""JSON documents changed by their members: what is not named keeps its bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.spark.transform.json_members import MemberChanges, change_members

NAMES = st.sampled_from(["a", "b", "c", "é", "x y", 'q"'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def change(text: str, *changes: tuple[str, str | None]) -> str:
    return change_members(text, MemberChanges.build([(tuple(path.split(".")), new) for path, new in changes]))


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ('{"a":1,"b":2}', [("a", '"x"')], '{"a":"x","b":2}'),
        ('{ "a" : 1.50 , "b":2e3}', [("b", "null")], '{ "a" : 1.50 , "b":null}'),
        ('{"a":1,"b":2,"c":3}', [("b", None)], '{"a":1,"c":3}'),
        ('{"a":1}', [("a", None)], "{}"),
        ("{}", [("a", "1")], '{"a":1}'),
        ('{"a":1}', [("b", None)], '{"a":1}'),
        ('{"a":{"b":1,"c":2}}', [("a.b", "7"), ("a.c", None)], '{"a":{"b":7}}'),
        ('{"x":1}', [("a.b", "7")], '{"x":1,"a":{"b":7}}'),
        ('{"x":1}', [("a.b", None)], '{"x":1}'),
        ('{"a":[1],"x":1}', [("a.b", None)], '{"a":[1],"x":1}'),
        ('{"mail":"one","mail":"two"}', [("mail", '"#"')], '{"mail":"#","mail":"#"}'),
        ('{"m\\u0061il":"one"}', [("mail", '"#"')], '{"m\\u0061il":"#"}'),
        ('{"n":123456789012345678901234567890.10}', [("a", "1")], '{"n":123456789012345678901234567890.10,"a":1}'),
        (' {"a":1} ', [("a", "2")], ' {"a":2} '),
    ],
)
def test_only_what_is_named_changes(before: str, changes: list[tuple[str, str | None]], after: str) -> None:
    assert change(before, *changes) == after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "no JSON object"),
        ('"text"', "no JSON object"),
        ("", "no JSON object"),
        ('{"a":1', "expected `,` or `}`"),
        ('{"a" 1}', "a name in quotes"),
        ("{a:1}", "a name in quotes"),
        ('{"b":}', "expected a value"),
        ('{"a":1} x', "more behind"),
        ('{"a":1,}', "a name in quotes"),
    ],
)
def test_what_is_no_object_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        change(text, ("a", "1"))


def test_a_member_on_the_way_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="`a` is no JSON object"):
        change('{"a":[1]}', ("a.b", "1"))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        change('{"b":' + "[" * 100_000 + "]" * 100_000 + "}", ("a", "1"))


@settings(max_examples=choose_examples(150, 3_000), deadline=None)
@given(document=st.dictionaries(NAMES, VALUES, max_size=5), name=NAMES, value=VALUES, gone=NAMES, spaced=st.booleans())
def test_it_says_what_python_says(
    document: dict[str, object], name: str, value: object, gone: str, spaced: bool
) -> None:
    text = json.dumps(document, indent=1 if spaced else None, ensure_ascii=not spaced)
    changes = [((name,), json.dumps(value))]
    wanted = {**document, name: value}
    if gone != name:
        changes.append(((gone,), None))  # type: ignore[arg-type]
        wanted.pop(gone, None)
    assert json.loads(change_members(text, MemberChanges.build(changes))) == wanted
