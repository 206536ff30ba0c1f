"""The proof of a copy with `provenance.header`: each record is expected with its own header, and only with that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from watershed.spark.fingerprint import fingerprint_slices
from watershed.spark.reading.batch_decoding import locate_records, split_checked_batches
from watershed.spark.reading.provenance_rewrite import add_provenance_headers

HEADER = ProvenanceHeader("from", "here", "orders", 3)
T0 = 1_700_000_000_000
SOURCE = [
    BatchRecord(at, T0 + at, b"k%d" % at, None if at % 5 == 0 else b"v" * at, (("n", b"x"), ("from", None))[: at % 3])
    for at in range(40)
]


def slices(records: list[BatchRecord], base: int = 100):
    batch = assign_batch_offset(build_batch(records, codec="gzip"), base, 0)
    return locate_records(list(split_checked_batches(memoryview(batch))))


def copied(text: str = "v1 here orders 3 {offset} {time}", first: int = 0) -> list[BatchRecord]:
    """What a flow should have written; records below `first` have no header."""
    return [
        each
        if at < first
        else replace(each, headers=(*each.headers, ("from", text.format(offset=100 + at, time=T0 + at).encode())))
        for at, each in enumerate(SOURCE)
    ]


def differences(target: list[BatchRecord], header: ProvenanceHeader | None = HEADER) -> int:
    expected = fingerprint_slices(add_provenance_headers(slices(SOURCE), header))
    return int(np.count_nonzero(expected.fp != fingerprint_slices(slices(target, 7_000)).fp))


def test_a_right_copy_has_no_difference() -> None:
    assert differences(copied()) == 0
    assert differences(SOURCE, None) == 0


@pytest.mark.parametrize(
    "text",
    [
        "v1 here orders 3 {time} {time}",
        "v1 here orders 4 {offset} {time}",
        "v1 there orders 3 {offset} {time}",
        "v1 here order 3 {offset} {time}",
        "v1 here orders 3 {offset} 0",
        "",
    ],
)
def test_each_wrong_header_is_a_difference(text: str) -> None:
    assert differences(copied(text)) == len(SOURCE)


def test_a_header_that_is_missing_or_too_much_is_a_difference() -> None:
    right = copied()
    assert differences([SOURCE[0], *right[1:]]) == 1
    assert differences([*right[:-1], replace(right[-1], headers=(*right[-1].headers, ("from", b"v1")))]) == 1
    assert differences(SOURCE) == len(SOURCE)
    assert differences(right, None) == len(SOURCE)


def test_what_another_tool_copied_has_none() -> None:
    adopted = replace(HEADER, begin=117)
    assert differences(copied(first=17), adopted) == 0
    assert differences(copied(), adopted) == 17
