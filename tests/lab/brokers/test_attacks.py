"""`make attack` tells held from not held, and neither from an attack that could not be carried out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from watershed.lab.attack import __main__ as attacks
from watershed.lab.attack import attack_setup, forged_batch, pasted_commands
from watershed.lab.attack.attack_setup import AttackSetup
from watershed.lab.attack.control_checks import AttackNotCarriedOut, require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings, AttackVerdict
from watershed.lab.clusters import Lab

NUMBERS = [each.number for each in attacks.ATTACKS]
# Stand in for the installed command. SILENT: a product that does nothing at all.
SILENT = "#!/bin/sh\nexit 0\n"
UNQUOTED = f"""#!{sys.executable}
import json, sys
text = open(sys.argv[2]).read()
group = text.split("consumers: [")[1].split("], producers")[0]
print("kafka-acls --group '" + json.loads(group) + "'")
"""
LISTENS = f"""#!{sys.executable}
import re, sys
from confluent_kafka.admin import AdminClient
address = re.findall(r"127.0.0.1:[0-9]+", open(sys.argv[2]).read())[0]
AdminClient({{"bootstrap.servers": address, "log_level": 0}}).list_topics(timeout=5)
"""
LEAKS = f"""#!{sys.executable}
import os, re, socket, struct, sys
text = open(sys.argv[2]).read()
names = re.findall(r'"(env|file)": "([^"]+)"', text)
secret = os.environ[names[0][1]] if names[0][0] == "env" else open(names[0][1]).read()
host, port = re.findall(r"(127.0.0.1):([0-9]+)", text)[0]
with socket.create_connection((host, int(port))) as there:
    there.sendall(struct.pack(">ihhi", 8 + len(secret), 36, 0, 1) + secret.encode())
    there.recv(1)
sys.exit("refused")
"""


def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    path = tmp_path / "topology"
    path.write_text(program)
    path.chmod(0o755)
    monkeypatch.setattr(attack_setup, "_TOPOLOGY_COMMAND", path)


def verdict(number: int, tmp_path: Path, bootstrap: dict[str, str] | None = None) -> AttackVerdict:
    [attack] = attacks.choose_attacks(str(number), attacks.ATTACKS)
    return attacks.try_attack(attack, AttackSetup(tmp_path / "evidence", bootstrap or {}))


def held(numbers: str, evidence: Path) -> list[str]:
    """The program's line of each attack."""
    command = [sys.executable, "-m", "watershed.lab.attack", "--attacks", numbers, "--dir", str(evidence)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == f"{len(lines)} held, 0 not held; evidence: {evidence}"
    return lines


def test_what_needs_no_brokers_holds(tmp_path: Path) -> None:
    [line] = held("4", tmp_path / "evidence")
    assert line.startswith("4  held ")


@pytest.mark.soak
def test_printed_commands_are_quoted(tmp_path: Path) -> None:
    first, second = held("4,2", tmp_path / "evidence")
    assert first.startswith("2  held ")
    assert second.startswith("4  held ")
    told = [each.read_text() for each in (tmp_path / "evidence/2").glob("*-acls.txt")]
    assert sum("'\"'\"'; touch canary; '\"'\"'" in each for each in told) >= 1  # quoted by the product


@pytest.mark.parametrize(
    ("number", "program", "seen"),
    [
        (2, UNQUOTED, "bash ended with"),
        (3, LEAKS, "the listener got the secret"),
        (4, LISTENS, "topology status ends with signal 6"),
    ],
)
def test_a_product_that_does_not_hold_is_found(
    number: int, program: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, tmp_path, program)
    found = verdict(number, tmp_path)
    assert found.word == "NOT HELD", found.line
    assert seen in found.line


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_product_that_does_nothing_holds_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, tmp_path, SILENT)
    found = verdict(number, tmp_path)
    assert found.word == "NOT RUN", found.line
    assert "Could not be carried out" in found.line


@pytest.mark.kafka
@pytest.mark.parametrize(("number", "word"), [(1, "NOT RUN"), (5, "NOT RUN"), (6, "NOT RUN"), (7, "NOT HELD")])
def test_a_product_that_copies_and_refuses_nothing_holds_nothing(
    number: int, word: str, kafka_pair: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, tmp_path, SILENT)
    monkeypatch.setattr(attack_setup, "_PATIENCE_S", 0.5)
    found = verdict(number, tmp_path, {alias: each.bootstrap for alias, each in kafka_pair.clusters.items()})
    assert found.word == word, found.line


def made(number: int, outcome: str) -> Attack:
    def run(_scene: AttackSetup) -> AttackFindings:
        require_carried_out(outcome != "set-up fails", "no way in")
        if outcome == "crashes":
            raise KeyError("flows")
        findings = AttackFindings("a knock")
        findings.expect(outcome == "held", "the door is shut", "the door is open")
        return findings

    return Attack(number, f"Threat {number}", run, needs_clusters=False)


@pytest.mark.parametrize(
    ("outcomes", "code", "counted"),
    [
        (["held", "held"], 0, "2 held, 0 not held"),
        (["held", "open"], 1, "1 held, 1 not held"),
        (["set-up fails", "held"], 2, "1 held, 0 not held, 1 could not be carried out"),
        (["crashes", "open", "held"], 1, "1 held, 1 not held, 1 could not be carried out"),
    ],
)
def test_exit_codes_and_counts(
    outcomes: list[str],
    code: int,
    counted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(attacks, "ATTACKS", tuple(made(at, each) for at, each in enumerate(outcomes, 1)))
    assert attacks.main(["--dir", str(tmp_path / "evidence")]) == code
    *lines, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"{counted}; evidence: ")
    words = {"held": "held", "open": "NOT HELD", "set-up fails": "NOT RUN", "crashes": "NOT RUN"}
    for line, outcome in zip(lines, outcomes, strict=True):
        assert f"  {words[outcome]}  " in line
    told = {"open": "Seen: the door is open", "set-up fails": "carried out: no way in", "crashes": "KeyError: 'flows'"}
    for outcome in set(outcomes) - {"held"}:
        assert told[outcome] in lines[outcomes.index(outcome)]


def test_clusters_that_do_not_start_are_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_folder: Path) -> None:
        raise AttackNotCarriedOut("no Java")

    monkeypatch.setattr(attacks, "run_attack_clusters", fails)
    [found] = attacks.run_attacks([forged_batch.FORGED_BATCH_ATTACK], tmp_path)
    assert found.word == "NOT RUN"
    assert "no Java" in found.line


def test_attacks_are_chosen_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.number for each in attacks.choose_attacks("", attacks.ATTACKS)] == NUMBERS == [1, 2, 3, 4, 5, 6, 7]
    assert attacks.choose_attacks("2", attacks.ATTACKS) == (pasted_commands.PASTED_COMMANDS_ATTACK,)
    assert attacks.main(["--attacks", "2,8"]) == 2
    assert "there is no attack 8; there are 1, 2, 3, 4, 5, 6, 7" in capsys.readouterr().err
