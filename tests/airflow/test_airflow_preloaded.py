"""What Airflow's scheduler and dag-processor import before they fork tasks."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys, threading
from pathlib import Path
from airflow.listeners.listener import get_listener_manager
from airflow.jobs.job import Job
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker
from airflow.dag_processing.dagbag import BundleDagBag
from watershed.plugins.preloaded_modules import PRELOADED_MODULES

ours = lambda: {each for each in sys.modules if each.partition(".")[0] == "watershed"}
get_listener_manager().hook.on_starting(component=TaskRunnerMarker())
assert "watershed.replicator.apply" not in sys.modules, "a task that is no fork imports what it does not need"
Job()
assert set(PRELOADED_MODULES) <= set(sys.modules), set(PRELOADED_MODULES) - set(sys.modules)
assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread does not survive a fork"
before = ours()
for path in sorted(Path(sys.argv[1]).glob("*.py")):
    bag = BundleDagBag(
        dag_folder=str(path), safe_mode=False, load_op_links=False, bundle_path=path.parent, bundle_name="dags"
    )
    assert not bag.import_errors, bag.import_errors
print(sorted(ours() - before))
"""


def test_a_fork_of_the_scheduler_has_what_dag_files_import() -> None:
    """Through Airflow's own calls: it makes a Job when a component starts, and a marker when a task does."""
    dags = os.environ["AIRFLOW__CORE__DAGS_FOLDER"]
    done = subprocess.run([sys.executable, "-c", PROGRAM, dags], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[]"
