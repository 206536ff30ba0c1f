"""A client is made again only when that works: a rotation may be seen in the middle."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from watershed.clusters import secret_rotation
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.lab.certificates import CertificateAuthority, CertificateWithKey, write_secret_file
from watershed.replicator.worker.desired_state import DesiredState
from watershed.replicator.worker.membership import Membership
from watershed.topology.plan import PlanCluster, PlanSecurity
from watershed.topology.secret_ref import SecretRef


class Files:
    """A client's certificate and key, changed one after the other."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.folder = CertificateAuthority("ca"), folder
        write_secret_file(folder / "ca.pem", self.authority.chain)
        self.certificate(first := self.authority.issue("client"))
        self.key(first)

    def certificate(self, pair: CertificateWithKey) -> None:
        write_secret_file(self.folder / "tls.crt", pair.chain)

    def key(self, pair: CertificateWithKey) -> None:
        write_secret_file(self.folder / "tls.key", pair.key_pem())

    def settings(self) -> ConnectionSettings:
        ca, certificate, key = (SecretRef("file", str(self.folder / name)) for name in ("ca.pem", "tls.crt", "tls.key"))
        security = PlanSecurity(protocol="SSL", ca=ca, certificate=certificate, key=key)
        return resolve_connection_settings(PlanCluster("b", ("127.0.0.1:1",), security=security))


@pytest.fixture
def files(tmp_path, monkeypatch) -> Files:
    monkeypatch.setattr(secret_rotation, "_LOOK_EVERY_S", 0.0)
    return Files(tmp_path)


def _polled(writer: ControlWriter) -> None:
    for _ in range(20):  # what librdkafka complains of counts as under way, until a poll has heard it
        writer.poll(0)


def test_a_writer_keeps_its_client_until_certificate_and_key_fit(files, caplog):
    writer = ControlWriter(files.settings())
    first, next_pair = writer._producer, files.authority.issue("client")
    files.certificate(next_pair)
    with caplog.at_level(logging.WARNING, "watershed.rotation"):
        _polled(writer)
    assert writer._producer is first
    assert set(caplog.messages) == {"client not renewed"}
    files.key(next_pair)
    _polled(writer)
    second = writer._producer
    assert second is not first
    _polled(writer)
    assert writer._producer is second


def test_a_worker_s_consumers_outlive_half_a_rotation(files):
    settings, next_pair = files.settings(), files.authority.issue("client")
    desired, membership = DesiredState(settings), Membership(settings, "g", "w", lambda _slots: None)
    before = desired._consumer, membership._consumer
    files.certificate(next_pair)
    desired._renew()
    membership.poll(0)
    assert (desired._consumer, membership._consumer) == before
    before[0].assignment()  # raises when it is closed
    before[1].assignment()
    files.key(next_pair)
    desired._renew()
    membership.poll(0)
    assert desired._consumer is not before[0]
    assert membership._consumer is not before[1]
    desired.close()
    membership.close()


def test_a_secret_that_is_gone_keeps_the_client(files):
    writer = ControlWriter(files.settings())
    first = writer._producer
    (files.folder / "tls.key").unlink()
    _polled(writer)
    assert writer._producer is first
