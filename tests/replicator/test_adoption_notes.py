"""Whether MirrorMaker still runs is seen, or it is said that it cannot be seen."""

from __future__ import annotations

import pytest

from watershed.clusters.group_offsets import CommittedOffsets, ListedGroup
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.adoption import mirrormaker_reader
from watershed.replicator.adoption.digest_reader import NotProvable


def groups(monkeypatch: pytest.MonkeyPatch, listed: dict[str, ListedGroup], held: CommittedOffsets) -> None:
    class Groups:
        def __init__(self, settings: ConnectionSettings) -> None: ...
        def __enter__(self) -> Groups:
            return self

        def __exit__(self, *_: object) -> None: ...
        def listed(self) -> dict[str, ListedGroup]:
            return listed

        def held(self, wanted: list[str]) -> dict[str, CommittedOffsets]:
            return dict.fromkeys(wanted, held)

    monkeypatch.setattr(mirrormaker_reader, "GroupOffsets", Groups)


def test_groups_of_connect_that_have_members_run(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {
        "a-mm2": ListedGroup("a-mm2", "Stable", "classic", "connect"),
        "old": ListedGroup("old", "Empty", "classic", "connect"),
        "billing": ListedGroup("billing", "Stable", "classic", "consumer"),
    }
    groups(monkeypatch, listed, CommittedOffsets())
    assert mirrormaker_reader.read_active_connect_groups(ConnectionSettings("b", ()), "a-mm2") == {"a-mm2": "Stable"}


def test_a_group_that_is_not_there_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    groups(monkeypatch, {}, CommittedOffsets())
    assert mirrormaker_reader.read_active_connect_groups(ConnectionSettings("b", ()), "a-mm2") == {}


def test_a_group_that_is_not_shown_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    groups(monkeypatch, {}, CommittedOffsets(error="cluster b refused reading offsets (GROUP_AUTHORIZATION_FAILED)"))
    with pytest.raises(NotProvable, match=r"whether MirrorMaker 2 still runs is not shown.*GROUP_AUTHORIZATION_FAILED"):
        mirrormaker_reader.read_active_connect_groups(ConnectionSettings("b", ()), "a-mm2")
