"""The pre-commit hook and the GitHub Action, each really run from this checkout against a small repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import pytest
import yaml

from watershed.lab.clusters import Lab

ROOT = Path(__file__).resolve().parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GOOD, BAD = (
    ROOT / "topology" / "examples" / "active_standby.yaml",
    ROOT / "topology" / "examples" / "broken" / "loop.yaml",
)
LIVE = """
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: planned, owner: tests}}
clusters:
  onprem: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - {{source: onprem, target: cloud, topics: {{include: [planned]}}}}
"""


class Step(TypedDict):
    name: str
    code: int
    text: str


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "topologies").mkdir(parents=True)
    shutil.copy(GOOD, folder / "topologies" / "good.yaml")
    (folder / "other.yaml").write_text("no: topology\n")
    return folder


def run_action(repository: Path, inputs: Mapping[str, str], runner: Path) -> list[Step]:
    """As a runner: each step with its condition, its variables and its shell, until one fails.

    The action is a clone, as a runner has it: setuptools leaves folders where it builds, and they would make the
    plugins of this checkout known to Airflow twice.
    """
    source = runner / "source"
    if not source.exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    known = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()} | inputs
    values = {f"inputs.{name}": value for name, value in known.items()} | {"github.action_path": str(source)}
    variables = {"RUNNER_TEMP": str(runner), "GITHUB_STEP_SUMMARY": str(runner / "summary.md")}
    done: list[Step] = []
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"], "a script gets its values as variables"
        if not is_wanted(step, values):
            continue
        own = {
            name: re.sub(r"\$\{\{ (.+?) \}\}", lambda found: values[found[1]], text)
            for name, text in step["env"].items()
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # a runner's `shell: bash`
        ended = subprocess.run(
            command,
            cwd=repository,
            env=os.environ | variables | own,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        done.append({"name": step["name"], "code": ended.returncode, "text": ended.stdout + ended.stderr})
        if ended.returncode:
            break
    return done


def is_wanted(step: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    if "if" not in step:
        return True
    condition = re.fullmatch(r"\$\{\{ (\S+) == '(\w+)' \}\}", step["if"])
    assert condition is not None
    return values[condition[1]] == condition[2]


def test_the_hook_is_one_that_pre_commit_takes() -> None:
    from pre_commit.clientlib import load_manifest

    [hook] = load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    for name, matches in (("topologies/a.yaml", True), ("x/topologies/a.yml", True), ("a.yaml", False)):
        assert (re.search(hook["files"], name) is not None) == matches


def test_an_action_names_what_it_takes() -> None:
    used = {name for step in ACTION["runs"]["steps"] for name in re.findall(r"inputs\.(\w+)", str(step))}
    assert used == set(ACTION["inputs"])
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
        shellcheck = [str(Path(sys.executable).with_name("shellcheck")), "--shell=bash", "-"]
        told = subprocess.run(shellcheck, input=step["run"], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stdout


@pytest.mark.soak
@pytest.mark.slow
def test_a_commit_with_a_loop_is_refused(repository: Path, tmp_path: Path) -> None:
    """The hook in an environment of its own, which pre-commit makes of the last commit of this checkout."""
    home = {"PRE_COMMIT_HOME": str(tmp_path / "cache"), "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
    (tmp_path / "gitconfig").write_text("[user]\nname = t\nemail = t@example.org\n[safe]\ndirectory = *\n")
    environment = os.environ | home

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=repository, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    hook = {"repo": str(ROOT), "rev": head.stdout.strip(), "hooks": [{"id": "topology-lint"}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [hook]}))
    program = str(Path(sys.executable).with_name("pre-commit"))
    for command in (["git", "init", "-q"], [program, "install"], ["git", "add", "."]):
        assert run(*command).returncode == 0
    first = run("git", "commit", "-qm", "good")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "topology lint" in first.stderr + first.stdout
    shutil.copy(BAD, repository / "topologies" / "loop.yaml")
    run("git", "add", ".")
    second = run("git", "commit", "-qm", "bad")
    assert second.returncode == 1
    assert "GRF201" in second.stdout + second.stderr


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.kafka
def test_the_action_lints_and_plans(repository: Path, tmp_path: Path, kafka_pair: Lab) -> None:
    runner = tmp_path / "runner"
    installed, linted = run_action(repository, {"files": "topologies/*.yaml"}, runner)
    assert (installed["code"], linted["code"]) == (0, 0), installed["text"] + linted["text"]
    assert installed["text"].startswith("topology ")

    shutil.copy(BAD, repository / "topologies" / "loop.yaml")
    *_, linted = run_action(repository, {"files": "topologies/*.yaml"}, runner)
    assert (linted["name"], linted["code"]) == ("Lint", 1)
    assert re.search(r"^::error file=topologies/loop\.yaml,line=16,.*title=GRF201", linted["text"], re.MULTILINE)

    here, there = (kafka_pair.cluster(name).bootstrap for name in ("onprem", "cloud"))
    (repository / "topologies" / "live.yaml").write_text(LIVE.format(onprem=here, cloud=there))
    steps = run_action(repository, {"files": "topologies/good.yaml\ntopologies/live.yaml", "plan": "maybe"}, runner)
    assert [(step["name"], step["code"]) for step in steps] == [("Install", 2)]
    steps = run_action(repository, {"files": "topologies/live.yaml", "plan": "true"}, runner)
    assert [step["name"] for step in steps] == ["Install", "Lint", "Plan"], steps
    assert steps[-1]["code"] == 0, steps[-1]["text"]
    summary = (runner / "summary.md").read_text()
    assert summary.startswith("### topology plan topologies/live.yaml\n```\n")
    assert "planned" in summary
