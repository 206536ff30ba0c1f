"""Programs that stop and start applications: only those of the host's settings, with bounded time, output and
environment."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
    ApplicationVerb,
)
from watershed.cutover.live.applications.command_application import CommandApplication

PROGRAM = """#!{python}
import json, os, sys, time
from pathlib import Path
here = Path(__file__).parent
verb, name, *rest = sys.argv[2:]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([sys.argv[1:], sorted(os.environ), os.environ.get("WATERSHED_KEY")]) + "\\n")
state = here / "state.json"
known = json.loads(state.read_text()) if state.exists() else {{"state": "running", "cluster": "onprem"}}
mood = (here / "mood").read_text() if (here / "mood").exists() else ""
if mood == "busy":
    print("try later", file=sys.stderr); sys.exit(75)
if mood == "no":
    print(json.dumps({{"error": "a change freeze"}})); sys.exit(1)
if mood == "slow":
    time.sleep(30)
if mood == "loud":
    while True:
        sys.stdout.write("x" * 65536)
if mood == "words":
    print("all fine"); sys.exit(0)
if verb == "stop":
    known["state"] = "stopped"
if verb == "start":
    known = {{"state": "running", "cluster": rest[0]}}
state.write_text(json.dumps(known))
print("a line for people")
print(json.dumps(known))
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    program = tmp_path / "switch"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o700)
    settings(tmp_path, f"programs:\n  switch: {{argv: [{program}, --quiet], environment: [MINE]}}\n")
    return tmp_path


def settings(host: Path, text: str) -> Path:
    path = host / "commands.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def application(
    host: Path, name: str = "payments", caller: Any = "terminal", seconds: float = 20
) -> CommandApplication:
    environ = {"WATERSHED_COMMANDS": str(host / "commands.yaml"), "PATH": "/usr/bin:/bin", "MINE": "1", "SECRET": "2"}
    return CommandApplication(name, "switch", seconds, caller, environ)


def order(verb: ApplicationVerb) -> ApplicationOrder:
    alias = "onprem" if verb == "stop" else "cloud"
    return ApplicationOrder(verb, "payments", "producer", "source", alias, ("b1:9092", "b2:9092"), "shop/r1/key")


def test_status_stop_and_start(host: Path) -> None:
    told = application(host)
    assert told.read() == ApplicationState("running", "onprem", "command")
    assert told.tell(order("stop")).state == "stopped"
    assert told.tell(order("start")) == ApplicationState("running", "cloud", "command")
    calls = [json.loads(line) for line in (host / "calls").read_text().splitlines()]
    assert [call[0] for call in calls] == [
        ["--quiet", "status", "payments"],
        ["--quiet", "stop", "payments", "onprem"],
        ["--quiet", "start", "payments", "cloud", "b1:9092,b2:9092"],
    ]
    assert calls[1][2] == "shop/r1/key"
    assert "MINE" in calls[0][1]
    assert "SECRET" not in calls[0][1]


@pytest.mark.parametrize(
    ("mood", "words", "transient"),
    [
        ("busy", "exit code 75: try later", True),
        ("no", "exit code 1: a change freeze", False),
        ("words", "no JSON object", False),
    ],
)
def test_what_a_program_says_no_with(host: Path, mood: str, words: str, transient: bool) -> None:
    (host / "mood").write_text(mood)
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        application(host).tell(order("stop"))
    assert failed.value.transient is transient


@pytest.mark.parametrize(("mood", "words"), [("slow", "did not end in 1.5 s"), ("loud", "printed more than 16 MiB")])
def test_a_program_that_does_not_end_is_killed(host: Path, mood: str, words: str) -> None:
    (host / "mood").write_text(mood)
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        application(host, seconds=1.5 if mood == "slow" else 60).tell(order("stop"))
    assert not failed.value.transient


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("programs: {}\n", "not one of those"),
        ("programs:\n  switch: {argv: [switch]}\n", "begins with an absolute path"),
        ("programs:\n  switch: {argv: [/bin/true], shell: true}\n", "nothing else"),
        ("programs:\n  switch: {argv: [/bin/true, 7]}\n", "a list of texts"),
        ("programs:\n  switch: {argv: [/nowhere/at/all]}\n", "no program that can be run"),
        ("programs: [\n", "is no YAML"),
        ("other: 1\n", "has to hold `programs:`"),
    ],
)
def test_only_what_the_host_allows_is_run(host: Path, text: str, words: str) -> None:
    settings(host, text)
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        application(host).read()
    assert not failed.value.transient
    assert not (host / "calls").exists()


def test_settings_that_others_could_have_written_count_for_nothing(host: Path) -> None:
    path = host / "commands.yaml"
    path.chmod(path.stat().st_mode | stat.S_IWOTH)
    with pytest.raises(ApplicationControlFailed, match="could have been written by others"):
        application(host).read()
    path.unlink()
    with pytest.raises(ApplicationControlFailed, match="cannot be read"):
        application(host).read()
    with pytest.raises(ApplicationControlFailed, match="no program may be run here"):
        CommandApplication("payments", "switch", 1, "terminal", {}).read()


def test_airflow_runs_only_what_its_operator_lets_it(host: Path) -> None:
    with pytest.raises(ApplicationControlFailed, match="from a terminal only: run `topology migrate` there"):
        application(host, caller="airflow").read()
    settings(host, f"programs:\n  switch: {{argv: [{host / 'switch'}, --quiet], airflow: true}}\n")
    assert application(host, caller="airflow").read().state == "running"


def test_a_name_that_is_an_option_is_not_passed(host: Path) -> None:
    with pytest.raises(ApplicationControlFailed, match="for an option"):
        application(host, name="-rf").read()
