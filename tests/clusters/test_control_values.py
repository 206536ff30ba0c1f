"""One bad record of a control topic is told and left out, by every reader; the one before it still counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from watershed.clusters import alignment_records, control_records
from watershed.clusters.alignment_records import AlignmentRecord, read_alignments
from watershed.clusters.control_records import ControlRecord, decode_control_record
from watershed.clusters.control_topics import FLOWS_TOPIC, STATUS_TOPIC, encode_control_value
from watershed.clusters.control_values import decode_control_value
from watershed.clusters.fleet import FleetRecord, PlacementRecord, read_fleets
from watershed.clusters.flow_records import FlowRecord, read_flows
from watershed.clusters.partition_status_records import PartitionStatus, read_status_reports
from watershed.clusters.producer_registry import ProducerRecord, read_producers
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.streams_state_range import StateRange
from watershed.clusters.sync_reports import SyncReport
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.withheld_rights_records import WithheldRights, read_withheld_rights
from watershed.cutover.live import failover_actions
from watershed.plugins.page.cluster_snapshots import ControlTopicsView
from watershed.replicator.partition_states import OffsetSpan
from watershed.replicator.recovery.operator_decisions import OperatorDecision
from watershed.replicator.sync import group_control_records
from watershed.replicator.sync.group_control_records import FlowsFollower, GroupResetDecision, SyncedPositions
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

BAD = {
    "not json": b"not json",
    "empty": b"",
    "not text": b"\xff\xfe",
    "lists, deep": b"[" * 100_000,
    "objects, deep": b'{"a":' * 100_000,
    "closed, deep": b'{"a":' * 65 + b"1" + b"}" * 65,
    "infinity": b'{"schema":1,"at_ms":Infinity}',
    "not a number": b'{"schema":NaN}',
    "beyond floats": b'{"schema":1e999}',
    "5,000 digits": b'{"schema":' + b"7" * 5_000 + b"}",
    "beyond 64 bits": b'{"schema":9223372036854775808}',
    "half a character": b'{"schema":"\\ud800"}',
    "a list": b"[1]",
    "a text": b'"text"',
    "null": b"null",
}
FLOW = FlowRecord(PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("literal", "orders"),))), "sha256:0", "shop")
ORDERS = TopicPartition("orders", 0)
GOOD = [
    FLOW,
    FleetRecord("shop", "b", "running", "sha256:0"),
    PlacementRecord("shop", "b", {"a-to-b|orders|0": 3}, "w1", 5),
    ProducerRecord(7, "a-to-b", ("a",), "sequence", "shop"),
    AlignmentRecord("a-to-b", "orders", "aligned"),
    WithheldRights("a-to-b", (InventoryAcl("User:x", "WRITE", "ALLOW", "TOPIC", "orders", "LITERAL", "*"),)),
    OperatorDecision("accept-gap", "a-to-b", "orders", 0, "source_expired", 3, "ann", OffsetSpan(1, 5)),
    SyncedPositions("a-to-b", "billing", {ORDERS: 5}, {ORDERS: 6}),
    GroupResetDecision("a-to-b", "billing", {ORDERS: None}, "ann"),
    StateRange("a-to-b", "counter", {ORDERS: 5}, {ORDERS: 6}, {ORDERS: "AgAA"}, 7),
    PartitionStatus("a-to-b", "orders", "orders", 0, "running", source_end=9, source_seen_ms=5),
    SyncReport("a-to-b", "groups", "billing", "equal"),
]
SETTINGS = ConnectionSettings("cloud", ("127.0.0.1:1",))


class Stored:
    """A record as the client library brings it."""

    def __init__(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        self._offset, self._key, self._value = offset, key, value

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, bytes | None]]]:
    """What stands in which topic, for every reader."""
    found: dict[str, list[tuple[str, bytes | None]]] = {FLOWS_TOPIC: [], STATUS_TOPIC: []}

    def read_log(
        settings: ConnectionSettings, topic: str, _partitions: Any = None, after: Any = None, **how: Any
    ) -> Iterator[ControlRecord]:
        first = after.get(0, 0) if isinstance(after, Mapping) else after or 0
        stored = [Stored(at, key.encode(), value) for at, (key, value) in enumerate(found[topic]) if at >= first]
        every = map(decode_control_record, stored)  # type: ignore[arg-type]
        return every if how.get("invalid") else control_records._valid(settings, topic, every)

    for module in (control_records, alignment_records, group_control_records, failover_actions):
        monkeypatch.setattr(module, "read_control_log", read_log)
    monkeypatch.setattr(control_records, "_find_ranges", lambda _settings, topic, *_: {0: (0, len(found[topic]))})
    monkeypatch.setattr(
        control_records,
        "read_messages",
        lambda _settings, topic, *_: (Stored(at, key.encode(), value) for at, (key, value) in enumerate(found[topic])),
    )
    return found


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bytes_that_are_no_record_say_why(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_control_value(bad)
    record = decode_control_record(Stored(4, b"key", bad))  # type: ignore[arg-type]
    assert record.value is None
    assert record.why
    assert f"{FLOWS_TOPIC}-0 offset 4 on cluster cloud, key 'key', is not" in str(record.invalid("cloud", FLOWS_TOPIC))


def test_limits_leave_room_for_what_we_write() -> None:
    value = {"at": [[{str(n): (1 << 63) - 1 - n} for n in range(1_000)]], "id": "1" * 40, "half": -0.5, "grün": None}
    assert decode_control_value(encode_control_value(value)) == value
    assert decode_control_record(Stored(0, b"key", None)).why == ""  # type: ignore[arg-type]
    for key in (None, b"", b"\xff"):
        assert "key" in decode_control_record(Stored(0, key, b"{}")).why  # type: ignore[arg-type]


@pytest.mark.parametrize("good", GOOD, ids=lambda each: type(each).__name__)
def test_every_field_has_its_type(good: Any) -> None:
    read: Callable[..., Any] = type(good).from_json
    written = decode_control_value(encode_control_value(good.to_json()))
    assert read(written, good.key) == good
    with pytest.raises(ValueError, match="something else than its key"):
        read(written, good.key + "x")
    with pytest.raises(ValueError, match=r".+"):
        read({})
    for name in set(written) - {"schema", "kind" if isinstance(good, GroupResetDecision) else ""}:
        for bad in ([[[]]], [{"a": []}]):
            with pytest.raises(ValueError, match=r"meant|Error|cannot"):
                read(written | {name: bad})


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_every_reader_goes_on_with_what_it_knew(
    topics: dict[str, list[tuple[str, bytes | None]]], bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = encode_control_value({"schema": 1, "flow": ["a-to-b"], "topology": [], "at_ms": "x"})
    for good in GOOD:
        topic = STATUS_TOPIC if isinstance(good, PartitionStatus | SyncReport) else FLOWS_TOPIC
        after = [bad] if topic == STATUS_TOPIC else [bad, wrong, b"{}"]  # of reports the newest counts, or none
        topics[topic] += [(good.key, encode_control_value(good.to_json())), *((good.key, each) for each in after)]
    flow, fleet, _, producer, aligned, withheld, _, carried, ordered, state, status, report = GOOD
    topics[FLOWS_TOPIC] += [("", b"{}"), ("strange", bad), ("producer|x", bad), ("order|", b"{}")]
    topics[STATUS_TOPIC] += [("strange|orders|0", bad), ("sync|strange", b"{}"), ("a|b|0", b'{"flow":[]}')]
    assert read_flows(SETTINGS) == {flow.key: flow}
    assert read_fleets(SETTINGS) == {fleet.key: fleet}
    assert read_producers(SETTINGS) == {7: producer}
    assert read_alignments(SETTINGS) == {("a-to-b", "orders"): aligned}
    assert read_withheld_rights(SETTINGS, "a-to-b") == withheld
    assert read_status_reports(SETTINGS) == ([status], [report], [])
    tail = FlowsFollower(SETTINGS)
    tail.read()
    assert tail.flows() == {flow.key: flow}
    assert (tail.carried("a-to-b", "billing"), tail.decision("a-to-b", "billing")) == (carried, ordered)
    assert tail.state_ranges("a-to-b") == {"counter": state}
    assert failover_actions._Sights(SETTINGS, "a-to-b").read()[ORDERS] == status
    view = ControlTopicsView()
    for topic, stored in topics.items():
        for at, (key, value) in enumerate(stored):
            view.take([records_seen(topic, at, key, value)])
    assert list(view.flows) == [flow.key]


def records_seen(topic: str, offset: int, key: str, payload: bytes | None) -> Any:
    from watershed.clusters.control_follower import FollowedRecord

    return FollowedRecord(topic, offset, key, payload)


def test_a_tombstone_or_the_next_valid_value_heals(topics: dict[str, list[tuple[str, bytes | None]]]) -> None:
    paused = FLOW.with_state("paused")
    topics[FLOWS_TOPIC] += [
        (FLOW.key, encode_control_value(FLOW.to_json())),
        (FLOW.key, b"{"),
        (FLOW.key, encode_control_value(paused.to_json())),
    ]
    assert read_flows(SETTINGS) == {FLOW.key: paused}
    topics[FLOWS_TOPIC] += [(FLOW.key, b"{"), (FLOW.key, None)]
    assert read_flows(SETTINGS) == {}
