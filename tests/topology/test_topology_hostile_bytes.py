"""Whatever bytes a file holds: a message or findings, never another exception, and every span lies within the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from watershed.topology import pattern_automaton
from watershed.topology.errors import BadSelector, TopologyError
from watershed.topology.lint import LintResult, lint_topology
from watershed.topology.loader import load_topology, parse_topology
from watershed.topology.selection_overlap import find_shortest_overlap, limit_overlap_work
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.text_escaping import escape_controls, shorten_and_escape
from watershed.topology.yaml_tree import split_yaml_lines

EXAMPLES = sorted((Path(__file__).parents[2] / "topology" / "examples").rglob("*.yaml"))
TEXTS = [path.read_text(encoding="utf-8") for path in EXAMPLES]
UNHURRIED = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
PIECES = st.sampled_from(
    [
        *("\t", "\r", "\x85", "\u2028", "\0", "\x1b[31m", "\ud800", "\ufeff", "é", "\U0001f600", "\n", "  "),
        *("- ", ": ", "? ", "{", "[", "}", "]", "&a ", "*a", "!!x ", "<<: ", "---\n", "...\n", "%YAML 9\n", "| \n"),
        *("'", '"', "~", "null", "1e999", "99999999999999999999999s", "#", " # lint: ignore[SYN003] x", "{topic}"),
        *("(", "a{250}", "[z-a]", "*"),
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """An example with pieces put in, taken out, doubled or swapped with those of another example."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 6))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 30)))
        kind = draw(st.sampled_from(["put", "take", "double", "other"]))
        if kind == "put":
            text = text[:begin] + draw(PIECES) + text[begin:]
        elif kind == "take":
            text = text[:begin] + text[end:]
        elif kind == "double":
            text = text[:end] + text[begin:end] + text[end:]
        else:
            other = draw(st.sampled_from(TEXTS))
            text = text[:begin] + other[begin:end] + text[end:]
    return text


def judge(text: str) -> LintResult | None:
    """None when the file cannot be judged at all, with a message."""
    try:
        loaded = parse_topology(text, "t.yaml")
    except TopologyError as error:
        said = str(error)
        assert said
        return None
    return lint_topology(loaded)


def inside(result: LintResult, text: str) -> None:
    lines = split_yaml_lines(text)
    for finding in (*result.findings, *result.suppressed):
        assert finding.message
        assert escape_controls(finding.message) == finding.message
        for label in finding.labels:
            span = label.span
            assert (1, 1) <= (span.line, span.column) <= (span.end_line, span.end_column)
            assert span.end_line <= len(lines) + 1
            assert span.line <= len(lines)
            assert span.column <= len(lines[span.line - 1]) + 1


@UNHURRIED
@given(mutated())
def test_a_mutated_example_gives_findings_within_the_file(text: str) -> None:
    result = judge(text)
    if result is not None:
        inside(result, text)


@UNHURRIED
@given(st.text(max_size=400))
def test_any_text_gives_findings_within_the_file(text: str) -> None:
    for whole in (text, TEXTS[0] + text, TEXTS[0].replace("rides", text, 1)):
        result = judge(whole)
        if result is not None:
            inside(result, whole)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bytes") / "t.yaml"


@UNHURRIED
@given(
    data=st.one_of(
        st.binary(max_size=400),
        mutated().map(lambda text: text.encode("utf-16", "surrogatepass")),
        st.binary(max_size=40),
    )
)
def test_any_bytes_are_a_message_or_findings(path: Path, data: bytes) -> None:
    for whole in (data, TEXTS[0].encode() + data):
        path.write_bytes(whole)
        try:
            loaded = load_topology(path)
        except TopologyError as error:
            said = str(error)
            assert said.startswith(str(path))
        else:
            inside(lint_topology(loaded), loaded.sources[str(path)])


@UNHURRIED
@given(st.text(alphabet="ab.*+?|()[]{}^$\\-0123456789,:wdsé ", max_size=40), st.text(alphabet="ab.", max_size=6))
def test_any_pattern_is_run_or_refused(pattern: str, name: str) -> None:
    for build in (pattern_automaton.compile_regex, pattern_automaton.compile_glob):
        try:
            machine = build(pattern)
        except BadSelector as error:
            said = str(error)
            assert said
        else:
            assert machine.matches(name) in (True, False)


@UNHURRIED
@given(st.text())
def test_what_is_shown_is_short_and_on_one_line(text: str) -> None:
    assert shorten_and_escape(text).isprintable() or "\n" not in shorten_and_escape(text)
    assert not set(shorten_and_escape(text)) & set("\x1b\r\n\x7f\x9b\u202e\u2028\ufeff")
    assert len(shorten_and_escape(text)) <= 60 * len("\\U000e0001")


SETS = st.lists(st.text(alphabet="ab*?", min_size=1, max_size=4), min_size=1, max_size=4)


@UNHURRIED
@given(SETS, SETS, SETS)
def test_many_selectors_are_one_machine(one: list[str], two: list[str], without: list[str]) -> None:
    """Against every name up to four letters: the answer, and that the name found is the shortest."""

    def selection(texts: list[str], exclude: list[str]) -> TopicSelection:
        kinds = [Selector("glob" if set(text) & set("*?") else "literal", text) for text in texts]
        out = [Selector("glob", text) for text in exclude]
        return TopicSelection(tuple(kinds), tuple(out))

    both = selection(one, without), selection(two, [])
    found = find_shortest_overlap(frozenset(("", "", each) for each in both))
    names = [""]
    for _ in range(4):
        names = [*names, *(name + letter for name in names for letter in "ab" if len(name) < 4)]
    hits = {name for name in names if name and all(each.selects(name) for each in both)}
    assert found.certain
    if hits:
        assert found.name is not None
        assert len(found.name) <= len(min(hits, key=len))
    if found.name is not None:
        assert all(each.selects(found.name) for each in both)


def test_when_the_work_is_used_up_the_answer_is_perhaps() -> None:
    def question(number: int) -> frozenset[tuple[str, str, TopicSelection]]:
        pattern = f"(a|b)*a(a|b){{{number}}}c"
        return frozenset({("", "", TopicSelection((Selector("regex", pattern),), (Selector("glob", "*c"),)))})

    assert find_shortest_overlap(question(3)).found is False
    with limit_overlap_work(5_000):
        first = [find_shortest_overlap(question(number)) for number in range(3, 20)]
    with limit_overlap_work(5_000):
        assert first == [find_shortest_overlap(question(number)) for number in range(3, 20)]
    assert first[0].certain
    assert not first[-1].certain
    assert first[-1].found
    assert not find_shortest_overlap(question(20)).certain, "one question has a bound of its own"
    assert find_shortest_overlap(question(3)).certain
