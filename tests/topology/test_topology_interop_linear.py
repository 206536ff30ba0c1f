"""Foreign files that were made to be slow: expressions on foreign text read it once."""

from __future__ import annotations

import pytest

from watershed.topology.errors import UnreadableTopology
from watershed.topology.finding import FileSpan
from watershed.topology.interop import java_properties
from watershed.topology.interop.client_security import check_literal_secrets
from watershed.topology.interop.hcl import HclValue
from watershed.topology.interop.import_notes import ImportNotes, has_placeholder, is_secret_placeholder
from watershed.topology.interop.linking_filters import build_link_filter
from watershed.topology.interop.linking_import import _words
from watershed.topology.interop.mm2_topic_list import parse_topic_list
from watershed.topology.interop.remark_lines import Remark, render_remark_lines
from watershed.topology.interop.terraform_module import TerraformModule
from watershed.topology.loader import parse_topology
from watershed.topology.selectors import Selector
from watershed.topology.value_wording import _SECRET_TEXT

LONG = 200_000
PAIR = (
    "clusters = a, b\na.bootstrap.servers = a.example:9093\nb.bootstrap.servers = b.example:9093\na->b.enabled = true\n"
)


def left(text: str) -> str:
    notes = ImportNotes()
    notes.add_not_carried(text, "", FileSpan("x", 1, 1, 1, 1))
    return notes.not_carried[0].what


@pytest.mark.parametrize("word", ["token", "password", "secret=", "a", " ", "=", "token "])
def test_a_note_on_a_long_text_is_masked_in_one_pass(word: str) -> None:
    text = word * (LONG // len(word))
    assert len(left(text + " end")) <= len(text) + 5


@pytest.mark.parametrize("word", ["a", "-", ">", "a-", "a-to-", "A_", "1", "`", " ->", "cluster "])
def test_remarks_on_a_long_text_are_put_together_in_one_pass(word: str) -> None:
    remark = Remark(FileSpan("x", 1, 1, 1, 1), "", word * (LONG // len(word)) + "\n", column=False)
    assert len(render_remark_lines([remark, remark])) == 1


@pytest.mark.parametrize("word", ["<", "<a", "{", "{a", "${", "$(", "a"])
def test_placeholders_in_a_long_text_are_found_in_one_pass(word: str) -> None:
    text = word * (LONG // len(word))
    assert not has_placeholder(text)
    assert not is_secret_placeholder(text)


def test_what_was_masked_is_masked() -> None:
    assert left("x.password=abc and my.Token = def; secret-key=a=b") == "x.password=… and my.Token = … secret-key=…"


@pytest.mark.parametrize("value", [" ", "${", "${a:", "password", "[", "a."])
def test_a_value_of_a_properties_file_is_read_in_one_pass(value: str) -> None:
    notes = ImportNotes()
    said = java_properties.parse_properties(
        f"{PAIR}a.sasl.jaas.config = x{value * (LONG // len(value))}y\n", "f", notes
    )
    check_literal_secrets(said, notes)
    assert [each.name for each in said][-1] == "a.sasl.jaas.config"


@pytest.mark.parametrize("line", ["\\" * LONG, ("\\" * 9 + "x") * (LONG // 10), "." * LONG])
@pytest.mark.parametrize("text", [".a", "a.b", ".."])
def test_backslashes_before_dots_are_found_in_one_pass(line: str, text: str) -> None:
    said = java_properties.ForeignSetting("topics", "x", FileSpan("f", 1, 1, 1, 1), FileSpan("f", 1, 1, 1, 1))
    assert not java_properties.has_dropped_backslash(said, text + "!", [line])


def test_which_backslashes_java_drops() -> None:
    said = java_properties.ForeignSetting("topics", "x", FileSpan("f", 1, 1, 1, 1), FileSpan("f", 1, 1, 1, 1))
    lines = (r"a.b.c", r"x a\.b.c", r"a.b\\\.c", r"a\b.c", r"\a.b.c")
    assert [java_properties.has_dropped_backslash(said, "a.b.c", [line]) for line in lines] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_brackets_of_terraform_and_stars_of_cluster_linking_are_read_once() -> None:
    module = TerraformModule()
    assert module.block("a" + "[" * LONG) is None
    assert module.address(HclValue("reference", FileSpan("f", 1, 1, 1, 1), "data.x.east[0].id")) == "data.x.east"
    assert build_link_filter(Selector("glob", "*" * LONG + "x")) is None
    assert build_link_filter(Selector("glob", "orders***")) == {"name": "orders", "patternType": "PREFIXED"}


def test_quotes_of_java_and_words_of_a_comment_are_read_once() -> None:
    assert parse_topic_list("\\Q" * LONG)[0].why
    assert parse_topic_list(r"\Qa.b\E(c|d)\Q")[0].why
    notes = ImportNotes()
    assert _words(["# watershed:" + "x" * LONG, "# watershed:link=a" + " mirror=b"], 0, "f", notes).keys() == {
        "link",
        "mirror",
    }


@pytest.mark.parametrize("text", [f"x: ]\n{chr(10) * LONG}", "x: ]\n" + "{" * LONG + "\n" * LONG])
def test_what_is_no_yaml_is_searched_for_sections_once(text: str) -> None:
    with pytest.raises(UnreadableTopology):
        parse_topology(text, "f.yaml")


def test_a_text_of_colons_is_searched_for_a_secret_once() -> None:
    assert _SECRET_TEXT.search(":" * LONG) is None
    assert _SECRET_TEXT.search("a" * LONG + ":" * LONG) is None
    for secret in ("::x@", "user:word@host", "see user:word@host", "::::@h", "a/b:c@", "token = :"):
        assert _SECRET_TEXT.search(secret), secret
    for plain in (":x@", "x:@", "a: b@c", "x:y/z@"):
        assert _SECRET_TEXT.search(plain) is None, plain
