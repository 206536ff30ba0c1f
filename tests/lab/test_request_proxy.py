"""What a server lacks is not in its ApiVersions answer, whichever version is asked."""

from __future__ import annotations

import struct

import pytest

from watershed.lab.request_proxy import IDEMPOTENCE_REQUESTS, hide_requests

RANGES = [(0, 0, 13), (1, 4, 18), (22, 0, 5), (3, 0, 13), (61, 0, 0)]


def body(version: int, ranges: list[tuple[int, int, int]]) -> bytes:
    tags = b"\0" if version >= 3 else b""
    count = bytes([len(ranges) + 1]) if version >= 3 else struct.pack(">i", len(ranges))
    throttle = b"" if version == 0 else b"\0\0\0\7"
    return b"\0\0" + count + b"".join(struct.pack(">hhh", *each) + tags for each in ranges) + throttle + tags


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_hidden_requests_are_left_out_and_nothing_else(version: int) -> None:
    left = [each for each in RANGES if each[0] not in IDEMPOTENCE_REQUESTS]
    assert hide_requests(body(version, RANGES), version, IDEMPOTENCE_REQUESTS) == body(version, left)
    assert hide_requests(body(version, RANGES), version, ()) == body(version, RANGES)


def test_many_requests() -> None:
    many = [(at, 0, 1) for at in range(100)]
    found = hide_requests(body(3, many), 3, {5})
    assert found == body(3, [each for each in many if each[0] != 5])


def test_an_answer_that_refuses_the_version_is_of_the_oldest_form() -> None:
    refused = b"\0\x23" + body(0, RANGES)[2:]
    assert hide_requests(refused, 3, {22})[:2] == b"\0\x23"
    assert struct.unpack_from(">i", hide_requests(refused, 3, {22}), 2) == (4,)
