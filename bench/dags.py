"""How long Airflow takes to parse the DAGs of 50 topologies with a migration of two waves each.

Measured as Airflow's DAG processor does it: a process in which Airflow is imported forks, the child runs one file of
`dags/` from nothing (our own modules, the plans, the DAGs), and ends. Airflow's own imports do not count, ours do. The
plans were compiled by an earlier parse: `first_s` has that in it. `serialized_s` is what Airflow itself does with the
DAGs then. Medians of ROUNDS, in CPU seconds, since nothing waits here.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from watershed.bench.results import BenchGoal, choose_size, publish_results

_ROOT = Path(__file__).resolve().parent.parent
_TOPOLOGIES = int(os.environ.get("BENCH_TOPOLOGIES", choose_size("50", "1")))
_ROUNDS = choose_size(5, 0)  # after the first
_EXAMPLE = _ROOT / "topology" / "examples" / "migration.yaml"


def main() -> int:
    """Parses every DAG file in a child process, several times. Returns the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        _prepare(Path(directory))
        rows: list[dict[str, Any]] = []
        for file in sorted((_ROOT / "dags").glob("[a-z]*.py")):
            first, *again = [_parsed(file, serialize=round_ == 0) for round_ in range(_ROUNDS + 1)]
            median = statistics.median(each["seconds"] for each in again or [first])
            rows.append(
                {
                    "file": file.name,
                    "dags": first["dags"],
                    "tasks": first["tasks"],
                    "parse_s": round(median, 3),
                    "first_s": round(first["seconds"], 3),
                    "serialized_s": round(first["serialized"], 3),
                }
            )
    every = round(sum(row["parse_s"] for row in rows), 3)
    slowest = max(row["parse_s"] for row in rows)
    goals = [
        BenchGoal(f"the slowest file for {_TOPOLOGIES} topologies, seconds", slowest, 1.0, "lower"),
        BenchGoal(f"all files for {_TOPOLOGIES} topologies, seconds", every, 3.5, "lower"),
    ]
    return publish_results("dags", rows, goals)


def _prepare(directory: Path) -> None:
    """A folder of topologies, and an Airflow that is imported but not used."""
    folder = directory / "topologies"
    folder.mkdir()
    text = _EXAMPLE.read_text(encoding="utf-8")
    for number in range(_TOPOLOGIES):
        name = f"shop-{number:04}"
        (folder / f"{name}.yaml").write_text(text.replace("name: shop-to-cloud", f"name: {name}"))
    os.environ |= {
        "AIRFLOW_HOME": str(directory),
        "AIRFLOW__CORE__DAGS_FOLDER": str(_ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(directory / "none"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{directory / 'airflow.db'}",
        "WATERSHED_TOPOLOGIES": str(folder),
        "WATERSHED_STATE": str(directory / "state"),
    }
    sys.path.insert(0, str(_ROOT))
    import airflow.providers.standard.operators.hitl
    import airflow.providers.standard.triggers.temporal
    import airflow.sdk
    import airflow.serialization.serialized_objects
    import airflow.triggers.base

    for name in ("DAG", "Asset", "BaseBranchOperator", "BaseOperator", "Param", "TaskGroup", "TriggerRule"):
        getattr(airflow.sdk, name)  # these are imported when they are asked for


def _parsed(file: Path, *, serialize: bool) -> dict[str, Any]:
    """Run the file in a child of this process, which has nothing of ours imported."""
    reader, writer = os.pipe()
    gc.freeze()  # as Airflow's manager does before it forks, so that a child's collections pass over what was there
    if (child := os.fork()) == 0:
        os.close(reader)
        os.write(writer, json.dumps(_parse(file, serialize)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found: dict[str, Any] = json.load(answer)
    os.waitpid(child, 0)
    return found


def _parse(file: Path, serialize: bool) -> dict[str, Any]:
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import DagSerialization

    began = time.process_time()
    module: dict[str, Any] = {"__name__": f"bench_{file.stem}", "__file__": str(file)}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module)  # noqa: S102 (our own DAG file)
    seconds = time.process_time() - began
    dags = [value for value in module.values() if isinstance(value, DAG)]
    began = time.process_time()
    if serialize:
        for dag in dags:
            DagSerialization.to_dict(dag)
    return {
        "seconds": seconds,
        "serialized": time.process_time() - began,
        "dags": len(dags),
        "tasks": sum(len(dag.tasks) for dag in dags),
    }


if __name__ == "__main__":
    raise SystemExit(main())
