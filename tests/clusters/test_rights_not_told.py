"""Rights on a group whose coordinator does not tell them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from watershed.clusters import missing_rights
from watershed.clusters.errors import RequestRefused
from watershed.clusters.required_role_acls import OFFSETS_TOPIC, RequiredRight, derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.error_codes import TOPIC_AUTHORIZATION_FAILED
from watershed.clusters.wire.versions import Api
from watershed.topology import compile_path

FAILOVER = Path(__file__).parents[2] / "topology" / "examples" / "failover.yaml"
LOADING = 14
WHY = "it is needed to tell positions in open transactions, where brokers are older than Kafka 2.5 (optional)"
NEEDED = RequiredRight("old", "GROUP", "billing", "LITERAL", "READ", "commit")


class Broker:
    """Kafka 2.4 without topics; its groups answer what is prepared, the last answer for ever."""

    address = ("127.0.0.1", 9092)

    def __init__(self, *codes: int, newest: int = 0, topic_code: int = 0) -> None:
        self.codes, self.newest, self.topic_code = list(codes), newest, topic_code

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def knows(self, _api_key: int, version: int) -> bool:
        return version <= self.newest

    def ask(self, api_key: int, **_values: Any) -> Any:
        node = SimpleNamespace(node_id=1, broker_id=1, host="127.0.0.1", port=9092)
        if api_key == Api.DESCRIBE_GROUPS:
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            return SimpleNamespace(groups=[SimpleNamespace(error_code=code, authorized_operations=1 << 3)])
        if api_key == Api.FIND_COORDINATOR:
            return SimpleNamespace(error_code=0, host="127.0.0.1", port=9092)
        topics = [SimpleNamespace(error_code=self.topic_code)] if _values.get("topics") else []
        return SimpleNamespace(topics=topics, brokers=[node], cluster_authorized_operations=0)


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


@pytest.mark.parametrize(("newest", "missing"), [(6, True), (7, False)])
def test_the_offsets_topic_must_be_shown_below_kafka_2_5(
    monkeypatch: pytest.MonkeyPatch, newest: int, missing: bool
) -> None:
    """Newest version of OffsetFetch: 6 in Kafka 2.4; 7 of Kafka 2.5 tells what is part of an open transaction."""
    broker = Broker(newest=newest, topic_code=TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(missing_rights, "open_connection", lambda _settings: broker)
    plan = compile_path(FAILOVER)
    for role in ("worker", "apply", "observe", "verify", "migrate"):
        rights = derive_required_rights(plan, role, "north")
        [offsets] = [each for each in rights if each.name == OFFSETS_TOPIC]
        assert (offsets.operation, offsets.optional) == ("DESCRIBE", True)
        found = [str(each) for each in missing_rights.find_missing_rights(ConnectionSettings("north", ()), [offsets])]
        assert found == ([f"cluster north: DESCRIBE on topic {OFFSETS_TOPIC} is missing; {WHY}"] if missing else [])
