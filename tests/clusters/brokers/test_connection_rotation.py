"""Secrets that change while connections live: nothing is started anew, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.clusters.sites import send
from tests.clusters.ways import Way
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.errors import AuthenticationFailed, ClusterError, Unreachable, UntrustedBroker
from watershed.clusters.record_batch import build_simple_batch
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import Connection, open_connection
from watershed.clusters.wire.messages import ProducePartition
from watershed.clusters.wire.secured_transport import RenewedSession
from watershed.lab.certificates import CertificateAuthority, write_secret_file
from watershed.lab.secured_cluster import SHORT_SESSION_S, SecuredCluster, create_scram_user

pytestmark = pytest.mark.kafka


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 180
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def works(call: Callable[[], object]) -> bool:
    try:
        call()
    except ClusterError:
        return False
    return True


def lifetime(connection: Connection) -> RenewedSession:
    session = connection._transport
    assert isinstance(session, RenewedSession)
    return session


def test_a_password_changes_under_live_clients(
    secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str
) -> None:
    """The old password is refused from the moment it changes; connections that stand are cut by their session's end."""
    user = topic_name
    way = Way(secured_cluster, tmp_path, "SHORT", "SCRAM-SHA-512")
    create_scram_user(secured_cluster, user, "first")
    write_secret_file(way.account, f"{user}:first")
    settings = way.settings()
    with Admin(settings, timeout=5.0) as admin, ControlWriter(settings, timeout=5.0) as writer:
        topic, control = admin.create_topic(topic_name, 1, 1, {}), f"{topic_name}-control"
        admin.create_topic(control, 1, 1, {})
        assert writer.put(control, "a", {"n": 1}) == 0
        with closing(open_connection(settings)) as wire:
            assert send(wire, topic, build_simple_batch([b"2"])).base_offset == 0
            create_scram_user(secured_cluster, user, "second")
            with pytest.raises(AuthenticationFailed, match=f"user {user} "):
                open_connection(settings)
            write_secret_file(way.account, f"{user}:second")
            time.sleep(SHORT_SESSION_S)  # no connection of the first password is left unasked
            assert send(wire, topic, build_simple_batch([b"3"])).base_offset == 1, (
                "logged in again with the new password"
            )
        until(lambda: works(lambda: writer.put(control, "b", {"n": 2})), "the writer still has the old password")
        until(lambda: works(admin.brokers), "the administration still has the old password")
        assert [record.key for record in read_control_log(settings, control)][:2] == ["a", "b"]


def test_a_wrong_password_at_the_next_login_closes_the_connection(
    secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str
) -> None:
    way = Way(secured_cluster, tmp_path, "SHORT", "SCRAM-SHA-256")
    create_scram_user(secured_cluster, topic_name, "first")
    write_secret_file(way.account, f"{topic_name}:first")
    settings = way.settings()
    connection = open_connection(settings)
    write_secret_file(way.account, f"{topic_name}:wrong")
    lifetime(connection)._due = time.monotonic() + 1.2  # a broker wants a second between two logins
    time.sleep(1.3)
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256"):
        connection.metadata(())
    write_secret_file(way.account, f"{topic_name}:first")
    with closing(open_connection(settings)) as again:
        assert again.metadata(()).brokers


def test_certificate_files_are_replaced(secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str) -> None:
    """Own certificate and authority: from useless ones to good ones, and the other way, with one settings object."""
    way = Way(secured_cluster, tmp_path, "MUTUAL")
    settings = way.settings()
    good, strange = way.certificate.read_text(), CertificateAuthority("Nobody's authority")
    with Admin(settings, timeout=5.0) as admin, ControlWriter(settings, timeout=5.0) as writer:
        admin.create_topic(topic_name, 1, 1, {})
        assert writer.put(topic_name, "a", {"n": 1}) == 0
        first = admin._ask._client
        write_secret_file(way.certificate, strange.issue("worker-1").pem)
        with pytest.raises(AuthenticationFailed, match=r"worker-1.*Nobody's authority"):
            open_connection(settings)
        write_secret_file(way.ca, strange.chain)
        with pytest.raises(UntrustedBroker, match=r"broker\.lab"):
            open_connection(settings)
        write_secret_file(way.ca, secured_cluster.authority.chain)
        write_secret_file(way.certificate, secured_cluster.authority.issue("worker-2").pem)
        with closing(open_connection(settings)) as wire:
            assert wire.metadata(()).brokers
        until(lambda: works(admin.brokers) and admin._ask._client is not first, "the client has the old certificate")
        until(lambda: works(lambda: writer.put(topic_name, "b", {"n": 2})), "the writer has the old certificate")
        assert [record.key for record in read_control_log(settings, topic_name)][:2] == ["a", "b"]
        assert good != way.certificate.read_text()


@pytest.mark.parametrize("idle", [False, True])
def test_tokens_end_on_busy_and_on_idle_connections(
    secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str, idle: bool
) -> None:
    """Tokens of 5 s, sessions of 2: a pipeline of requests goes on over several logins, in order. A machine that stands
    still for a part of a second at the wrong moment lets a session end with requests under way: then once more."""
    identity = secured_cluster.identity
    way = Way(secured_cluster, tmp_path, "SHORT", "OAUTHBEARER")
    identity.clients[topic_name] = "its secret"  # a client of its own: tokens are shared by all of a process
    write_secret_file(way.account, f"{topic_name}:its secret")
    before, identity.life_s = identity.life_s, 5.0
    try:
        for attempt in range(3):
            try:
                logins = pipelined(way.settings(), f"{topic_name}-{attempt}", idle)
            except Unreachable:
                if attempt == 2:
                    raise
            else:
                break
        assert logins >= 3
        assert identity.issued[topic_name] >= 2
    finally:
        identity.life_s = before


def pipelined(settings: ConnectionSettings, name: str, idle: bool) -> int:
    """With how many logins."""
    with Admin(settings, timeout=5.0) as admin, closing(open_connection(settings)) as wire:
        topic = admin.create_topic(name, 1, 1, {})
        logins = {lifetime(wire)._due}
        for round_ in range(2 if idle else 26):
            time.sleep(SHORT_SESSION_S + 0.5 if idle else 0.2)
            for number in range(3):
                data = build_simple_batch([f"{round_} {number}".encode()])
                wire.send_produce((ProducePartition(topic.topic_id, 0, (data,)),))
            offsets = [wire.receive_produce()[0].base_offset for _ in range(3)]
            assert offsets == [3 * round_, 3 * round_ + 1, 3 * round_ + 2]
            logins.add(lifetime(wire)._due)
        assert admin.brokers() == 1
        return len(logins)


def test_answers_on_their_way_are_taken_in_before_a_login(
    secured_cluster: SecuredCluster, tmp_path: Path, topic_name: str
) -> None:
    settings = Way(secured_cluster, tmp_path, "SHORT", "SCRAM-SHA-512").settings()
    with Admin(settings) as admin, closing(open_connection(settings)) as wire:
        topic = admin.create_topic(topic_name, 1, 1, {})
        for number in range(6):
            if number == 4:
                time.sleep(1.2)  # a broker wants a second between two logins
                lifetime(wire)._due = 0.0
            data = build_simple_batch([str(number).encode()])
            wire.send_produce((ProducePartition(topic.topic_id, 0, (data,)),))
        assert [wire.receive_produce()[0].base_offset for _ in range(6)] == [0, 1, 2, 3, 4, 5]
        assert (lifetime(wire)._due or 0) > time.monotonic()
        [end] = wire.list_offsets(((topic_name, 0),), -1)
        assert end.offset == 6
