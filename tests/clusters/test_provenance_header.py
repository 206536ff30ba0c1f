"""The text of the provenance header: frozen, because it stands in records and others read it."""

from __future__ import annotations

import pytest

from watershed.clusters.provenance_header import (
    ProvenanceHeader,
    RecordOrigin,
    build_provenance_header,
    decode_record_origin,
)
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import TopicSelection

HEADER = ProvenanceHeader("came-from", "AbCdEfGhIjKlMnOpQrStUv", "orders.created", 3)


def test_the_text_is_what_the_page_says() -> None:
    text = HEADER.encode_value(42, 1_700_000_000_123)
    assert text == b"v1 AbCdEfGhIjKlMnOpQrStUv orders.created 3 42 1700000000123"
    assert decode_record_origin(text) == RecordOrigin(
        "AbCdEfGhIjKlMnOpQrStUv", "orders.created", 3, 42, 1_700_000_000_123
    )
    assert decode_record_origin(HEADER.encode_value(0, -1)) is not None


@pytest.mark.parametrize(
    "value", [None, b"", b"v2 c t 0 1 2", b"v1 c t 0 1", b"v1 c t x 1 2", b"v1 c t 0 1 2 3", b"\xff"]
)
def test_other_texts_name_no_place(value: bytes | None) -> None:
    assert decode_record_origin(value) is None


def test_a_flow_without_the_key_writes_none() -> None:
    flow = PlanFlow("f", "onprem", "cloud", TopicSelection(()))
    assert build_provenance_header(flow, "id", "orders", 0) is None
