"""`topology flow`: what is refused before any cluster is asked, and what the quarantine's rows show."""

from __future__ import annotations

import pytest

from watershed.cli.flow import _row, _when
from watershed.cli.main import main
from watershed.replicator.batch.repack import RejectedRecord
from watershed.replicator.copy.quarantine import (
    MAX_WHOLE_RECORD_BYTES,
    QuarantinedRecord,
    build_quarantine_key,
    encode_rejected_record,
    measure_rejected_record,
)
from watershed.replicator.partition_key import PartitionKey

SECRET = b"account 4711"
KEPT = QuarantinedRecord(
    "a-to-b", "orders", "orders", 3, 17, 1_790_000_000_000, "INVALID_TIMESTAMP: \x1b[31mtoo old", 12, True,
    key=b"k", value=SECRET, headers=(("h", None),),
)  # fmt: skip


def test_values_are_shown_only_when_asked_for() -> None:
    assert SECRET.decode() not in str(_row(KEPT, reveal=False))
    assert SECRET.decode() not in repr(KEPT)
    shown = _row(KEPT, reveal=True)
    assert (shown["key"], shown["value"], shown["headers"]) == ("k", SECRET.decode(), [["h", None]])


def test_nothing_of_a_record_reaches_the_terminal_raw() -> None:
    assert "\x1b" not in _row(KEPT, reveal=False)["reason"]
    wild = QuarantinedRecord("f", "t", "t", 0, 0, -1, "r", 1, True, key=b"\x1b[2J", value=b"\xff\x00")
    assert "\x1b" not in str(_row(wild, reveal=True))


@pytest.mark.parametrize("timestamp", [1 << 62, -(1 << 62)])
def test_a_timestamp_that_is_no_date(timestamp: int) -> None:
    assert _when(timestamp) == f"timestamp {timestamp}"


KEY = PartitionKey("a-to-b", "orders", "mirror.orders", 3)
REJECTED = RejectedRecord(
    17, 5, b"k", b"value", ((b"h", None), (b"watershed.flow", b"x")), "INVALID_TIMESTAMP: too old"
)


def test_a_record_is_kept_with_its_coordinates_and_as_it_was() -> None:
    value, headers = encode_rejected_record(KEY, REJECTED, whole=True)
    ours = dict(headers[:11])
    assert value == b"value"
    assert ours["watershed.offset"] == b"17"
    assert ours["watershed.timestamp"] == b"5"
    assert ours["watershed.key"] == b"k"
    assert headers[11:] == [("h", None), ("watershed.flow", b"x")]
    assert build_quarantine_key(KEY, 17) == "a-to-b|orders|3|17"


def test_one_that_is_too_large_for_the_quarantine_leaves_only_its_coordinates() -> None:
    huge = RejectedRecord(17, 5, b"k" * 10, bytes(MAX_WHOLE_RECORD_BYTES), ((b"hh", b"v"),), "too large")
    assert measure_rejected_record(huge) == MAX_WHOLE_RECORD_BYTES + 13
    value, headers = encode_rejected_record(KEY, huge, whole=False)
    assert value is None
    assert dict(headers)["watershed.whole"] == b"no"
    assert dict(headers)["watershed.size"] == str(MAX_WHOLE_RECORD_BYTES + 13).encode()
    assert "watershed.key" not in dict(headers)


@pytest.mark.parametrize(
    "arguments",
    [
        ["accept-gap", "a-to-b", "no.yaml", "--topic", "orders"],  # no partition
        ["reseed", "a-to-b", "no.yaml"],  # no topic
        ["accept-gap", "a-to-b", "no.yaml", "-t", "orders", "-p", "-1"],
        ["heal", "a-to-b", "no.yaml"],
        ["pause", "a-to-b"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", *arguments]) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["pause", "resume", "stop", "restart", "accept-gap", "reseed", "copy-foreign", "quarantined"]
)
def test_every_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", command, "--help"]) == 0
    assert f"Example: topology flow {command} " in " ".join(capsys.readouterr().out.split())
