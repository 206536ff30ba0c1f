"""4: a broker whose ApiVersions answer has a null array, 28 bytes that abort librdkafka."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

from watershed.lab.attack.attack_setup import AttackSetup, build_clean_environ
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings
from watershed.lab.hostile_broker import ABORTING_API_VERSIONS, HostileBroker, build_friendly_answer

_FLOWS = """\
flows:
  - {source: onprem, target: cloud, topics: {include: [orders]}, workers: {engine: process}}
"""
_COMMANDS = (
    ("status",),
    ("plan",),
    ("scan", "--sample", "0s", "--timeout", "5s"),
    ("apply", "--yes"),
    ("worker", "--target", "cloud"),
)
# What anybody's client does who does not look first.
_BARE = """
import sys
from confluent_kafka.admin import AdminClient
AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0}).list_topics(timeout=5)
"""


def _send_aborting_answer(scene: AttackSetup) -> AttackFindings:
    with (
        HostileBroker(lambda key, version: ABORTING_API_VERSIONS) as one,
        HostileBroker(lambda key, version: ABORTING_API_VERSIONS) as two,
    ):
        bare = _bare_code(one.address)
        require_carried_out(one.connections, "nobody asked the hostile broker")
        aborted = f"a bare librdkafka ends by signal {-bare}" if bare < 0 else "this librdkafka survives it"
        findings = AttackFindings(f"28 bytes as the answer to ApiVersions ({aborted}) to {_named()}")
        file = scene.pair_file("evil", _FLOWS, onprem=one.address, cloud=two.address)
        for arguments in _COMMANDS:
            before = one.connections + two.connections
            ended = scene.topology(arguments[0], file, *arguments[1:])
            require_carried_out(
                one.connections + two.connections > before, f"topology {arguments[0]} did not ask the broker"
            )
            named = any(each.address in ended.said for each in (one, two))
            if not (ended.code == 2 and ended.is_clean and named):
                findings.broken.append(f"topology {arguments[0]} ends with {ended.how}: {ended.err[-200:].strip()}")
    if not findings.broken:
        findings.seen.append("each ends with exit code 2 and names the address")
        _behind_a_friend(scene, findings)
    return findings


def _behind_a_friend(scene: AttackSetup, findings: AttackFindings) -> None:
    """The hostile one is advertised by a broker that answers as it should."""
    with ExitStack() as stack:
        hostile = stack.enter_context(HostileBroker(lambda key, version: ABORTING_API_VERSIONS))
        friends = [stack.enter_context(HostileBroker(build_friendly_answer(lambda: [hostile.port]))) for _ in range(2)]
        file = scene.pair_file("advertised", _FLOWS, onprem=friends[0].address, cloud=friends[1].address)
        ended = scene.topology("plan", file)
        require_carried_out(any(each.connections for each in friends), "topology plan did not ask the friendly broker")
        require_carried_out(hostile.connections, "topology plan did not follow what the friendly broker advertises")
    findings.expect(
        ended.code == 2 and ended.is_clean and hostile.address in ended.said,
        "also where an honest broker advertises it",
        f"where an honest broker advertises it, topology plan ends with {ended.how}",
    )


def _bare_code(address: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _BARE, address], env=build_clean_environ(), capture_output=True, timeout=60, check=False
    )
    return done.returncode


def _named() -> str:
    return ", ".join(arguments[0] for arguments in _COMMANDS)


ABORTING_ANSWER_ATTACK = Attack(
    4,
    "A broker's answer aborts every process that reads it by librdkafka",
    _send_aborting_answer,
    needs_clusters=False,
)
