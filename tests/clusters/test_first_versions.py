"""Versions 0 that kio lacks, byte for byte as Kafka 0.11 reads and writes them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from watershed.clusters.wire.admin_reads import read_topic_config_entries
from watershed.clusters.wire.request_codec import build_request, decode_response, encode_entity, load_message_class


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def encoded(name: str, **values: Any) -> bytes:
    return encode_entity(build_request(load_message_class(name, 0, "request"), values))


def test_a_filter_of_acls_has_no_pattern() -> None:
    values = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,  # left out: KIP-290
        "principal_filter": "User:ann",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    assert encoded("describe_acls", **values) == b"\x01" + text(None) + text("User:ann") + text(None) + b"\x01\x01"


def test_acls_are_read() -> None:
    acl = text("User:ann") + text("*") + b"\x03\x03"
    body = struct.pack(">ihh", 0, 0, -1) + struct.pack(">i", 1)
    body += b"\x02" + text("orders") + struct.pack(">i", 1) + acl
    answer = decode_response("describe_acls", 0, memoryview(body))
    [resource] = answer.resources
    assert (int(resource.resource_type), resource.resource_name) == (2, "orders")
    assert [(each.principal, each.host, int(each.operation)) for each in resource.acls] == [("User:ann", "*", 3)]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        (
            "create_acls",
            {
                "creations": [
                    {
                        "resource_type": 2,
                        "resource_name": "orders",
                        "resource_pattern_type": 3,
                        "principal": "User:ann",
                        "host": "*",
                        "operation": 4,
                        "permission_type": 2,
                    }
                ]
            },
            struct.pack(">i", 1) + b"\x02" + text("orders") + text("User:ann") + text("*") + b"\x04\x02",
        ),
        (
            "describe_configs",
            {
                "resources": [{"resource_type": 2, "resource_name": "orders", "configuration_keys": None}],
                "include_synonyms": True,
                "include_documentation": False,
            },
            struct.pack(">i", 1) + b"\x02" + text("orders") + struct.pack(">i", -1),
        ),
        ("describe_log_dirs", {"topics": None}, struct.pack(">i", -1)),
    ],
)
def test_requests(name: str, values: dict[str, Any], expected: bytes) -> None:
    assert encoded(name, **values) == expected


def test_configs_say_whether_they_are_the_default() -> None:
    def entry(name: str, value: str, is_default: bool) -> bytes:
        return text(name) + text(value) + bytes([False, is_default, False])

    body = struct.pack(">iihh", 0, 1, 0, -1) + b"\x02" + text("orders") + struct.pack(">i", 2)
    body += entry("retention.ms", "5", False) + entry("segment.ms", "7", True)
    answer = decode_response("describe_configs", 0, memoryview(body))

    class Broker:
        def ask(self, _api: int, **_values: Any) -> Any:
            return answer

    found, refused = read_topic_config_entries(Broker(), ["orders"])  # type: ignore[arg-type]
    assert {key: (each.value, each.own, each.otherwise) for key, each in found["orders"].items()} == {
        "retention.ms": ("5", True, None),
        "segment.ms": ("7", False, None),
    }
    assert not refused
