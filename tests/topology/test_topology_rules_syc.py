"""The SYC rules beyond their manuals: both directions, groups by pattern, defaults that count, what a scan adds."""

from __future__ import annotations

import pytest

from tests.topology.rule_cases import stretch
from tests.topology.rule_cases.example import FLOW, ORDERS, clusters, found, topics
from tests.topology.rule_cases.syc import BOTH, CASES, DIRECT, PAIR
from watershed.topology.language.scalars import REGISTRY_URL_SHAPE

_ALL = [*CASES, *stretch.CASES]


@pytest.mark.parametrize(("code", "example", "said"), [case[1:] for case in _ALL], ids=[case[0] for case in _ALL])
def test_what_a_rule_says(code: str, example: str, said: list[str]) -> None:
    messages = [finding.message for finding in found(example, code)]
    assert len(messages) == len(said), messages
    for message, part in zip(messages, said, strict=True):
        assert part in message


def test_one_cause_is_told_once() -> None:
    both = PAIR % "sync: {groups: {mode: continuous}}" + BOTH
    assert len(found(both, "SYC502")) == 1
    assert found(both, "SYC501") == []
    # where names differ nothing goes round, but the groups of both sides are at work all the same
    assert len(found(DIRECT + "    sync: {groups: {mode: continuous}}}\n", "SYC501")) == 2


def test_aborted_records_are_an_error_only_against_a_promise() -> None:
    uncommitted = ", delivery: {semantics: %s, isolation: read_uncommitted}"
    transactional = clusters(topics(ORDERS + "transactional: true"))
    severities = {
        semantics: [finding.severity for finding in found(transactional + FLOW % (uncommitted % semantics), "SYC515")]
        for semantics in ("exactly_once", "transactions", "at_least_once")
    }
    assert severities == {"exactly_once": ["error"], "transactions": ["error"], "at_least_once": ["warning"]}


def test_a_registry_address_is_never_shown() -> None:
    secret = "hunter2"
    example = clusters(
        f'schema_registry: {{url: "https://user:{secret}@a.example.internal"}}, ' + topics(ORDERS + "schema: avro"),
        'schema_registry: {url: "https://b.example.internal"}',
    )
    [finding] = found(example + FLOW % "", "SYC513")
    assert secret not in str(finding)


def test_a_registry_address_has_a_scheme() -> None:
    for good in ("https://r.example.internal", "http://127.0.0.1:8081/apis/ccompat/v7", "https://r/contexts/.eu"):
        assert REGISTRY_URL_SHAPE.convert(good) == good
    for bad in ("127.0.0.1:8081", "r.example.internal", "https://"):
        with pytest.raises(ValueError, match="begins with"):
            REGISTRY_URL_SHAPE.convert(bad)


def test_the_order_of_the_file_changes_nothing() -> None:
    lines = BOTH.splitlines(keepends=True)
    head = PAIR % "sync: {groups: {mode: continuous}}"
    one, two = (found(head + "".join(order), "SYC502") for order in (lines, lines[::-1]))
    assert [(each.message, each.fingerprint) for each in one] == [(each.message, each.fingerprint) for each in two]
