"""What a ledger claims, as rules about headers; how ledgers come to them: the simulations of `tests.replicator`."""

from __future__ import annotations

import pytest

from watershed.clusters.claim_rules import SEQUENCE_MODULUS, UNBOUNDED_END_OFFSET, ClaimRule

RULE = ClaimRule(7, 2, 3, 100, UNBOUNDED_END_OFFSET, 100)  # producer 7 began its epoch 2 at offset 100


@pytest.mark.parametrize(
    ("seen", "covered"),
    [
        ((7, 2, 0, 100, 103), True),
        ((7, 2, 17, 117, 118), True),
        ((7, 2, 5, 100 + SEQUENCE_MODULUS + 5, 100 + SEQUENCE_MODULUS + 6), True),  # the numbers began anew
        ((8, 2, 0, 100, 103), False),
        ((7, 1, 0, 100, 103), False),
        ((7, 3, 0, 100, 103), False),
        ((7, 2, 0, 99, 102), False),
        ((7, 2, 0, 104, 105), False),
        ((7, 2, 16, 117, 118), False),
    ],
)
def test_producer_epoch_place_and_sequence_have_to_fit(seen: tuple[int, int, int, int, int], covered: bool) -> None:
    assert RULE.covers(*seen) is covered


def test_without_numbers_the_place_decides() -> None:
    rule = RULE._replace(base=-1, end=200)
    assert rule.covers(7, 2, 9, 150, 151)
    assert not rule.covers(7, 2, 9, 199, 201)
