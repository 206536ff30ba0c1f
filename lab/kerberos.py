"""A Kerberos realm of its own for the lab: MIT's KDC on loopback, thrown away with its directory.

The programs are Debian's krb5-kdc and krb5-admin-server (krb5kdc, kdb5_util, kadmin.local); nothing of the system's own
Kerberos is read or written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.free_ports import LOOPBACK_HOST, find_free_ports

KERBEROS_REALM = "LAB.EXAMPLE.INTERNAL"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")


@dataclass(frozen=True, slots=True)
class KerberosRealm:
    """home holds krb5.conf and the keytabs."""

    home: Path

    @property
    def conf(self) -> Path:
        """What `KRB5_CONFIG` names."""
        return self.home / "krb5.conf"

    def keytab(self, principal: str) -> Path:
        """A new principal (`name` or `service/host`) with a random key, in a keytab of its own."""
        path = self.home / f"{principal.replace('/', '-')}.keytab"
        for query in (
            f"addprinc -randkey {principal}@{KERBEROS_REALM}",
            f"ktadd -k {path} {principal}@{KERBEROS_REALM}",
        ):
            _run(self.home, "kadmin.local", "-r", KERBEROS_REALM, "-q", query)
        return path


def find_missing_kerberos_programs() -> list[str]:
    """The programs that are not on the search path."""
    return [name for name in _PROGRAMS if _found(name) is None]


@contextlib.contextmanager
def run_kerberos_realm(home: Path) -> Iterator[KerberosRealm]:
    """Raises ToolMissing, LabError."""
    if lacking := find_missing_kerberos_programs():
        raise ToolMissing(lacking[0], f"no {', '.join(lacking)} found", "for example: apt-get install krb5-kdc")
    home.mkdir(parents=True)
    [port] = find_free_ports(1)
    (home / "krb5.conf").write_text(_conf(home, port))
    _run(home, "kdb5_util", "create", "-s", "-r", KERBEROS_REALM, "-P", os.urandom(16).hex())
    with open(home / "kdc.out", "wb") as out:
        command = [_found("krb5kdc") or "krb5kdc", "-n", "-r", KERBEROS_REALM]
        kdc = subprocess.Popen(command, stdout=out, stderr=out, env=_environ(home))
        try:
            _await(port, kdc)
            yield KerberosRealm(home)
        finally:
            kdc.terminate()
            kdc.wait(15)


def _conf(home: Path, port: int) -> str:
    return f"""[libdefaults]
 default_realm = {KERBEROS_REALM}
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {KERBEROS_REALM} = {{
  kdc = {LOOPBACK_HOST}:{port}
  kdc_listen = ""
  kdc_tcp_listen = {LOOPBACK_HOST}:{port}
  database_name = {home}/principal
  key_stash_file = {home}/stash
  acl_file = {home}/acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
 }}
[logging]
 kdc = FILE:{home}/kdc.log
"""


def _environ(home: Path) -> dict[str, str]:
    return {**os.environ, "KRB5_CONFIG": str(home / "krb5.conf"), "KRB5_KDC_PROFILE": str(home / "krb5.conf")}


def _run(home: Path, program: str, *arguments: str) -> None:
    command = [_found(program) or program, *arguments]
    done = subprocess.run(command, env=_environ(home), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{program} failed: {(done.stderr or done.stdout).strip()[-300:]}")


def _found(program: str) -> str | None:
    """Servers stand in sbin, which is on no ordinary search path."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _await(port: int, kdc: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK_HOST, port)) == 0:
                return
        if kdc.poll() is not None or time.monotonic() > deadline:
            raise LabError("the KDC did not start")
        time.sleep(0.05)
