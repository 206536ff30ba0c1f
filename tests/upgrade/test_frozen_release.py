"""What v0.1.0 wrote and reads, frozen in v0_1_0/: this version reads all of it, and writes only what v0.1.0 takes.

A test that fails here names a place where running fleets, journals or Airflow databases of v0.1.0 would break. What may
change, in which release, is in docs/decisions/0135; what was changed on purpose stands in the tables of this file, each
with the reason why it is safe.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.control_record_cases import RECORDS
from tests.clusters.test_control_record_versions import SAMPLES
from tests.upgrade import release_surface
from watershed import IMPORT_ROOT
from watershed.clusters.control_record_codec import ControlRecordBody
from watershed.clusters.synced_access_records import SyncedAcl, SyncedRight
from watershed.lab.previous_version import InstalledRelease
from watershed.plugins.steps.step_driver import StepOrder
from watershed.topology import compile_path
from watershed.topology.inventory import InventoryAcl

FROZEN = Path(__file__).with_name("v0_1_0")
EXAMPLES = IMPORT_ROOT / "topology" / "examples"
TOPOLOGIES = FROZEN / "topologies"  # of which the DAGs are frozen

# Fields of control records that v0.1.0 does not know: it passes them over, and loses them where it writes the record
# again. Kind → field → why that is safe.
_OWN_HEARTBEAT = "a worker writes its own heartbeat, and nobody writes it again; v0.1.0 shows less of it"
ADDED_FIELDS: dict[str, dict[str, str]] = {
    "FlowRecord": {
        "answered_breaches": "the breach's own record says that it was answered, too, so the flow does not stand still "
        "again; v0.1.0 writes no record again whose flow has a budget that acts, because it cannot read the flow"
    },
    "WorkerHeartbeat": dict.fromkeys(
        ("topology", "version", "began_ms", "totals", "throttled_s", "tells_all", "transforms"), _OWN_HEARTBEAT
    ),
}
# Kinds of control records that v0.1.0 does not know, with why it may pass them over.
ADDED_KINDS: dict[str, str] = {
    "BudgetBreach": "v0.1.0 names its key in the log once and passes it over. `breach` in the flow's record is unknown "
    "to it, so it goes on by the record that it read before, and copies although the budget stopped the flow. So all "
    "workers are upgraded before `topology apply` (docs/upgrade.md)",
    "SyncedRight": "v0.1.0 passes its key over, so it prunes no such right; in the form that it knows, it would write "
    "each right again at every change",
}
# DAG → tasks that were added, and triggers with arguments that were added behind a default. A run of v0.1.0 has none.
ADDED_TASKS: dict[str, set[str]] = {}


def read_frozen(name: str) -> Any:
    return json.loads((FROZEN / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def surface() -> Any:
    return json.loads(json.dumps(release_surface.describe_records()))


def test_every_sample_of_the_release_is_still_read() -> None:
    """`test_what_any_version_wrote_is_read` reads all samples; none of those of v0.1.0 may be missing or changed."""
    now = {hashlib.sha256(f"{key}\t{value.decode()}".encode()).hexdigest() for key, value in SAMPLES.values()}
    lines = (FROZEN / "control_records.sha256").read_text(encoding="utf-8").splitlines()
    frozen = dict(line.split("  ", 1) for line in lines)
    assert len(frozen) == 62
    assert not {name for digest, name in frozen.items() if digest not in now}, "samples are never changed, only added"


@pytest.mark.parametrize("kind", sorted(read_frozen("records")["control_records"]))
def test_a_kind_keeps_what_the_release_knows_of_it(surface: Any, kind: str) -> None:
    before, now = read_frozen("records")["control_records"][kind], surface["control_records"][kind]
    assert now["topic"] == before["topic"]
    assert now["version"] == before["version"], "v0.1.0 refuses it: the newer must not write it until told (0135)"
    assert now["writes_version"] == before["writes_version"]
    required = {name for name, needed in before["fields"].items() if needed}
    assert required <= set(now["fields"]), "v0.1.0 cannot read a record without these"
    optional = set(before["fields"]) - required
    assert optional <= set(now["fields"]), "what v0.1.0 wrote in these would be passed over"
    added = set(now["fields"]) - set(before["fields"])
    assert added <= set(ADDED_FIELDS.get(kind, {})), "say in ADDED_FIELDS why v0.1.0 may pass it over"
    assert not {name for name in added if now["fields"][name]}, "v0.1.0 does not write it, so it may be missing"


def test_new_kinds_are_stated(surface: Any) -> None:
    before = read_frozen("records")
    assert set(surface["control_records"]) - set(before["control_records"]) <= set(ADDED_KINDS)
    assert surface["ledger_kinds"] == before["ledger_kinds"], "v0.1.0 halts the partitions of a slot with another kind"
    assert set(before["keys_that_are_no_flows"]) <= set(surface["keys_that_are_no_flows"])


def test_entries_of_the_journal_have_the_same_fields(surface: Any) -> None:
    """v0.1.0 takes an entry with another field for none of ours, and would give the lock of the run to another one."""
    assert surface["journal_entry"] == read_frozen("records")["journal_entry"]


@pytest.mark.parametrize("order", sorted(read_frozen("records")["step_orders"]))
def test_steps_have_their_names_and_order(surface: Any, order: str) -> None:
    """A run of v0.1.0 that goes on here takes each step by its name in the journal, and leaves none out."""
    assert surface["step_orders"][order] == read_frozen("records")["step_orders"][order]


def test_files_have_the_same_schemas(surface: Any) -> None:
    assert surface["file_schemas"] == read_frozen("records")["file_schemas"]


def test_the_same_file_compiles_to_the_same_plan() -> None:
    """A run keeps the hash of its plan: another one ends it with PlanChanged."""
    frozen = read_frozen("plans")
    same = [
        name
        for name, each in frozen.items()
        if (EXAMPLES / name).exists() and hashlib.sha256((EXAMPLES / name).read_bytes()).hexdigest() == each["file"]
    ]
    assert len(same) >= 5, "examples were changed: freeze copies of those of v0.1.0 here"
    assert {name: compile_path(EXAMPLES / name).hash for name in same} == {name: frozen[name]["plan"] for name in same}


@pytest.mark.airflow
@pytest.mark.soak
def test_a_dag_run_finds_its_tasks_and_triggers(tmp_path: Path) -> None:
    """Airflow ends a run whose tasks vanish, and calls a waiting task's trigger by its class and arguments."""
    program = [sys.executable, "-P", release_surface.__file__, "dags", str(TOPOLOGIES)]
    environ = dict(os.environ) | {
        "AIRFLOW_HOME": str(tmp_path), "WATERSHED_STATE": str(tmp_path / "state"), "PYTHONPATH": str(IMPORT_ROOT),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }  # fmt: skip
    told = subprocess.run(program, env=environ, capture_output=True, text=True, check=True).stdout
    now, before = json.loads(told[told.index('{\n "tasks"') :]), read_frozen("dags")
    for dag, tasks in before["tasks"].items():
        assert tasks.items() <= now["tasks"].get(dag, {}).items(), dag
        assert now["tasks"][dag].keys() - tasks.keys() <= ADDED_TASKS.get(dag, set()), dag
    for name, arguments in before["triggers"].items():
        assert now["triggers"][name][: len(arguments)] == arguments, name


def test_the_release_reads_what_is_written_now(previous: InstalledRelease) -> None:
    """Every record of this version, by the code of v0.1.0."""
    program = Path(__file__).with_name("records_by_release.py")
    written = {name: (record.key, record.to_json()) for name, record in RECORDS.items() if is_written_now(name, record)}
    told = subprocess.run(
        [str(previous.python), "-P", str(program)], env=previous.build_environ(os.environ), input=json.dumps(written),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    answers: dict[str, str] = json.loads(told)
    assert answers == dict.fromkeys(written, "")
    assert len(answers) > 20


def is_written_now(name: str, record: Any) -> bool:
    return isinstance(record, ControlRecordBody) and name.partition(":")[2].startswith("now")


@pytest.mark.soak
def test_what_is_frozen_is_what_the_release_says(previous: InstalledRelease) -> None:
    """Nobody may mend these files in place of the code."""
    for what, *paths in (("records",), ("plans", str(previous.root / "topology" / "examples"))):
        command = [str(previous.python), "-P", release_surface.__file__, what, *paths]
        told = subprocess.run(
            command, env=previous.build_environ(os.environ), capture_output=True, text=True, check=True
        )
        assert json.loads(told.stdout) == read_frozen(what)


def test_what_a_waiting_task_has_stored_is_read_both_ways() -> None:
    """The arguments of the trigger `StepFinished`, as v0.1.0 leaves them in Airflow's database."""
    stored = {
        "plan": "sha256:0", "wave": "orders", "steps": ["lag_gate", "history_proof"], "dag": "migrate__shop",
        "run": "manual__1", "kind": "migrate", "strategy": "", "user": "ann",
        "choices": {"accept_loss": None, "though_source_answers": False, "stranded": None, "waves": []},
    }  # fmt: skip
    order = StepOrder.of_json(stored)
    assert (order.steps, order.dag, order.user) == (("lag_gate", "history_proof"), "migrate__shop", "ann")
    written = order.to_json()
    assert {name: written[name] for name in stored} == stored
    assert written["choices"].keys() == stored["choices"].keys(), "v0.1.0 refuses another choice"  # type: ignore[attr-defined]


def test_the_release_leaves_rights_in_records_of_their_own_alone(previous: InstalledRelease) -> None:
    """It would copy each into its own record again whenever it gives another, and keep those that are struck out."""
    rights = [InventoryAcl(f"User:{who}", "READ", "ALLOW", "TOPIC", "orders", "LITERAL") for who in "abcdef"]
    ours = {each.key: each.to_json() for each in (SyncedRight("f", SyncedAcl(acl, (acl,), 1)) for acl in rights[:3])}
    asked = {"stored": ours, "given": [asdict(each) for each in rights[3:]]}
    told = subprocess.run(
        [str(previous.python), "-P", str(Path(__file__).with_name("rights_by_release.py"))],
        env=previous.build_environ(os.environ), input=json.dumps(asked), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    stored = json.loads(told)
    shared = stored.pop("synced_acls|f|TOPIC|orders")
    assert stored == ours
    assert [each["acl"]["principal"] for each in shared["acls"]] == ["User:d", "User:e", "User:f"]
