"""Tokens of each provider on a real broker: accepted, refused in the broker's words, and replaced under traffic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clusters.ways import Way
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import AuthenticationFailed
from watershed.clusters.record_batch import build_simple_batch
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import FetchPartition, ProducePartition
from watershed.lab.certificates import write_secret_file
from watershed.lab.secured_cluster import SecuredCluster
from watershed.topology.token_providers import TokenProvider

pytestmark = pytest.mark.kafka

PROVIDERS: tuple[TokenProvider, ...] = ("client_credentials", "file")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_raw_and_librdkafka(
    secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str, provider: TokenProvider
) -> None:
    settings = Way(secured_cluster, tmp_path, "TLSSASL", "OAUTHBEARER", provider).settings()
    with Admin(settings) as admin, ControlWriter(settings) as writer, closing(open_connection(settings)) as wire:
        topic = admin.create_topic(topic_name, 1, 1, {})
        assert wire.metadata((topic_name,)).topics[0].topic_id == topic.topic_id
        assert writer.put(topic_name, "key", {"value": 1}) == 0
    assert [record.value for record in read_control_log(settings, topic_name)] == [{"value": 1}]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"aud": "another"}, "audience another"),
        ({"iss": "https://stranger.example.internal"}, "issuer https://stranger.example.internal"),
        ({"iat": 1_700_000_000, "exp": 1_700_000_060}, "2023-11-14T22:14:20Z"),
        ({"key": "forged"}, "audience kafka"),
    ],
    ids=["audience", "issuer", "expired", "signature"],
)
def test_wrong_tokens_are_refused_in_the_brokers_words(
    secured_cluster: SecuredCluster, tmp_path: Path, provider: TokenProvider, wrong: dict[str, object], said: str
) -> None:
    identity, way = secured_cluster.identity, Way(secured_cluster, tmp_path, "TLSSASL", "OAUTHBEARER", provider)
    forged = {"key": rsa.generate_private_key(public_exponent=65537, key_size=2048)} if "key" in wrong else wrong
    identity.clients[tmp_path.name] = "s"  # a client of its own: tokens are shared by all of a process
    if provider == "file":
        way.write_token(**forged)
    else:
        write_secret_file(way.account, f"{tmp_path.name}:s")
        identity.wrong = forged
    try:
        with pytest.raises(AuthenticationFailed) as caught:
            open_connection(way.settings())
    finally:
        identity.wrong = {}
    assert said in str(caught.value)
    if provider != "file" or "exp" not in wrong:  # an old token in a file is not even sent
        assert f"the broker at {secured_cluster.address('TLSSASL')} refuses" in str(caught.value)
        assert '{"status":"invalid_token"}' in str(caught.value), "Kafka's own words are no more than that"


@contextmanager
def renewed_every(way: Way, seconds: float, life_s: float) -> Iterator[list[str]]:
    """The token's file is written again and again meanwhile; the tokens that were written."""
    stop, written = threading.Event(), [way.write_token(exp=time.time() + life_s)]

    def renew() -> None:
        while not stop.wait(seconds):
            written.append(way.write_token(exp=time.time() + life_s))

    thread = threading.Thread(target=renew, name="sidecar")
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("traffic_s", "every_s", "life_s"), [(5.0, 1.0, 4.0), pytest.param(600.0, 20.0, 30.0, marks=pytest.mark.soak)]
)
def test_tokens_in_a_file_are_renewed_under_traffic(
    secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str, traffic_s: float, every_s: float, life_s: float
) -> None:
    """Sessions of 2 s: every record is there once and in order, raw and by librdkafka, and so is what was read."""
    way = Way(secured_cluster, tmp_path, "SHORT", "OAUTHBEARER", "file")
    with renewed_every(way, every_s, life_s) as tokens:
        settings, control = way.settings(), f"{topic_name}-control"
        with Admin(settings) as admin, ControlWriter(settings) as writer, closing(open_connection(settings)) as wire:
            topic = admin.create_topic(topic_name, 1, 1, {})
            admin.create_topic(control, 1, 1, {})
            ends, sent = time.monotonic() + traffic_s, 0
            while time.monotonic() < ends or len(tokens) < 4:
                data = build_simple_batch([str(sent).encode()], timestamp=int(time.time() * 1000))
                wire.send_produce((ProducePartition(topic.topic_id, 0, (data,)),))
                assert wire.receive_produce()[0].base_offset == sent
                [part] = wire.fetch((FetchPartition(topic.topic_id, 0, sent, 0, 1 << 20),))
                assert str(sent).encode() in bytes(part.records)
                assert writer.put(control, str(sent), {"n": sent}) == sent
                sent += 1
                time.sleep(0.05)
            assert admin.brokers() == 1
    assert [record.key for record in read_control_log(way.settings(), control)] == [str(n) for n in range(sent)]
