"""What a topology file may refer to is the runner's to say, not its author's."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.clusters import allowed_references
from watershed.clusters.errors import SecretMissing
from watershed.clusters.secrets import SecretResolver
from watershed.clusters.settings import resolve_connection_settings
from watershed.topology.plan import PlanCluster, PlanSecurity
from watershed.topology.secret_ref import SecretRef


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in allowed_references.ALLOWED_BY_DEFAULT:
        monkeypatch.delenv(setting, raising=False)


def refused(ref: SecretRef, environ: dict[str, str] | None = None, what: str = "credentials") -> str:
    with pytest.raises(SecretMissing) as found:
        SecretResolver("cloud", environ or {}).text(what, ref)
    return str(found.value)


def test_variables_by_default_and_by_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"WATERSHED_SECRET_CLOUD": "a:b", "KAFKA_CLOUD": "c:d", "HOME": "/home/ops"}
    assert SecretResolver("cloud", environ).account("credentials", SecretRef("env", "WATERSHED_SECRET_CLOUD")) == (
        "a",
        "b",
    )
    told = refused(SecretRef("env", "KAFKA_CLOUD"), environ)
    assert "clusters.cloud.security.credentials: secret {env: KAFKA_CLOUD}" in told
    assert "WATERSHED_ALLOW_ENV=WATERSHED_SECRET_*,KAFKA_CLOUD" in told
    assert "c:d" not in told
    monkeypatch.setenv(allowed_references.ALLOW_ENV, "KAFKA_*")
    assert SecretResolver("cloud", environ).account("credentials", SecretRef("env", "KAFKA_CLOUD")) == ("c", "d")
    assert "may not be used" in refused(SecretRef("env", "HOME"), environ)


@pytest.mark.parametrize("name", ["AIRFLOW__CORE__FERNET_KEY", "airflow__core__fernet_key"])
def test_airflows_own_variables_never(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(allowed_references.ALLOW_ENV, "*")
    assert "no topology may read variables that begin with AIRFLOW__" in refused(SecretRef("env", name), {name: "k:v"})


def test_files_by_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, other = tmp_path / "secrets", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
        (each / "cloud").write_text("user:password")
    (folder / "link").symlink_to(other / "cloud")
    inside, outside = SecretRef("file", str(folder / "cloud")), SecretRef("file", str(other / "cloud"))
    assert f"WATERSHED_ALLOW_FILES=/run/secrets/watershed,{folder}" in refused(inside)
    monkeypatch.setenv(allowed_references.ALLOW_FILES, str(folder))
    assert SecretResolver("cloud", {}).account("credentials", inside) == ("user", "password")
    for way in (outside, SecretRef("file", str(folder / "link")), SecretRef("file", f"{folder}/../other/cloud")):
        assert "may not be used here" in refused(way)


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/environ", "/sys/kernel/notes", "/dev/stdin"])
def test_the_systems_own_files_never(monkeypatch: pytest.MonkeyPatch, path: str, tmp_path: Path) -> None:
    monkeypatch.setenv(allowed_references.ALLOW_FILES, "/")
    (tmp_path / "link").symlink_to(path)
    for way in (path, str(tmp_path / "link")):
        assert "no topology may read files in /proc, /sys, /dev" in str(allowed_references.explain_file_refusal(way))


def test_a_path_that_a_variable_holds_is_asked_about_too(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("key")
    vault = SecretResolver("cloud", {"WATERSHED_SECRET_KEY_FILE": str(tmp_path / "key.pem")})
    with pytest.raises(SecretMissing, match="WATERSHED_ALLOW_FILES"):
        vault.path("key", SecretRef("env", "WATERSHED_SECRET_KEY_FILE"))


def test_the_systems_authorities_are_for_ca_only() -> None:
    ref = SecretRef("file", "/etc/ssl/certs/ca-certificates.crt")
    assert allowed_references.explain_reference_refusal(ref, authority=True) is None
    assert allowed_references.explain_reference_refusal(ref) is not None


def test_airflow_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"AIRFLOW_CONN_PAYROLL": "kafka://a:b@h", "AIRFLOW_CONN_WATERSHED_CLOUD": "kafka://a:b@h"}
    ours, theirs = SecretRef("airflow_connection", "Watershed_Cloud"), SecretRef("airflow_connection", "payroll")
    assert SecretResolver("cloud", environ).account("credentials", ours) == ("a", "b")
    assert "WATERSHED_ALLOW_CONNECTIONS=watershed_*,payroll" in refused(theirs, environ)
    monkeypatch.setenv(allowed_references.ALLOW_CONNECTIONS, "payroll")
    assert SecretResolver("cloud", environ).account("credentials", theirs) == ("a", "b")


def test_a_setting_of_the_runner_needs_no_permission(tmp_path: Path) -> None:
    (tmp_path / "account").write_text("ops:password")
    ref = SecretRef("file", str(tmp_path / "account"))
    assert SecretResolver("", {}, where="WATERSHED_AIRFLOW_CREDENTIALS", own=True).account("file", ref) == (
        "ops",
        "password",
    )


@pytest.mark.parametrize(
    ("hosts", "fine"),
    [
        (["127.0.0.1:9092", "localhost:9093", "[::1]:9092"], True),
        (["kafka.example.internal:9092"], False),
        (["127.0.0.1:9092", "kafka.example.internal:9092"], False),
        (["127.0.0.1.example.internal:9092"], False),
    ],
)
def test_credentials_go_over_tls_or_stay_here(monkeypatch: pytest.MonkeyPatch, hosts: list[str], fine: bool) -> None:
    monkeypatch.setenv("WATERSHED_SECRET_CLOUD", "user:password")
    security = PlanSecurity("SASL_PLAINTEXT", "PLAIN", SecretRef("env", "WATERSHED_SECRET_CLOUD"))
    cluster = PlanCluster("cloud", tuple(hosts), security=security)
    if fine:
        assert resolve_connection_settings(cluster).username == "user"
        return
    with pytest.raises(
        SecretMissing, match=r"WATERSHED_ALLOW_PLAINTEXT=kafka\.example\.internal|127\.0\.0\.1\.example"
    ):
        resolve_connection_settings(cluster)
    monkeypatch.setenv(allowed_references.ALLOW_PLAINTEXT, "kafka.example.internal,127.0.0.1.example.internal")
    assert resolve_connection_settings(cluster).username == "user"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("env", "hunter2"),
        ("env", ":hunter2"),
        ("env", "hunter2:"),
        ("env", "hunter2 and:more"),
        ("env", "/hunter2:more"),
        ("env", "postgresql+psycopg2://hunter2:more@db/airflow"),
        ("env", '{"username": {"hunter2": 1}, "password": "p"}'),
        ("env", '{"username": "hunter2"}'),
        ("env", "{hunter2:more"),
        ("airflow_connection", "kafka://hunter2@[host"),
        ("airflow_connection", "hunter2:more"),
        ("airflow_connection", "kafka://hunter2@host"),
        ("airflow_connection", "kafka://hunter2%0A:more@host"),
    ],
)
def test_no_part_of_what_is_malformed_is_told(kind: str, text: str) -> None:
    environ = {"WATERSHED_SECRET_X": text, "AIRFLOW_CONN_WATERSHED_SECRET_X": text}
    with pytest.raises(SecretMissing) as found:
        SecretResolver("cloud", environ).account("credentials", SecretRef(kind, "WATERSHED_SECRET_X"))
    assert "hunter2" not in str(found.value)
    assert "no user name and password" in str(found.value) or "username and password" in str(found.value)
