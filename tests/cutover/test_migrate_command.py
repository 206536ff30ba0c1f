"""`topology migrate --dry-run` and the messages of a command line that cannot run; nothing here needs a broker."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import World
from watershed.cli.main import main
from watershed.cli.migrate import _build_run_plan
from watershed.cutover.journal.hash_chain import RUN_STEP, Journal, JournalChain
from watershed.cutover.overdue_runs import LIMIT_KEY
from watershed.cutover.run_claim import encode_run_work
from watershed.cutover.run_plan import plan_migration
from watershed.cutover.step_runner import RunResult
from watershed.cutover.wave_states import refuse_early_wave
from watershed.topology import compile_path
from watershed.topology.plan import Plan

SHOP = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop, owner: team-shop}
clusters:
  onprem: {bootstrap: ["127.0.0.1:9"], security: {protocol: PLAINTEXT}}
  cloud: {bootstrap: ["127.0.0.1:10"], security: {protocol: PLAINTEXT}}
pattern:
  active_standby: {active: onprem, standby: cloud, topics: {include: [orders]}, naming: {policy: identity}}
migration:
  flow: onprem-to-cloud
  strategy: STRATEGY
  applications:
    billing: {http: "http://127.0.0.1:9"}
  waves:
    - name: all
      topics: [orders]
      consumers: [billing]
      producers: [checkout]
      gates:
        before: [{lag: {max_records: 10, hold: 5s}}]
        after: [{stragglers: {watch: 7s}}]
      rollback: {none: "nothing behind the point of no return"}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP.replace("STRATEGY", "consumers_first"))
    return path


def test_dry_run_prints_every_step_with_its_undo_and_the_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(shop), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert text.count("undo: ") == 21
    assert text.index("tail_proof") < text.index("POINT OF NO RETURN") < text.index("switch_producers")
    assert "stand still for 7 s" in text
    assert "billing (told at http://127.0.0.1:9)" in text
    assert "checkout (a person confirms)" in text


def test_dry_run_as_json(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(shop), "--dry-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [step["name"] for step in document["steps"] if step["point_of_no_return"]] == ["point_of_no_return"]


def test_dry_run_of_several_waves_shows_each_with_its_own_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wave = SHOP[SHOP.index("    - name: all") :]
    second = wave.replace("orders", "clicks").replace("billing", "audit").replace("checkout", "tracker")
    second = second.replace("- name: all", "- name: late\n      after: [all]\n      strategy: fenced")
    text = SHOP.replace("[orders]}, naming", "[orders, clicks]}, naming").replace("STRATEGY", "consumers_first")
    shop.write_text(text + second)
    assert main(["migrate", str(shop), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.count("POINT OF NO RETURN") == 2
    assert told.count("no writes  about") == 2
    assert "strategy   fenced, after all" in told
    assert main(["migrate", str(shop), "--dry-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(wave["wave"], wave["strategy"]) for wave in document["waves"]] == [
        ("all", "consumers_first"),
        ("late", "fenced"),
    ]
    for each in document["waves"]:
        assert each["without_writes_ms"] > 0
        assert all({"undo", "bound_ms", "usual_ms", "point_of_no_return"} <= step.keys() for step in each["steps"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--all-waves", "--wave", "all"], "each wave is a run"),
        (["--all-waves", "--abandon"], "each wave is a run"),
        (["--wave", "other"], "there is no wave other"),
        ([], "--approve auto"),
        (["--approve", "auto", "--run", "../x"], "letters, digits"),
        (["--force"], "--force goes with --abandon"),
        (["--abandon", "--resume"], "--abandon goes without"),
        (["--approve", "auto", "--step", "fly"], "there is no step fly"),
    ],
)
def test_wrong_use_is_one_message_and_two(
    shop: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["migrate", str(shop), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_level_that_is_not_proven_is_refused_before_anything_is_begun(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write_text(shop.read_text().replace("after: [", "after: [{verify: {level: L0}}, "))
    for arguments in (["--dry-run"], ["--approve", "auto"]):
        assert main(["migrate", str(shop), *arguments]) == 2
        assert "gates.after: verify asks for level L0" in (said := capsys.readouterr().err)
        assert "use L1, L2 or L3" in said


def test_another_strategy_has_its_own_order(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text(SHOP.replace("STRATEGY", "fenced"))
    assert main(["migrate", str(shop), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.index("fence_producers") < told.index("stop_consumers") < told.index("barrier")
    assert main(["migrate", str(shop), "--dry-run", "--strategy", "producers_first"]) == 0
    asked = capsys.readouterr().out
    assert "strategy   producers_first (the file says fenced)" in asked
    assert asked.index("barrier") < asked.index("drain_consumers") < asked.index("stop_consumers")
    assert main(["migrate", str(shop), "--dry-run", "--strategy", "producers_first", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["waves"][0]["strategy"] == "producers_first"


def test_a_run_that_goes_on_keeps_its_strategy_unless_another_one_is_asked_for(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is refused then: by the journal, not here."""
    plan, log = compile_path(shop), FakeLog()
    journal = Journal(log, plan.topology, "airflow")
    journal.append(
        "r1", RUN_STEP, "intent", {"kind": "migrate", "strategy": "fenced"}, actor="ann", plan_hash="", wave="all"
    )
    monkeypatch.setattr("watershed.cli.migrate.read_migration_journal", lambda *_: journal.refresh())
    target: Any = object()
    chosen = [_build_run_plan(plan, "all", at, asked) for at in (None, target) for asked in (None, "producers_first")]
    assert [course.policy.strategy for course in chosen] == [
        "consumers_first",
        "producers_first",
        "fenced",
        "producers_first",
    ]
    assert [step.name for step in chosen[2].steps].index("fence_producers") < 8


@pytest.fixture
def waves(shop: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[tuple[str, bool]], list[str]]:
    """A file with the waves a, b, c; what was run (wave, resumed); how the next runs end (`done` without a word)."""
    text = SHOP.replace("STRATEGY", "consumers_first").replace("include: [orders]", "include: [a, b, c]")
    wave = text[text.index("    - name: all") :]
    more = ""
    for name, before in (("a", ""), ("b", "a"), ("c", "b")):
        one = wave.replace("[orders]", f"[{name}]").replace("billing", f"reads-{name}")
        after = f"\n      after: [{before}]" if before else ""
        more += one.replace("checkout", f"writes-{name}").replace("- name: all", f"- name: {name}{after}")
    shop.write_text(text[: text.index("    - name: all")] + more)
    log, ran, ends = FakeLog(), [], []

    def journaled(plan: Plan, _target: object) -> JournalChain:
        chain = JournalChain(plan.topology)
        chain.follow(log.read(0))
        return chain

    def run(plan: Plan, *arguments: Any, resume: bool) -> RunResult:
        wave = arguments[-1]
        refuse_early_wave(plan, wave, journaled(plan, None))
        ran.append((wave, resume))
        state: Any = ends.pop(0) if ends else "done"
        journal = Journal(log, plan.topology, "first")
        journal.refresh()
        who: Any = {"actor": "ann", "plan_hash": plan.hash, "wave": wave}
        if not journal.chain.unfinished():
            name = f"run {len({entry.run for entry in journal.chain.entries}) + 1}"
            journal.append(name, RUN_STEP, "intent", {"kind": "migrate"}, **who)
        name = journal.chain.unfinished()[0].run
        result = RunResult(state, "drain" if state == "stopped" else "seal")
        if result.finished:
            journal.append(name, RUN_STEP, "outcome", asdict(result), **who)
        else:
            journal.append(name, result.step, "intent", {"undo": False}, **who)
        return result

    monkeypatch.setattr("watershed.cli.migrate.read_migration_journal", journaled)
    monkeypatch.setattr("watershed.cli.migrate._run", run)
    return shop, ran, ends


Waves = tuple[Path, list[tuple[str, bool]], list[str]]


def test_without_a_name_the_next_wave_is_run_and_named(waves: Waves, capsys: pytest.CaptureFixture[str]) -> None:
    path, ran, _ = waves
    for name in "abc":
        assert main(["migrate", str(path), "--approve", "auto"]) == 0
        assert f"wave {name} of a, b, c" in capsys.readouterr().out
    assert ran == [("a", False), ("b", False), ("c", False)]
    assert main(["migrate", str(path), "--approve", "auto"]) == 0  # typed once more
    assert "every wave of shop is done: a, b, c; nothing is left to do" in capsys.readouterr().out
    assert len(ran) == 3


def test_a_wave_that_is_done_is_said_and_no_error(waves: Waves, capsys: pytest.CaptureFixture[str]) -> None:
    path, ran, _ = waves
    for expected in ("", "wave a of shop is done already (run run 1)"):
        assert main(["migrate", str(path), "--approve", "auto", "--wave", "a"]) == 0
        assert expected in capsys.readouterr().out
    assert ran == [("a", False)]


def test_a_wave_out_of_turn_is_an_error_with_the_waves_before_it(
    waves: Waves, capsys: pytest.CaptureFixture[str]
) -> None:
    path, ran, _ = waves
    assert main(["migrate", str(path), "--approve", "auto", "--wave", "c"]) == 1
    assert "wave c of shop comes after b, which is not done" in capsys.readouterr().err
    assert ran == []


def test_all_waves_run_until_one_stops(waves: Waves, capsys: pytest.CaptureFixture[str]) -> None:
    path, ran, ends = waves
    ends[:] = ["done", "stopped"]
    assert main(["migrate", str(path), "--approve", "auto", "--all-waves"]) == 1
    assert ran == [("a", False), ("b", False)]
    assert main(["migrate", str(path), "--status"]) == 0
    told = capsys.readouterr().out
    assert [line.split()[1] for line in told.splitlines() if line.startswith(("a ", "b ", "c "))] == [
        "done",
        "unfinished",
        "blocked",
    ]
    assert "migrate run 2 is at step drain" in told
    assert "comes after b" in told
    ran.clear()
    assert main(["migrate", str(path), "--approve", "auto", "--all-waves", "--resume"]) == 0
    assert ran == [("b", True), ("c", False)]
    assert main(["migrate", str(path), "--status", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out.partition("nothing is left to do\n")[2])
    assert [(wave["name"], wave["state"], wave["truth"]) for wave in document["waves"]] == [
        (name, "done", "cloud") for name in "abc"
    ]


def test_only_the_named_run_is_given_up(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--abandon --run other` while r1 is unfinished: r1 stays, and is named."""
    plan, world, log = compile_path(shop), World(), FakeLog()
    journal = Journal(log, plan.topology, "first")
    begun = {"kind": "migrate", "strategy": "consumers_first", "work": encode_run_work(plan_migration(plan))}
    journal.append("r1", RUN_STEP, "intent", begun, actor="ann", plan_hash=plan.hash, wave="all")
    journal.append("r1", "preflight", "intent", {"undo": False}, actor="ann", plan_hash=plan.hash, wave="all")
    monkeypatch.setattr("watershed.cutover.run_opening.open_journal", lambda *_: Journal(log, plan.topology, "second"))
    monkeypatch.setattr("watershed.cutover.run_opening.LiveActionHandler", lambda *_: world)
    monkeypatch.setattr("watershed.cli.migrate.read_migration_journal", lambda *_: journal.refresh())
    assert main(["migrate", str(shop), "--approve", "auto", "--abandon", "--run", "other"]) == 1
    assert "r1" in capsys.readouterr().err
    assert journal.refresh().unfinished()[0].run == "r1"
    assert (
        main(["migrate", str(shop), "--approve", "auto", "--abandon", "--run", "r1", "--evidence", str(shop.parent)])
        == 0
    )
    assert not journal.refresh().unfinished()


def test_a_run_tells_its_wave_as_json(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = FakeLog()
    topology = compile_path(shop).topology
    monkeypatch.setattr("watershed.cutover.run_opening.open_journal", lambda *_: Journal(log, topology, "first"))
    monkeypatch.setattr("watershed.cutover.run_opening.LiveActionHandler", lambda *_: World())
    monkeypatch.setattr("watershed.cli.migrate.read_migration_journal", lambda *_: JournalChain("shop"))
    told = ["--approve", "auto", "--run", "r1", "--step", "preflight", "--evidence", str(shop.parent)]
    assert main(["migrate", str(shop), *told, "--format", "json"]) == 1  # the small world has other topics
    document = json.loads(capsys.readouterr().out)
    assert list(document)[:4] == ["schema", "run", "wave", "evidence"]
    assert (document["run"], document["wave"], document["step"]) == ("r1", "all", "preflight")
    assert {record["run"] for record in log.records} == {"r1"}


def test_the_status_says_that_the_process_of_a_run_is_dead(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, who = compile_path(shop), {"actor": "ann", "wave": "all"}
    journal = Journal(FakeLog(), plan.topology, "first")
    monkeypatch.setattr(journal, "now_ms", lambda: 1_000)
    journal.append("r1", RUN_STEP, "intent", {"kind": "migrate"}, plan_hash=plan.hash, **who)
    journal.append("r1", "preflight", "intent", {"undo": False, LIMIT_KEY: 60_000}, plan_hash=plan.hash, **who)
    monkeypatch.setattr("watershed.cli.migrate.read_migration_journal", lambda *_: journal.refresh())
    assert main(["migrate", str(shop), "--status"]) == 0
    told = capsys.readouterr().out
    assert "migrate r1 is at step preflight, and has written nothing since " in told
    assert "go on with `topology migrate FILE --resume`" in told
