"""A real API server of Kubernetes 1.33 with its etcd, and the controllers of Deployments, ReplicaSets and StatefulSets;
no scheduler and no kubelet, so that whoever uses it binds pods to nodes and says what becomes of them.

One program has all of it, built once from lab/kubernetes (Go modules, held to lab/kubernetes/go.sum) into the user's
cache: `python -m watershed.lab.kubernetes_server build`. On two cores that are busy otherwise, the first build takes
16 minutes.
`python -m watershed.lab.kubernetes_server` runs a server until Ctrl-C. Everything listens on 127.0.0.1 only.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from watershed.lab.certificates import CertificateAuthority, write_secret_file
from watershed.lab.detached_process import ProcessIdentity, end_processes, is_alive, spawn_detached
from watershed.lab.errors import LabError
from watershed.lab.fetched_programs import build_go_program, fetch_program_once, find_fetched_program
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports

KUBERNETES_FOLDER: Final = Path(__file__).with_name("kubernetes")
ISSUER: Final = "https://kubernetes.default.svc"  # of service accounts' tokens
VERSION: Final = "v1.33.5"  # as in go.mod; what the server says of itself
_SOURCES: Final = ("go.mod", "go.sum", "main.go")
_READY_S: Final = 120.0  # on an idle machine 6 s


@dataclass(frozen=True, slots=True)
class KubernetesServer:
    """address: `https://host:port`. authority: PEM of whom its certificate is signed by. clients: signs certificates of
    clients that the server takes (the common name is the user). token_key: PEM, signs service accounts' tokens (ES256).
    admin: the token of a user who may do everything. processes: to be ended in this order."""

    home: Path
    address: str
    authority: str
    clients: CertificateAuthority
    token_key: str
    admin: str
    processes: tuple[ProcessIdentity, ...] = ()

    @property
    def log(self) -> Path:
        """What the API server prints."""
        return self.home / "kube-apiserver.log"

    def build_kubeconfig(self, user: Mapping[str, object], authority: str | None = None) -> str:
        """A kubeconfig as text. user: as its `user` entry has it, {"token": …} for example. authority: PEM, of whom to
        trust in place of the right one."""
        trusted = base64.b64encode((authority or self.authority).encode()).decode()
        cluster = {"name": "c", "cluster": {"server": self.address, "certificate-authority-data": trusted}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        return json.dumps(
            {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context],
             "users": [{"name": "u", "user": dict(user)}], "current-context": "x"}
        )  # fmt: skip


def is_kubernetes_built(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the program is in the cache: a test does not begin to build it."""
    return find_fetched_program("kubernetes", _list_pins(), os.environ if environ is None else environ).exists()


def fetch_kubernetes(environ: Mapping[str, str] | None = None) -> Path:
    """The program, built when it is not there yet. Raises ToolMissing (no go), LabError."""
    environ = os.environ if environ is None else environ
    return fetch_program_once("kubernetes", _list_pins(), environ, _build)


def start_kubernetes(home: Path | str) -> KubernetesServer:
    """Starts etcd, the API server and the controllers, detached; returns when the API server is ready. home: an empty
    folder. Raises ToolMissing, LabError."""
    program, home = str(fetch_kubernetes()), Path(home).resolve()
    client_port, peer_port, port = find_free_ports(3)
    authority, clients = CertificateAuthority("lab kubernetes"), CertificateAuthority("lab kubernetes clients")
    own, tokens = authority.issue("kube-apiserver", (LOOPBACK_HOST, "localhost")), clients.issue("service-accounts")
    admin = secrets.token_hex(16)
    files = {
        "server.pem": own.chain,
        "server.key": own.key_pem(),
        "clients.pem": clients.chain,
        "tokens.key": tokens.key_pem(),
        "tokens.pub": tokens.public_key_pem(),
        "tokens.csv": f"{admin},admin,1,system:masters\n",
    }
    for name, text in files.items():
        write_secret_file(home / name, text)
    address = f"https://{LOOPBACK_HOST}:{port}"
    server = KubernetesServer(home, address, authority.chain, clients, tokens.key_pem(), admin)
    etcd_flags, server_flags = (
        _list_etcd_flags(home, client_port, peer_port),
        _list_server_flags(home, client_port, port),
    )
    etcd = spawn_detached([program, "etcd", *etcd_flags], home / "etcd.log")
    serving = spawn_detached([program, "kube-apiserver", *server_flags], server.log)
    started = replace(server, processes=(serving, etcd))
    try:
        _wait_until_ready(started)
        kubeconfig = write_secret_file(home / "controllers.json", server.build_kubeconfig({"token": admin}))
        controllers = spawn_detached([program, "controllers", str(kubeconfig)], home / "controllers.log")
    except BaseException:
        end_kubernetes(started)
        raise
    return replace(server, processes=(controllers, serving, etcd))


def end_kubernetes(server: KubernetesServer) -> None:
    """Ends its processes; its folder stays."""
    for process in server.processes:
        end_processes([process], grace=5.0)


def _list_pins() -> list[Path]:
    return [KUBERNETES_FOLDER / name for name in _SOURCES]


def _build(scratch: Path, environ: Mapping[str, str]) -> None:
    what = "an API server of Kubernetes for tests"
    flags = f"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion={VERSION}"
    build_go_program("kubernetes", KUBERNETES_FOLDER, what, scratch, environ, {}, (flags,))


def _list_etcd_flags(home: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = (f"http://{LOOPBACK_HOST}:{port}" for port in (client_port, peer_port))
    return [
        f"--data-dir={home / 'etcd'}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync", "--log-level=warn",
    ]  # fmt: skip


def _list_server_flags(home: Path, etcd_port: int, port: int) -> list[str]:
    """Without the admission of service accounts: their controller, which makes `default`, is not here."""
    return [
        f"--etcd-servers=http://{LOOPBACK_HOST}:{etcd_port}",
        f"--secure-port={port}", f"--bind-address={LOOPBACK_HOST}",
        f"--tls-cert-file={home / 'server.pem'}", f"--tls-private-key-file={home / 'server.key'}",
        f"--client-ca-file={home / 'clients.pem'}", f"--token-auth-file={home / 'tokens.csv'}",
        f"--service-account-issuer={ISSUER}", f"--service-account-key-file={home / 'tokens.pub'}",
        f"--service-account-signing-key-file={home / 'tokens.key'}", "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none", f"--cert-dir={home / 'certs'}", "--anonymous-auth=true",
    ]  # fmt: skip


def _wait_until_ready(server: KubernetesServer) -> None:
    """Raises LabError, with the log, where it does not get ready."""
    deadline, trust = time.monotonic() + _READY_S, ssl.create_default_context(cadata=server.authority)
    asked = urllib.request.Request(f"{server.address}/readyz", headers={"Authorization": f"Bearer {server.admin}"})  # noqa: S310 -- ours
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=5, context=trust) as answer:  # noqa: S310 -- ours
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        if time.monotonic() > deadline or not all(is_alive(each) for each in server.processes):
            raise LabError(f"Kubernetes did not become ready at {server.address}; its logs: {server.home}/*.log")
        time.sleep(0.1)


def _run_in_foreground() -> None:
    """Runs a server in a folder that is gone afterwards, until SIGINT or SIGTERM. Raises ToolMissing, LabError."""
    with tempfile.TemporaryDirectory(prefix="watershed-kubernetes-") as home:
        server = start_kubernetes(home)
        try:
            path = write_secret_file(Path(home) / "kubeconfig", server.build_kubeconfig({"token": server.admin}))
            click.echo(f"Kubernetes answers at {server.address}; KUBECONFIG={path}; Ctrl-C ends it")
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            end_kubernetes(server)


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["build"]:
            click.echo(str(fetch_kubernetes()))
        elif sys.argv[1:]:
            sys.exit("usage: python -m watershed.lab.kubernetes_server [build]")
        else:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            _run_in_foreground()
    except LabError as error:
        sys.exit(f"lab: {error}")
