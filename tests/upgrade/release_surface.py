"""What a version shows to other versions, as JSON: `python release_surface.py {records | dags TOPOLOGIES}`.

It runs with the code that PYTHONPATH names, so that it uses only what v0.1.0 has, too.

records: the kinds of control records with their fields, the keys that are no flows, the fields of a journal entry, the
orders of steps, the schemas of files. dags: DAG → task → the operator's class; triggers with their arguments, which
Airflow's database keeps while a task waits.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any


def describe_records() -> dict[str, Any]:
    from watershed import clusters, cutover, replicator
    from watershed.clusters.control_record_codec import ControlRecordBody, _form_fields
    from watershed.clusters.flow_records import NON_FLOW_PREFIXES
    from watershed.cutover.journal.hash_chain import JournalEntry
    from watershed.replicator.ledger.transaction_positions import TRANSACTION_RECORD_KINDS

    for room in (clusters, replicator, cutover):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    kinds = {
        kind.__name__: {
            "topic": kind.FORMAT.topic,
            "version": kind.FORMAT.version,
            "writes_version": kind.FORMAT.writes_version,
            "fields": {each.name: each.required for each in _form_fields(kind)},
        }
        for kind in ControlRecordBody.__subclasses__()
        if "FORMAT" in vars(kind) and "__slots__" in vars(kind)
    }
    return {
        "control_records": kinds,
        "keys_that_are_no_flows": sorted(NON_FLOW_PREFIXES),
        "ledger_kinds": sorted(TRANSACTION_RECORD_KINDS),
        "journal_entry": [each.name for each in fields(JournalEntry)],
        "step_orders": describe_step_orders(),
        "file_schemas": describe_file_schemas(),
    }


def describe_step_orders() -> dict[str, list[str]]:
    """All steps that each kind of run can have, in their order."""
    from watershed.cutover.failover import failover_plan
    from watershed.cutover.migration_step_order import STRATEGY_STEPS
    from watershed.cutover.policy import WavePolicy
    from watershed.cutover.rollback.rollback_step_order import list_late_rollback_steps, list_rollback_steps
    from watershed.cutover.step_definitions import STEPS
    from watershed.topology.migration_waves import WaveHooks

    policy = WavePolicy(hooks=WaveHooks(("a",), ("b",), ("c",), ("d",)), reverse="back")
    return {
        **{f"migrate, {name}": list(steps) for name, steps in STRATEGY_STEPS.items()},
        "rollback": [each.name for each in list_rollback_steps(policy, "cloud", "onprem")],
        "rollback, late": [each.name for each in list_late_rollback_steps(policy, "cloud", "onprem")],
        "failover": list(failover_plan._ORDER),
        "with an undo": sorted(name for name, step in STEPS.items() if step.undo is not None),
    }


def describe_file_schemas() -> dict[str, Any]:
    from watershed.spark.archive.manifest import MANIFEST_SCHEMA
    from watershed.spark.archive.object_format import OBJECT_FORMAT
    from watershed.spark.archive.offset_mapping import MAP_SCHEMA
    from watershed.spark.judging.earlier_proof import _SCHEMAS
    from watershed.topology.client_inventory_json import CLIENTS_SCHEMA_VERSION
    from watershed.topology.inventory_json import INVENTORY_SCHEMA_VERSION
    from watershed.topology.plan import _SCHEMA
    from watershed.topology.usage.usage_json import USAGE_SCHEMA

    return {
        "plan": _SCHEMA,
        "inventory, capability record": INVENTORY_SCHEMA_VERSION,
        "clients": CLIENTS_SCHEMA_VERSION,
        "usage": USAGE_SCHEMA,
        "archive manifest": MANIFEST_SCHEMA,
        "archive object": OBJECT_FORMAT,
        "map of a restore": MAP_SCHEMA,
        "proof summary, newest": max(_SCHEMAS),
    }


def compile_plans(examples: Path) -> dict[str, dict[str, str]]:
    """Example → the file's digest and the hash of its plan; those that compile alone."""
    import hashlib

    from watershed.topology import compile_path

    return {
        path.name: {"file": hashlib.sha256(path.read_bytes()).hexdigest(), "plan": compile_path(path).hash}
        for path in sorted(examples.glob("*.yaml"))
    }


def describe_dags(topologies: Path) -> dict[str, Any]:
    """Needs AIRFLOW_HOME and WATERSHED_STATE of its own."""
    import os

    os.environ["WATERSHED_TOPOLOGIES"] = str(topologies)
    from airflow.dag_processing.dagbag import DagBag
    from airflow.triggers.base import BaseTrigger

    from watershed import IMPORT_ROOT, plugins

    bag = DagBag(dag_folder=str(IMPORT_ROOT / "dags"))
    assert not bag.import_errors, bag.import_errors
    for module in pkgutil.walk_packages(plugins.__path__, f"{plugins.__name__}."):
        importlib.import_module(module.name)
    return {
        "tasks": {
            name: {task.task_id: f"{type(task).__module__}.{type(task).__name__}" for task in dag.tasks}
            for name, dag in sorted(bag.dags.items())
        },
        "triggers": {
            f"{kind.__module__}.{kind.__name__}": list(inspect.signature(kind).parameters)
            for kind in BaseTrigger.__subclasses__()
            if kind.__module__.startswith("watershed.")
        },
    }


if __name__ == "__main__":
    what, *paths = sys.argv[1:]
    describe = {"records": describe_records, "dags": describe_dags, "plans": compile_plans}[what]
    print(json.dumps(describe(*map(Path, paths)), indent=1))
