"""Numbers of variable length: there and back, at every size, and bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.varints import decode_uvarint, decode_zigzag, encode_uvarint, encode_zigzag


@given(st.integers(0, 2**64 - 1))
def test_unsigned(number: int) -> None:
    assert decode_uvarint(b"x" + encode_uvarint(number) + b"y", 1) == (number, 1 + len(encode_uvarint(number)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_with_a_sign(number: int) -> None:
    assert decode_zigzag(b"x" + encode_zigzag(number) + b"y", 1) == (number, 1 + len(encode_zigzag(number)))


@pytest.mark.parametrize(
    ("number", "written"), [(0, b"\x00"), (-1, b"\x01"), (1, b"\x02"), (-64, b"\x7f"), (64, b"\x80\x01")]
)
def test_as_kafka_writes_them(number: int, written: bytes) -> None:
    assert encode_zigzag(number) == written


@pytest.mark.parametrize("read", [decode_uvarint, decode_zigzag])
def test_numbers_without_an_end(read) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        read(b"\xff" * 11, 0)
    with pytest.raises(IndexError):
        read(b"\xff\xff", 0)
