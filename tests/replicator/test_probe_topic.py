"""The probe's topic is deleted, or named: whatever the cluster answers meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from watershed.clusters.errors import ClusterError, ProtocolError, RequestRefused, Unauthorised, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator import probe_topic
from watershed.replicator.probe_topic import delete_probe_topic, require_topic_deletion

SETTINGS = ConnectionSettings("cloud", ("k:1",))
NAME = "watershed.probe-1"


class Clock:
    """Time passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Cluster:
    """`AdminClient` and `Admin` in one. refused: what a deletion is answered; looks: what each look at the topic finds
    or raises, the last one again and again."""

    settings = SETTINGS

    def __init__(self, looks: list[Any], refused: KafkaError | None = None, config: Any = "true") -> None:
        self.looks, self.refused, self.config = looks, refused, config
        self.deletions = 0

    def delete_topics(self, names: list[str], **_: Any) -> dict[str, Cluster]:
        self.deletions += 1
        return {names[0]: self}

    def result(self, timeout: float) -> None:
        if self.refused is not None:
            raise KafkaException(self.refused)

    def topic(self, name: str) -> Any:
        assert name == NAME
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, ClusterError):
            raise found
        return found

    def broker_config(self, key: str) -> Any:
        assert key == "delete.topic.enable"
        if isinstance(self.config, ClusterError):
            raise self.config
        return self.config


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(probe_topic, "time", found)
    return found


@pytest.fixture
def delete(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(cluster: Cluster, **more: Any) -> None:
        monkeypatch.setattr(probe_topic, "AdminClient", lambda _settings: cluster)
        delete_probe_topic(SETTINGS, cluster, NAME, **more)  # type: ignore[arg-type]

    return run


@pytest.mark.parametrize("error", [Unreachable("no answer"), Unauthorised("token expired")])
def test_an_error_meanwhile_does_not_end_the_attempts(delete: Callable[..., None], error: ClusterError) -> None:
    cluster = Cluster([error, error, "there", None])
    delete(cluster)
    assert cluster.deletions == 4


@pytest.mark.parametrize(
    ("looks", "refused", "why"),
    [
        (["there"], None, "it is still shown"),
        (["there"], KafkaError(KafkaError.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."), "is disabled"),
        ([Unreachable("cluster cloud does not answer.")], None, "cluster cloud does not answer"),
        ([Unauthorised("the token has expired")], None, "the token has expired"),
    ],
)
def test_a_topic_that_stays_is_named_with_both_errors(
    delete: Callable[..., None], clock: Clock, looks: list[Any], refused: KafkaError | None, why: str
) -> None:
    with pytest.raises(RequestRefused) as caught:
        delete(Cluster(looks, refused), ended_by=Unreachable("the leader is gone"))
    text = str(caught.value)
    assert f"topic {NAME} of the probe is left on cluster cloud: " in text
    assert f"{why}. Delete it there. The probe had ended before: the leader is gone" in text
    assert clock.now >= 60


def test_settings_that_cannot_be_read_any_more_do_not_hide_the_topic(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_settings: Any) -> None:
        raise ProtocolError("the key store is gone")

    monkeypatch.setattr(probe_topic, "AdminClient", fail)
    with pytest.raises(RequestRefused, match=rf"topic {NAME} .* is left .*the key store is gone.*: KeyboardInterrupt"):
        delete_probe_topic(SETTINGS, Cluster([None]), NAME, ended_by=KeyboardInterrupt())  # type: ignore[arg-type]


def test_a_topic_whose_creation_was_interrupted_may_appear_late(delete: Callable[..., None], clock: Clock) -> None:
    cluster = Cluster([None, None, "there", None], KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    delete(cluster, is_created=False)
    assert clock.now >= 3


def test_whoever_may_not_create_a_topic_does_not_wait_for_its_end(delete: Callable[..., None], clock: Clock) -> None:
    cluster = Cluster([Unauthorised("hidden")], KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(RequestRefused, match=r"may be left on cluster cloud: hidden\. .* before: CREATE is missing"):
        delete(cluster, is_created=False, ended_by=Unauthorised("CREATE is missing"))
    assert clock.now < 5


@pytest.mark.parametrize("config", ["true", None, Unauthorised("hidden"), RequestRefused("no"), ProtocolError("odd")])
def test_a_config_that_is_hidden_does_not_keep_from_probing(config: Any) -> None:
    cluster = Cluster([None], config=config)
    require_topic_deletion(cluster)  # type: ignore[arg-type]
    assert cluster.deletions == 0


def test_a_cluster_that_deletes_no_topics_is_not_probed() -> None:
    with pytest.raises(RequestRefused, match=r"cloud deletes no topics .* nothing was created"):
        require_topic_deletion(Cluster([None], config="false"))  # type: ignore[arg-type]
