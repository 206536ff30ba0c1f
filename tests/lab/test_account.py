"""The account, on records that we write ourselves: no broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from watershed.lab.account import RunAccount, build_account
from watershed.lab.application_records import ApplicationRecord, ApplicationRecordFile, write_application_description

Place = tuple[str, int, int]  # cluster, key, number; time is the position in the list, in seconds


def written(home: Path, name: str, role: str, places: list[Place], app: str = "orders") -> Path:
    directory = home / name
    group = "billing" if role == "consumer" else None
    write_application_description(directory, {"name": name, "role": role, "topics": ["t"], "group": group})
    file = ApplicationRecordFile(directory)
    for index, (cluster, key, number) in enumerate(places):
        file.add(ApplicationRecord(app, "t", key, number, "t", 0, index, cluster, index * 1000))
    file.flush()
    return directory


def accounted(home: Path, acked: list[Place], processed: list[Place]) -> RunAccount:
    return build_account([written(home, "orders", "producer", acked), written(home, "billing", "consumer", processed)])


def on(cluster: str, *records: tuple[int, int]) -> list[Place]:
    return [(cluster, key, number) for key, number in records]


FOUR = on("a", (1, 1), (2, 1), (1, 2), (2, 2))


@pytest.mark.parametrize(
    ("processed", "lost", "repeated", "out_of_order"),
    [
        pytest.param(FOUR, 0, 0, 0, id="all once"),
        pytest.param(FOUR[:3], 1, 0, 0, id="one lost"),
        pytest.param([*FOUR, FOUR[1]], 0, 1, 0, id="one repeated"),
        pytest.param([*FOUR, FOUR[1], FOUR[1]], 0, 2, 0, id="one repeated twice"),
        pytest.param(on("a", (1, 2), (2, 1), (1, 1), (2, 2)), 0, 0, 1, id="one key turned round"),
        pytest.param(on("a", (2, 1), (2, 2), (1, 1), (1, 2)), 0, 0, 0, id="keys interleaved otherwise"),
        pytest.param([], 4, 0, 0, id="nothing processed"),
    ],
)
def test_counts(tmp_path: Path, processed: list[Place], lost: int, repeated: int, out_of_order: int) -> None:
    result = accounted(tmp_path, FOUR, processed)
    assert (result.acked, result.lost, result.repeated, result.out_of_order_per_key) == (
        4,
        lost,
        repeated,
        out_of_order,
    )


def test_lost_and_repeated_records_are_named(tmp_path: Path) -> None:
    group = accounted(tmp_path, FOUR, [*FOUR[:3], FOUR[0]]).groups[0]
    assert group.lost_examples == ("orders t key 2 number 2",)
    assert group.repeated_examples == ("orders t key 1 number 1",)


def test_a_record_processed_but_never_acknowledged_is_neither(tmp_path: Path) -> None:
    group = accounted(tmp_path, FOUR[:3], FOUR).groups[0]
    assert (group.lost, group.repeated, group.unacknowledged) == (0, 0, 1)


def test_a_move_counts_from_the_last_to_the_first_acknowledgement(tmp_path: Path) -> None:
    result = accounted(tmp_path, [*on("a", (1, 1), (1, 2)), *on("b", (1, 3))], [])
    assert result.seconds_without_writes == {"orders": 1.0}
    assert [(move.source, move.target, move.last_ack_ms) for move in result.moves] == [("a", "b", 1000)]


@pytest.mark.parametrize(
    ("processed", "lost"),
    [([(0, 1), (0, 2), (1, 1)], 0), ([(0, 1), (1, 1)], 1), ([(0, 1), (0, 2), (1, 1), (1, 2)], 0)],
)
def test_a_preload_is_checked_number_by_number(tmp_path: Path, processed: list[tuple[int, int]], lost: int) -> None:
    history = tmp_path / "history"
    write_application_description(history, {"name": "history", "role": "producer", "topics": ["t"], "group": None})
    loaded = {"app": "history", "topic": "t", "cluster": "a", "counts": {"0": 3}, "last": [2, 1]}
    (history / "t.load.json").write_text(json.dumps(loaded))
    result = build_account([history, written(tmp_path, "billing", "consumer", on("a", *processed), app="history")])
    assert (result.acked, result.preloaded, result.lost) == (3, 3, lost)
    if lost:
        assert result.groups[0].lost_examples == ("history t key 0 number 2",)


def test_half_an_entry_at_the_end_is_dropped_and_written_over(tmp_path: Path) -> None:
    directory = written(tmp_path, "orders", "producer", FOUR)
    path = directory / "records.bin"
    path.write_bytes(path.read_bytes() + b"torn")
    assert build_account([directory]).acked == 4
    assert ApplicationRecordFile(directory).count == 4
    assert path.stat().st_size == 4 * 32
