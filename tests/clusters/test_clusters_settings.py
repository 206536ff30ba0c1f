"""Secret references: what resolves, what is missed, and that nothing of it is printed. No broker needed."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from watershed.clusters import errors
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.topology.plan import PlanCluster, PlanKerberos, PlanOAuth, PlanSecurity
from watershed.topology.secret_ref import SecretRef

SECRET = "s3cr3t-w0rd"
JSON = f'{{"username": "ann", "password": "{SECRET}"}}'


def cluster(ref: SecretRef | None, protocol: str = "SASL_SSL") -> PlanCluster:
    return PlanCluster("cloud", ("k1:9092", "k2:9092"), "id", PlanSecurity(protocol, "SCRAM-SHA-512", ref))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("env", f"ann:{SECRET}"),
        ("env", JSON),
        ("file", f"ann:{SECRET}\n"),
        ("file", JSON),
        ("airflow_connection", f"kafka://ann:{SECRET}@k1:9092"),
        ("airflow_connection", f'{{"conn_type": "kafka", "login": "ann", "password": "{SECRET}"}}'),
    ],
)
def test_credentials(kind: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    name = {"env": "CLOUD", "file": str(path), "airflow_connection": "kafka_cloud"}[kind]
    environ = {"CLOUD": content, "AIRFLOW_CONN_KAFKA_CLOUD": content}
    found = resolve_connection_settings(cluster(SecretRef(kind, name)), environ)  # type: ignore[arg-type]
    assert (found.username, found.password) == ("ann", SECRET)
    assert SECRET not in repr(found)
    assert found.librdkafka()["sasl.password"] == SECRET
    assert found.librdkafka({"client.id": "me"})["client.id"] == "me"


@pytest.mark.parametrize(
    ("ref", "environ", "said"),
    [
        (SecretRef("env", "CLOUD"), {}, "secret {env: CLOUD} is not set: export CLOUD"),
        (SecretRef("env", "CLOUD"), {"CLOUD": SECRET}, "holds no user name and password"),
        (SecretRef("env", "CLOUD"), {"CLOUD": '{"password": "s3cr3t-w0rd"}'}, "is JSON without username and password"),
        (SecretRef("env", "CLOUD"), {"CLOUD": '{"username": "ann", s3cr3t-w0rd'}, "is JSON without"),
        (SecretRef("file", "/no/such/file"), {}, "secret {file: /no/such/file} cannot be read"),
        (SecretRef("airflow_connection", "kafka_cloud"), {}, "export AIRFLOW_CONN_KAFKA_CLOUD"),
        (SecretRef("airflow_connection", "k"), {"AIRFLOW_CONN_K": f"kafka://{SECRET}"}, "holds no user name"),
    ],
)
def test_missing_secret(ref: SecretRef, environ: dict[str, str], said: str) -> None:
    with pytest.raises(errors.SecretMissing) as caught:
        resolve_connection_settings(cluster(ref), environ)
    assert said in str(caught.value)
    assert "clusters.cloud.security.credentials" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_certificates(tmp_path: Path) -> None:
    pem = tmp_path / "client.pem"
    pem.write_text("-----BEGIN")
    plain = resolve_connection_settings(cluster(SecretRef("file", str(pem)), "SSL"), {})
    assert plain.librdkafka()["ssl.certificate.location"] == str(pem)
    assert plain.librdkafka()["ssl.key.location"] == str(pem)
    security = PlanSecurity("SSL", ca=SecretRef("env", "CA"))
    found = resolve_connection_settings(PlanCluster("cloud", ("k:1",), None, security), {"CA": str(pem)})
    assert found.ca_file == str(pem)
    with pytest.raises(errors.SecretMissing, match=r"security\.ca: secret \{env: CA\} names no readable file"):
        resolve_connection_settings(PlanCluster("cloud", ("k:1",), None, security), {"CA": str(tmp_path / "no")})


def test_references_are_read_again(tmp_path: Path) -> None:
    """`renewed` and a new librdkafka client have the secret as it is now; what a caller replaced stays."""
    path = tmp_path / "secret"
    path.write_text(f"ann:{SECRET}\n")
    settings = replace(resolve_connection_settings(cluster(SecretRef("file", str(path))), {}), cluster_id=None)
    path.write_text("bea:next\n")
    assert (settings.username, settings.reread_secrets().username, settings.reread_secrets().password) == (
        "ann",
        "bea",
        "next",
    )
    assert settings.reread_secrets().cluster_id is None
    assert settings.librdkafka()["sasl.password"] == "next"
    assert pickle.loads(pickle.dumps(settings)) == settings
    path.unlink()
    with pytest.raises(errors.SecretMissing, match="cannot be read"):
        settings.reread_secrets()


def test_everything_of_security(tmp_path: Path) -> None:
    for name in ("ca.pem", "client.pem", "key.pem"):
        (tmp_path / name).write_text("-----BEGIN")
    ca, certificate, key = (SecretRef("file", str(tmp_path / f"{name}.pem")) for name in ("ca", "client", "key"))
    security = PlanSecurity(
        "SASL_SSL", "OAUTHBEARER", SecretRef("env", "ID"), ca, certificate, key, SecretRef("env", "PASSPHRASE"),
        oauth=PlanOAuth("https://i/t", "kafka", (("a", "b"),), ca), kerberos=PlanKerberos("broker", "w@X", key),
    )  # fmt: skip
    found = resolve_connection_settings(
        PlanCluster("cloud", ("k:1",), None, security), {"ID": f"id:{SECRET}", "PASSPHRASE": f"{SECRET}2"}
    )
    assert (found.username, found.password, found.key_password) == ("id", SECRET, f"{SECRET}2")
    assert found.oauth is not None
    assert (found.oauth.token_endpoint, found.oauth.extensions) == ("https://i/t", (("a", "b"),))
    assert (found.oauth.ca_file, found.oauth.scope) == (ca.name, "kafka")
    assert found.kerberos is not None
    assert (found.kerberos.service, found.kerberos.principal, found.kerberos.keytab) == ("broker", "w@X", key.name)
    assert SECRET not in repr(found)


def test_plain_settings() -> None:
    settings = ConnectionSettings("onprem", ("127.0.0.1:1234", "127.0.0.1:1235"))
    assert settings.librdkafka() == {
        "bootstrap.servers": "127.0.0.1:1234,127.0.0.1:1235",
        "security.protocol": "PLAINTEXT",
        "client.id": "watershed",
        "reconnect.backoff.max.ms": 1000,
        "log_level": 0,
    }


def test_errors_travel_between_processes() -> None:
    error = errors.TopicMissing("no topic", alias="a", topic="t", partition=3)
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.alias, back.topic, back.partition) == (
        errors.TopicMissing,
        "no topic",
        "a",
        "t",
        3,
    )
    lost = pickle.loads(pickle.dumps(errors.Unreachable.at("a", ["h:1"], "refused")))
    assert lost.bootstrap == ("h:1",)
    assert all(kind.exit_code == 2 for kind in errors.ClusterError.__subclasses__())


def test_the_account_that_aligns_is_another_one_only_where_it_is_named() -> None:
    declared = PlanSecurity("SASL_SSL", "PLAIN", SecretRef("env", "ID"))
    environ = {"ID": f"id:{SECRET}", "OTHER": f"other:{SECRET}2"}
    alone = resolve_connection_settings(PlanCluster("cloud", ("k:1",), None, declared), environ)
    assert alone.aligning() is alone
    both = replace(declared, align_credentials=SecretRef("env", "OTHER"))
    settings = resolve_connection_settings(PlanCluster("cloud", ("k:1",), None, both), environ)
    assert (settings.username, settings.aligning().username) == ("id", "other")
    assert settings.aligning().reread_secrets().password == f"{SECRET}2"
    assert not settings.aligning().has_aligner
    del environ["OTHER"]
    with pytest.raises(errors.SecretMissing, match=r"security\.align_credentials: secret {env: OTHER} is not set"):
        settings.aligning()


def test_the_account_that_aligns_by_certificate(tmp_path: Path) -> None:
    for name in ("client.pem", "key.pem", "other.pem"):
        (tmp_path / name).write_text("-----BEGIN")
    client, key, other = (SecretRef("file", str(tmp_path / f"{name}.pem")) for name in ("client", "key", "other"))
    declared = PlanSecurity("SSL", certificate=client, key=key, align_credentials=other)
    settings = resolve_connection_settings(PlanCluster("cloud", ("k:1",), None, declared), {})
    assert (settings.certificate_file, settings.key_file) == (client.name, key.name)
    aligning = settings.aligning()
    assert (aligning.certificate_file, aligning.key_file) == (other.name, None)
