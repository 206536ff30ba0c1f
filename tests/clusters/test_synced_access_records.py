"""Rights that a sync gave, written down by several writers at once, and by v0.1.0 before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import pytest

from watershed.clusters import synced_access_records
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.synced_access_records import (
    SyncedAcl,
    SyncedAcls,
    SyncedRight,
    confirm_given_acls,
    read_synced_access,
    strike_out_acls,
    write_synced_acls,
)
from watershed.replicator.sync import acls
from watershed.topology.inventory import InventoryAcl

TARGET = ConnectionSettings("b", ("b:9092",))
ANN, BOB, EVE = (InventoryAcl(f"User:{who}", "READ", "ALLOW", "TOPIC", "orders", "LITERAL") for who in ("a", "b", "e"))


def given(acl: InventoryAcl, revoked_ms: int | None = None) -> SyncedAcl:
    return SyncedAcl(acl, (acl,), 1_750_000_000_000, revoked_ms)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`watershed.flows` as compaction leaves it."""
    stored: dict[str, Any] = {}

    class Writer:
        def __init__(self, *_: Any) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def put_nowait(self, _topic: str, key: str, value: Any, _partition: int) -> None:
            stored.pop(key, None)
            if value is not None:
                stored[key] = value

    def read(
        _target: ConnectionSettings, _topic: str, parse: Callable[[Any, str], Any], wanted: Callable[[str], bool]
    ) -> dict[str, Any]:
        return {key: parse(value, key) for key, value in stored.items() if wanted(key)}

    monkeypatch.setattr(synced_access_records, "ControlWriter", Writer)
    monkeypatch.setattr(synced_access_records, "read_latest_records", read)
    return stored


def read_acls() -> set[InventoryAcl]:
    return {each.acl for each in read_synced_access(TARGET, "f").acls}


def test_two_writers_of_rights_to_one_topic_lose_none(topic: dict[str, Any]) -> None:
    """Both have read before either writes."""
    one = other = read_synced_access(TARGET, "f")
    write_synced_acls(TARGET, "f", one, [given(ANN)])
    write_synced_acls(TARGET, "f", other, [given(BOB)])
    assert read_acls() == {ANN, BOB}
    one = other = read_synced_access(TARGET, "f")
    write_synced_acls(TARGET, "f", one, [given(ANN, 5), given(BOB)])
    write_synced_acls(TARGET, "f", other, [given(ANN), given(BOB), given(EVE)])
    assert {each.acl: each.revoked_ms for each in read_synced_access(TARGET, "f").acls} == {
        ANN: 5, BOB: None, EVE: None
    }  # fmt: skip
    strike_out_acls(TARGET, "f", [given(BOB)])
    assert read_acls() == {ANN, EVE}
    assert len(topic) == 2


def test_a_right_that_was_struck_out_while_it_was_given_is_written_down_again(topic: dict[str, Any]) -> None:
    before = read_synced_access(TARGET, "f")
    write_synced_acls(TARGET, "f", before, [given(ANN), given(BOB)])
    strike_out_acls(TARGET, "f", [given(ANN)])  # by a writer whose listing is older
    confirm_given_acls(TARGET, "f", [given(ANN), given(BOB)], [BOB])
    assert read_acls() == {ANN}


def test_records_of_the_first_release_are_read_and_written_anew_one_for_each_right(topic: dict[str, Any]) -> None:
    old = SyncedAcls("f", "TOPIC", "orders", (given(ANN), given(BOB)))
    topic[old.key] = old.to_json()
    assert read_acls() == {ANN, BOB}
    access = read_synced_access(TARGET, "f")
    write_synced_acls(TARGET, "f", access, [given(ANN, 7), given(BOB)])
    assert old.key not in topic
    assert len(topic) == 2
    topic[old.key] = old.to_json()  # a worker of that release writes once more; what this one knows is newer
    assert {each.revoked_ms for each in read_synced_access(TARGET, "f").acls if each.acl == ANN} == {7}
    strike_out_acls(TARGET, "f", [given(ANN)])
    assert read_acls() == {BOB}


def test_what_another_writer_gives_and_confirms_meanwhile_stays_written_down(
    topic: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without the right to do so is refused, and looks before the other has given the right."""
    write_synced_acls(TARGET, "f", read_synced_access(TARGET, "f"), [given(ANN), given(BOB)])
    listed = iter(((), (ANN,)))

    def list_acls(_target: ConnectionSettings) -> tuple[InventoryAcl, ...]:
        found = next(listed)
        if not found:  # right behind this look the other gives it, and finds it written down
            confirm_given_acls(TARGET, "f", [given(ANN)], ())
        return found

    monkeypatch.setattr(acls, "_acls", list_acls)
    acls._confirm(TARGET, "f", [given(ANN), given(BOB)], {ANN: "not authorised", BOB: "not authorised"})
    assert read_acls() == {ANN}


def test_what_the_first_release_writes_meanwhile_is_kept_for_the_next_comparison(topic: dict[str, Any]) -> None:
    old = SyncedAcls("f", "TOPIC", "orders", (given(ANN),))
    topic[old.key] = old.to_json()
    access = read_synced_access(TARGET, "f")
    topic[old.key] = SyncedAcls("f", "TOPIC", "orders", (given(ANN), given(BOB))).to_json()
    write_synced_acls(TARGET, "f", access, access.acls)
    assert read_acls() == {ANN, BOB}
    access = read_synced_access(TARGET, "f")
    write_synced_acls(TARGET, "f", access, access.acls)
    assert old.key not in topic
    assert read_acls() == {ANN, BOB}


def test_a_right_that_was_given_again_is_not_struck_out(topic: dict[str, Any]) -> None:
    """Its removal waits for the brokers, and the source may grant it again meanwhile."""
    removed, again = given(ANN, 5), replace(given(ANN), given_ms=1_750_000_000_500)
    write_synced_acls(TARGET, "f", read_synced_access(TARGET, "f"), [again])
    strike_out_acls(TARGET, "f", [removed])
    assert read_synced_access(TARGET, "f").acls == (again,)


def test_the_first_release_passes_over_what_is_written_now(topic: dict[str, Any]) -> None:
    """It finds a record by `synced_acls|<flow>|`, and takes a key without `synced_acls|` for a flow."""
    write_synced_acls(TARGET, "f", read_synced_access(TARGET, "f"), [given(ANN)])
    [(key, value)] = topic.items()
    assert key.startswith("synced_acls||f|TOPIC|orders|")
    assert SyncedRight.from_json(value, key).right == given(ANN)
