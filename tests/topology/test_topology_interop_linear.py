"""Foreign files that were made to be slow: expressions on foreign text read it once."""

from __future__ import annotations

import pytest

from topology.finding import Span
from topology.interop import properties
from topology.interop.said import Notes
from topology.interop.security import literal_secrets

LONG = 200_000
PAIR = (
    "clusters = a, b\na.bootstrap.servers = a.example:9093\nb.bootstrap.servers = b.example:9093\na->b.enabled = true\n"
)


def left(text: str) -> str:
    notes = Notes()
    notes.leave(text, "", Span("x", 1, 1, 1, 1))
    return next(iter(notes.left.values())).what


@pytest.mark.parametrize("word", ["token", "password", "secret=", "a", " ", "=", "token "])
def test_a_note_on_a_long_text_is_masked_in_one_pass(word: str) -> None:
    text = word * (LONG // len(word))
    assert len(left(text + " end")) <= len(text) + 5


def test_what_was_masked_is_masked() -> None:
    assert left("x.password=abc and my.Token = def; secret-key=a=b") == "x.password=… and my.Token = … secret-key=…"


@pytest.mark.parametrize("value", [" ", "${", "${a:", "password", "[", "a."])
def test_a_value_of_a_properties_file_is_read_in_one_pass(value: str) -> None:
    notes = Notes()
    said = properties.read_properties(f"{PAIR}a.sasl.jaas.config = x{value * (LONG // len(value))}y\n", "f", notes)
    literal_secrets(said, notes)
    assert [each.name for each in said][-1] == "a.sasl.jaas.config"
