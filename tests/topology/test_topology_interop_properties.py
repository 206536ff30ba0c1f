"""The syntax of Java properties, and MirrorMaker's lists of regexes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.topology.interop.import_notes import ImportNotes, is_setting_name
from watershed.topology.interop.java_properties import escape_property, parse_properties
from watershed.topology.interop.mm2_topic_list import encode_java_regex, encode_topic_list, parse_topic_list
from watershed.topology.selectors import Selector

NAMES = [
    "orders",
    "orders.created",
    "ordersXcreated",
    "pay-1",
    "a",
    "ab",
    "abb",
    "team_x.a",
    "team_x-a",
    "x",
    "orders.",
]


def read(text: str) -> dict[str, str]:
    notes = ImportNotes()
    found = {said.name: said.text for said in parse_properties(text, "f", notes)}
    assert notes.problems == ()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("  a=b  ", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# a=b\n! c=d\n\n   \ne=f", {"e": "f"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a = b, \\\n    c, \\\n\td", {"a": "b, c, d"}),
        ("a = b\\\n# no comment", {"a": "b# no comment"}),
        ("# a comment \\\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b\\:c\\#d=e", {"a b:c#d": "e"}),
        ("a=\\u0041\\t\\n\\x", {"a": "A\t\nx"}),
        ("a==b", {"a": "=b"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("topics = a\\\\..*", {"topics": "a\\..*"}),
        ("topics = a\\..*", {"topics": "a..*"}),
        ("A->B.enabled=true", {"A->B.enabled": "true"}),
        ("a=\\", {"a": ""}),
        ("a=ä", {"a": "ä"}),
    ],
)
def test_properties(text: str, expected: dict[str, str]) -> None:
    assert read(text) == expected


def test_a_key_said_twice_is_said_and_the_last_counts() -> None:
    notes = ImportNotes()
    [said] = parse_properties("a=1\nb\\\n=2\n".replace("b\\\n", "a\\\n"), "f", notes)
    assert said.text == "2"
    [problem] = notes.problems
    assert (problem.code, problem.labels[0].span.line) == ("SYN002", 2)


def test_a_comment_behind_a_value_is_said() -> None:
    notes = ImportNotes()
    [said] = parse_properties("topics = foo.*, bar.*  # all", "f", notes)
    assert said.text == "foo.*, bar.*"
    [problem] = notes.problems
    assert problem.code == "SYN011"
    assert problem.labels[0].span.column == 24


def test_a_broken_escape_is_a_syntax_error_and_the_rest_is_read() -> None:
    notes = ImportNotes()
    assert [said.name for said in parse_properties("a=\\u12\nb=c", "f", notes)] == ["b"]
    assert [problem.code for problem in notes.problems] == ["SYN001"]


def test_what_is_no_key_is_not_shown() -> None:
    notes = ImportNotes()
    assert parse_properties('password="hunter2";\nhunter2"; x\n', "f", notes)[0].name == "password"
    [problem] = notes.problems
    assert "hunter2" not in problem.message + problem.help


def test_places_of_keys_and_values_count_lines_and_columns_of_the_file() -> None:
    [one, two] = parse_properties("# x\n  key = value\nother=\\\n   continued\n", "f", ImportNotes())
    assert (one.key.line, one.key.column, one.span.line, one.span.column, one.span.end_column) == (2, 3, 2, 9, 14)
    assert (two.key.line, two.span.line, two.span.column) == (3, 4, 4)


@settings(max_examples=choose_examples(60, 200))
@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12).map(str.rstrip), max_size=4))
def test_what_is_escaped_is_read_back(values: dict[str, str]) -> None:
    values = {key: value for key, value in values.items() if is_setting_name(key)}
    values = {key: value for key, value in values.items() if " #" not in value and "\t#" not in value}
    text = "".join(f"{escape_property(key, key=True)} = {escape_property(value)}\n" for key, value in values.items())
    notes = ImportNotes()
    found = {said.name: said.text for said in parse_properties(text, "f", notes)}
    assert found == values


@pytest.mark.parametrize(
    ("text", "kind", "meaning"),
    [
        ("orders", "literal", "orders"),
        (r"orders\.created", "literal", "orders.created"),
        ("orders[.]created", "literal", "orders.created"),
        ("^orders$", "literal", "orders"),
        (".*", "glob", "*"),
        ("foo.*", "glob", "foo*"),
        (r"foo\..*", "glob", "foo.*"),
        (r".*\.foo", "glob", "*.foo"),
        ("foo.+", "regex", "foo.+"),
        ("[a-z]+", "regex", "[a-z]+"),
        ("(a|b).*", "regex", "(a|b).*"),
        (r"\Qa.b\E.*", "regex", r"a\.b.*"),
    ],
)
def test_an_entry_becomes_the_simplest_selector(text: str, kind: str, meaning: str) -> None:
    [item] = parse_topic_list(text)
    assert item.selector == Selector(kind, meaning)  # type: ignore[arg-type]
    assert item.trap == ""


def test_an_unescaped_dot_is_a_trap() -> None:
    assert [(item.selector, item.trap) for item in parse_topic_list("orders.created, team.orders.*")] == [
        (Selector("literal", "orders.created"), "loose dots"),
        (Selector("regex", "team.orders.*"), "wide dots"),
    ]


def test_plain_alternatives_are_several_entries() -> None:
    assert [item.selector for item in parse_topic_list(r"a|b\..*|c")] == [
        Selector("literal", "a"),
        Selector("glob", "b.*"),
        Selector("literal", "c"),
    ]


def test_a_negative_look_ahead_is_an_exclude() -> None:
    [item] = parse_topic_list("^(?!test-).*$")
    assert (item.selector, item.excluded) == (Selector("glob", "*"), Selector("glob", "test-*"))


@pytest.mark.parametrize("text", ["(a", "a)", "*a", "[a", "(?=x)y", r"(a)\1", "(?i)a"])
def test_what_is_no_regular_expression_here_says_why(text: str) -> None:
    [item] = parse_topic_list(text)
    assert item.selector is None
    assert item.why


REGEXES = st.recursive(
    st.sampled_from(["a", "b", "x", r"\.", ".", "[ab]", "[^a]", "-", r"\w"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        inner.map(lambda text: f"(?:{text})*"),
        st.tuples(inner, st.sampled_from(["{1,3}", "{2}", "{1,}", "+", "?"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=5,
)
SELECTORS = st.one_of(
    st.text("abx._-", min_size=1, max_size=5).map(lambda text: Selector("literal", text)),
    st.text("ab.*?-", min_size=1, max_size=5).map(lambda text: Selector("glob", text)),
    REGEXES.map(lambda text: Selector("regex", text)),
    st.tuples(REGEXES, REGEXES).map(lambda pair: Selector("regex", "|".join(pair))),
)


@settings(max_examples=choose_examples(100, 300))
@given(SELECTORS, st.lists(st.text("abx._-", min_size=1, max_size=5), min_size=1, max_size=10))
def test_a_selector_that_is_listed_is_read_back_with_the_same_meaning(selector: Selector, names: list[str]) -> None:
    text = encode_java_regex(selector)
    assert text is not None
    assert "," not in text
    back = [item.selector for item in parse_topic_list(text)]
    for name in [*names, *NAMES]:
        assert any(each is not None and each.matches(name) for each in back) == selector.matches(name), text


def test_what_no_list_can_hold_is_told() -> None:
    assert encode_topic_list((Selector("literal", "a.b"), Selector("regex", "a,b"))) == (
        r"a\.b",
        (Selector("regex", "a,b"),),
    )
