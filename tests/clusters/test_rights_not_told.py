"""Rights on a group whose coordinator does not tell them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clusters import missing_rights
from clusters.errors import RequestRefused
from clusters.required_role_acls import RequiredRight
from clusters.settings import ConnectionSettings
from clusters.wire.versions import Api

LOADING = 14
NEEDED = RequiredRight("old", "GROUP", "billing", "LITERAL", "READ", "commit")


class Broker:
    """Kafka 2.4 without topics; its groups answer what is prepared, the last answer for ever."""

    address = ("127.0.0.1", 9092)

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def knows(self, _api_key: int, version: int) -> bool:
        return version == 0

    def ask(self, api_key: int, **_values: Any) -> Any:
        node = SimpleNamespace(node_id=1, broker_id=1, host="127.0.0.1", port=9092)
        if api_key == Api.DESCRIBE_GROUPS:
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            return SimpleNamespace(groups=[SimpleNamespace(error_code=code, authorized_operations=1 << 3)])
        if api_key == Api.FIND_COORDINATOR:
            return SimpleNamespace(error_code=0, host="127.0.0.1", port=9092)
        return SimpleNamespace(topics=[], brokers=[node], cluster_authorized_operations=0)


def find(monkeypatch: pytest.MonkeyPatch, wait_s: float, *codes: int) -> list[str]:
    broker = Broker(*codes)
    monkeypatch.setattr(missing_rights, "open_connection", lambda _settings: broker)
    monkeypatch.setattr(missing_rights, "Connection", lambda _settings, _address: broker)
    monkeypatch.setattr(missing_rights, "_COORDINATOR_WAIT_S", wait_s)
    return [str(each) for each in missing_rights.find_missing_rights(ConnectionSettings("old", ()), [NEEDED])]


def test_a_coordinator_that_goes_on_loading_makes_no_right_present(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestRefused, match=r"READ on group billing is not known.*COORDINATOR_LOAD_IN_PROGRESS"):
        find(monkeypatch, 0.0, LOADING)


def test_one_that_has_loaded_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(monkeypatch, 60.0, LOADING, 0) == []
