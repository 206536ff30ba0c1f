"""`topology offsets translate` and `map`: one offset, many of them, and the map as a table."""

from __future__ import annotations

import json

import pytest

from watershed.cli import offsets_map
from watershed.cli.main import main
from watershed.clusters.cluster_protocol import TopicDescription
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection

ASKED = ["orders.yaml", "--flow", "a-to-b", "-t", "orders", "-p", "0"]
END = 250


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Source 0 to 99, a marker, 101 to 199, two markers, 202 to 252 so far."""
    found = OffsetMap.of([(0, 0), (100, 101), (199, 202)])
    there = offsets_map._Known(found, TopicPartition("mirror.orders", 0), "b", END)
    monkeypatch.setattr(offsets_map, "_known", lambda *_: there)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["offsets", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_one_offset_is_answered_by_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "translate", *ASKED, "-o", "150") == (0, "149\n", "")
    assert run(capsys, "translate", *ASKED, "-o", "149", "--reverse") == (0, "150\n", "")
    code, out, _ = run(capsys, "translate", *ASKED, "-o", "200", "--format", "json")
    assert (code, json.loads(out)) == (
        0,
        {"schema": 1, "flow": "a-to-b", "topic": "orders", "partition": 0, "offset": 200, "translated": 199,
         "reverse": False},
    )  # fmt: skip


def test_one_offset_that_is_not_copied_yet(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "translate", *ASKED, "-o", "254")
    assert (code, out) == (1, "")
    assert "source offset 254 is not copied yet: the target holds everything below 253" in err
    code, _, err = run(capsys, "translate", *ASKED, "-o", "251", "--reverse")
    assert code == 1
    assert "mirror.orders-0 on b ends at offset 250; 251 lies behind that" in err


def test_many_offsets_by_one_read(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    listed = tmp_path / "offsets.txt"
    listed.write_text("# positions of billing\n100\n\n 253  # the end\n999\n")
    code, out, err = run(capsys, "translate", *ASKED, "-o", "7", "--file", str(listed))
    assert (code, out) == (1, "7\t7\n100\t100\n253\t250\n999\t-\n")
    assert err.strip() == str(offset_error(999))
    code, out, err = run(capsys, "translate", *ASKED, "--file", str(listed), "--format", "json")
    assert (code, err) == (1, "")
    assert json.loads(out)["translations"] == [
        {"offset": 100, "translated": 100},
        {"offset": 253, "translated": 250},
        {"offset": 999, "translated": None, "error": str(offset_error(999))},
    ]
    assert run(capsys, "translate", *ASKED, "-o", "1", "-o", "2")[:2] == (0, "1\t1\n2\t2\n")


def offset_error(offset: int) -> Exception:
    from watershed.replicator.errors import NotCopied

    return NotCopied(offset, 253)


@pytest.mark.parametrize("line", ["abc", "-1", "1.5", "9223372036854775808", "٣"])
def test_a_line_that_is_no_offset_is_named(capsys: pytest.CaptureFixture[str], tmp_path, line: str) -> None:
    listed = tmp_path / "offsets.txt"
    listed.write_text(f"7\n{line}\n", encoding="utf-8")
    code, out, err = run(capsys, "translate", *ASKED, "--file", str(listed))
    assert (code, out) == (2, "")
    assert f"--file, line 2: `{line}` is no offset" in err


def test_nothing_to_translate(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "translate", *ASKED)
    assert code == 2
    assert "no offset to translate; give --offset N, or --file with one a line" in err


def test_the_map_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "map", *ASKED)
    assert code == 0
    assert out.splitlines() == [
        " source   target  records  left out",
        "   0-99     0-99      100",
        "101-199  100-198       99         1",
        "202-252  199-249       51         2",
        "copied through source offset 253; mirror.orders-0 ends at 250",
    ]


def test_the_map_is_bounded_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "map", *ASKED, "--limit", "1", "--from", "100")
    assert out.splitlines()[1:] == [
        "101-199  100-198       99",
        "… more; go on with --from 200, or a larger --limit",
        "copied through source offset 253; mirror.orders-0 ends at 250",
    ]
    _, out, _ = run(capsys, "map", *ASKED, "--limit", "2", "--format", "json")
    found = json.loads(out)
    assert (found["copied_through"], found["target_end"], found["more"]) == (253, 250, True)
    assert found["runs"] == [
        {"source": 0, "target": 0, "records": 100},
        {"source": 101, "target": 100, "records": 99},
    ]


def test_a_partition_that_is_not_there_is_said() -> None:
    flow = PlanFlow("a-to-b", "a", "b", TopicSelection((Selector("glob", "*"),)))
    where = TopicPartition("orders", 7)
    assert offsets_map._nowhere(flow, where, TopicDescription("orders", "id", 2, 1)) == (
        "orders on b has 2 partitions, counted from 0: there is no orders-7"
    )
    assert offsets_map._nowhere(flow, where, None).startswith("b has no topic orders. Check the name; if it is right")
