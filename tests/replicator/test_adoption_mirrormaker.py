"""MirrorMaker's own topics: bytes built from the published schemas, and what no such record is."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from pathlib import Path

import pytest

from watershed.replicator.adoption.mirrormaker_format import (
    ConnectSourceOffset,
    build_mirrormaker_notes,
    decode_source_offset,
)
from watershed.replicator.mirrormaker_records import (
    Checkpoint,
    OffsetSync,
    UnreadableNote,
    decode_checkpoint,
    decode_offset_sync,
)

RECORDED = Path(__file__).parents[1] / "cases" / "adoption" / "mirrormaker-4.3.1.json"


def string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def sync(topic: str, partition: int, upstream: int, downstream: int) -> tuple[bytes, bytes]:
    return string(topic) + struct.pack(">i", partition), struct.pack(">qq", upstream, downstream)


def offset(topic: str, partition: int, last: int | None, cluster: str = "onprem") -> tuple[bytes, bytes | None]:
    key = json.dumps(["MirrorSourceConnector", {"cluster": cluster, "partition": partition, "topic": topic}])
    return key.encode(), None if last is None else json.dumps({"offset": last}).encode()


def test_source_offsets() -> None:
    assert decode_source_offset(*offset("orders", 3, 41)) == ConnectSourceOffset(
        "MirrorSourceConnector", "onprem", "orders", 3, 41
    )
    assert decode_source_offset(*offset("orders", 3, None)) == ConnectSourceOffset(
        "MirrorSourceConnector", "onprem", "orders", 3, None
    )
    # Other connectors keep their offsets in the same topic.
    assert decode_source_offset(b'["jdbc",{"table":"t"}]', b'{"incrementing":7}') is None
    assert decode_source_offset(b'["hb",{"sourceClusterAlias":"a","targetClusterAlias":"b"}]', b'{"offset":0}') is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", None),
        (b"\xff\xfe", b"{}"),
        (b"[1,2,3]", b"{}"),
        (b'["c",{"cluster":"a","topic":"t","partition":0}]', b"{}"),
        (b'["c",{"cluster":"a","topic":"t","partition":0}]', b'{"offset":-3}'),
        (b'["c",{"cluster":"a","topic":"t","partition":0}]', b'{"offset":"5"}'),
        (b'["c",{"cluster":"a","topic":"t","partition":true}]', b'{"offset":5}'),
        (b'["c",{"cluster":"a","topic":7,"partition":0}]', b'{"offset":5}'),
        (b'["c",{"cluster":"a","topic":"t","partition":0}]', b"not json"),
    ],
)
def test_what_is_no_source_offset(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnreadableNote):
        decode_source_offset(key, value)


def test_offset_syncs() -> None:
    assert decode_offset_sync(*sync("orders", 2, 500, 499)) == OffsetSync("orders", 2, 500, 499)
    golden = (b"\x00\x06orders\x00\x00\x00\x02", bytes(6) + b"\x01\xf4" + bytes(6) + b"\x01\xf3")
    assert decode_offset_sync(*golden) == OffsetSync("orders", 2, 500, 499)


def test_checkpoints() -> None:
    key = string("billing") + string("onprem.orders") + struct.pack(">i", 1)
    value = struct.pack(">hqq", 0, 90, 88) + string("")
    assert decode_checkpoint(key, value) == Checkpoint("billing", "onprem.orders", 1, 90, 88, "")
    with pytest.raises(UnreadableNote, match="version 1"):
        decode_checkpoint(key, struct.pack(">hqq", 1, 90, 88) + string(""))


@pytest.mark.parametrize("cut", range(1, 18))
def test_records_that_are_cut_off(cut: int) -> None:
    key, value = sync("orders", 2, 500, 499)
    with pytest.raises(UnreadableNote):
        decode_offset_sync(key[:-cut], value)
    with pytest.raises(UnreadableNote):
        decode_offset_sync(key, value[: 16 - min(cut, 16)])
    with pytest.raises(UnreadableNote):
        decode_checkpoint(string("g") + string("t") + b"\0\0\0\1", (struct.pack(">hqq", 0, 1, 1) + string("xy"))[:-cut])


def test_the_newest_note_counts_and_only_of_this_source() -> None:
    found = build_mirrormaker_notes(
        "onprem",
        [offset("a", 0, 5), offset("a", 0, 9), offset("a", 1, 3), offset("a", 1, None), offset("a", 0, 70, "edge")],
        [sync("a", 0, 0, 0), sync("a", 0, 4, 3), (string("a") + b"\0\0\0\0", None)],  # type: ignore[list-item]
    )
    assert found.positions == {("a", 0): 10}
    assert found.syncs == {("a", 0): [OffsetSync("a", 0, 0, 0), OffsetSync("a", 0, 4, 3)]}


def recorded(topic: str) -> list[tuple[bytes | None, bytes | None]]:
    rows = json.loads(RECORDED.read_text())[topic]
    return [(b64decode(key), None if value is None else b64decode(value)) for key, value in rows]


def test_what_mirrormaker_4_3_really_writes() -> None:
    """Recorded in the lab: two partitions of 172 and 178 records, copied to their ends, and a group at their ends."""
    found = build_mirrormaker_notes(
        "onprem", recorded("mm2-offsets.onprem.internal"), recorded("mm2-offset-syncs.cloud.internal")
    )
    assert found.positions == {("orders", 0): 172, ("orders", 1): 178}
    assert found.syncs == {
        ("orders", 0): [OffsetSync("orders", 0, at, at) for at in (0, 101, 171)],
        ("orders", 1): [OffsetSync("orders", 1, at, at) for at in (0, 101, 177)],
    }
    # Its own translation of a group that has read everything goes back by 70 and 76 records.
    groups = build_mirrormaker_notes("onprem", [], [], recorded("onprem.checkpoints.internal")).groups
    assert [held["billing"] for held in groups.values()] == [
        Checkpoint("billing", "onprem.orders", 0, 172, 102, ""),
        Checkpoint("billing", "onprem.orders", 1, 178, 102, ""),
    ]
    # Its heartbeats carry names and a time, nothing about records: no reader here takes them for one of its own.
    for pair in recorded("heartbeats"):
        with pytest.raises(UnreadableNote):
            decode_offset_sync(*pair)
        with pytest.raises(UnreadableNote):
            decode_checkpoint(*pair)
