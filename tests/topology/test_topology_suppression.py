"""Which text is a comment that silences a rule, and which only looks like one."""

from __future__ import annotations

import pytest

from watershed.topology.suppression import parse_suppressions

COMMENT = "# lint: ignore[SYN005] why"


def read_lines(text: str) -> list[tuple[int, str, bool]]:
    """Line, reason and whether it stands alone, of each comment."""
    return [(each.span.line, each.reason, each.alone) for each in parse_suppressions(text, "f.yaml").entries]


@pytest.mark.parametrize(
    "text",
    [
        f'a: "x {COMMENT}"\n',
        f"a: 'it {COMMENT}'\n",
        f"a: 'it\n  {COMMENT}\n  goes on'\n",
        f'a: "b\\"{COMMENT}"\n',
        f"a: |\n  {COMMENT}\n  more\n",
        f"a: >-\n  first\n\n  {COMMENT}\nb: 1\n",
        f'[a, "x {COMMENT}", b]\n',
        f'? "key {COMMENT}"\n: 1\n',
    ],
)
def test_text_of_a_scalar_is_no_comment(text: str) -> None:
    assert read_lines(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"a: 1 {COMMENT}\n", [(1, "why", False)]),
        (f"{COMMENT}\na: 1\n", [(1, "why", True)]),
        (f"a: | {COMMENT}\n  x\n", [(1, "why", False)]),
        (f"a: |\n    x\n\n  {COMMENT}\nb: 1\n", [(4, "why", True)]),
        (f'a: "x {COMMENT}" {COMMENT} # and more\n', [(1, "why # and more", False)]),
        (f"a: '{COMMENT}'\nb: [1,  {COMMENT}\n  2]\n", [(2, "why", False)]),
        (f'{COMMENT}\na: "not closed\n', [(1, "why", True)]),
        (f'a: "\u00e4\u00f6 {COMMENT}" {COMMENT}\n', [(1, "why", False)]),
    ],
)
def test_comments(text: str, found: list[tuple[int, str, bool]]) -> None:
    assert read_lines(text) == found


def test_a_long_line_that_repeats_the_words_is_read_once() -> None:
    text = 'a: "' + f" {COMMENT}" * 30_000 + '"\n'
    assert read_lines(text) == []
