"""Gzip of somebody else: all members, and never more than the bound."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from watershed.clusters.bounded_gzip import gunzip


@pytest.mark.parametrize("packed", [b"", gzip.compress(b"", mtime=0)])
def test_nothing_is_nothing(packed: bytes) -> None:
    assert gunzip(packed, 10) == b""


def test_all_members_count() -> None:
    pieces = [bytes([at % 251]) * at for at in range(3000)]
    packed = b"".join(map(gzip.compress, pieces))
    assert gunzip(packed, len(b"".join(pieces))) == b"".join(pieces)


def test_the_bound_is_of_all_members_together() -> None:
    packed = gzip.compress(bytes(600)) + gzip.compress(bytes(400))
    assert gunzip(packed, 1000) == bytes(1000)
    with pytest.raises(ValueError, match="more than 999 bytes"):
        gunzip(packed, 999)


def test_a_bomb_is_not_opened_further_than_the_bound() -> None:
    packed = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 1048576 bytes"):
            gunzip(packed, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 9, 17, -1])
def test_cut_off_data_is_an_error(cut: int) -> None:
    with pytest.raises(ValueError, match="gzip data"):
        gunzip(gzip.compress(b"watershed" * 100)[:cut], 1 << 20)


def test_what_is_no_gzip_is_an_error() -> None:
    with pytest.raises(ValueError, match="gzip data cannot be read"):
        gunzip(b"watershed", 1 << 20)
