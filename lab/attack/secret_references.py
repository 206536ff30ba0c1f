"""3: a topology whose credentials are the runner's files and variables, and whose broker is its author's own."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from watershed.lab.attack.attack_setup import AttackSetup, CommandResult
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings
from watershed.lab.hostile_broker import HostileBroker, answer_with_sasl_plain

_FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: secrets, owner: attack}}
clusters:
  onprem: {security}
  cloud: {security}
flows:
  - {{source: onprem, target: cloud, topics: {{include: [orders]}}, workers: {{engine: process}}}}
"""
_COMMANDS = (("scan", "--sample", "0s", "--timeout", "5s"), ("status",), ("worker", "--target", "cloud"))


def _ask_for_secrets(scene: AttackSetup) -> AttackFindings:
    canary, honest = (secrets.token_hex(24) for _ in range(2))
    allowed, outside = scene.folder / "allowed", scene.folder / "outside"
    for folder in (allowed, outside):
        folder.mkdir()
    (allowed / "honest").write_text(f"honest:{honest}")
    (outside / "secret").write_text(f"root:{canary}")
    (allowed / "link").symlink_to(outside / "secret")
    environ = {
        "WATERSHED_ALLOW_FILES": str(allowed),
        "WATERSHED_SECRET_HONEST": f"honest:{honest}",
        "WATERSHED_SECRET_MALFORMED": canary,  # no colon: neither user nor password may be told
        "AIRFLOW__CORE__FERNET_KEY": f"fernet:{canary}",
        "AWS_SECRET_ACCESS_KEY": f"aws:{canary}",
    }
    allowed_ones: tuple[Mapping[str, str], ...] = (
        {"env": "WATERSHED_SECRET_HONEST"},
        {"file": str(allowed / "honest")},
    )
    for reference in allowed_ones:
        heard, _ = _ask(scene, reference, environ, ("scan", "--sample", "0s", "--timeout", "5s"))
        require_carried_out(honest.encode() in heard, f"the allowed secret {reference} did not reach the listener")
    hostile: list[Mapping[str, str]] = [
        {"file": "/proc/self/environ"},
        {"file": f"{allowed}/../../../../../../../../../../../proc/self/environ"},
        {"env": "AIRFLOW__CORE__FERNET_KEY"},
        {"env": "AWS_SECRET_ACCESS_KEY"},
        {"file": str(outside / "secret")},
        {"file": f"{allowed}/../outside/secret"},
        {"file": str(allowed / "link")},
        {"env": "WATERSHED_SECRET_MALFORMED"},
    ]
    tries = [(reference, command) for reference in hostile for command in _COMMANDS]
    findings = AttackFindings(
        f"{len(hostile)} references (/proc/self/environ, AIRFLOW__…, files outside, links) with {len(_COMMANDS)} "
        "commands, to a listener that asks for the password"
    )
    with ThreadPoolExecutor(2) as pool:
        for (reference, command), (heard, ended) in zip(
            tries, pool.map(lambda each: _ask(scene, each[0], environ, each[1]), tries), strict=True
        ):
            told = f"{reference} with topology {command[0]}"
            if _holds_part_of(heard, canary):
                findings.broken.append(f"{told}: the listener got the secret")
            if _holds_part_of(ended.said.encode(), canary):
                findings.broken.append(f"{told}: a part of the secret is in the output")
            if not (ended.code and ended.is_clean):
                findings.broken.append(f"{told}: {ended.how}, without words")
    if not findings.broken:
        findings.seen += ["each is refused", "no 8 letters of a secret arrived or were printed", "allowed ones arrived"]
    return findings


def _ask(
    scene: AttackSetup, reference: Mapping[str, str], environ: Mapping[str, str], command: tuple[str, ...]
) -> tuple[bytes, CommandResult]:
    """What a listener of its own hears when a command uses this reference."""
    with HostileBroker(answer_with_sasl_plain) as listener:
        security = {
            "bootstrap": [listener.address],
            "security": {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "credentials": dict(reference)},
        }
        file = scene.file(f"{listener.port}.yaml", _FILE.format(security=json.dumps(security)))
        ended = scene.topology(command[0], file, *command[1:], environ=environ)
        return listener.heard, ended


def _holds_part_of(text: bytes, secret: str, letters: int = 8) -> bool:
    """Whether any so many letters of the secret are in it, or all of it as base64."""
    parts = {secret[at : at + letters].encode() for at in range(len(secret) - letters + 1)}
    # in base64 a text looks one of three ways; what its neighbours change at both ends is left out
    encoded = {base64.b64encode(bytes(at) + secret.encode())[4:-4] for at in range(3)}
    return any(part in text for part in parts | encoded)


SECRET_REFERENCES_ATTACK = Attack(
    3,
    "A topology's author has the runner's files and variables sent to his own broker",
    _ask_for_secrets,
    needs_clusters=False,
)
