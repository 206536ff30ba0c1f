"""Where Airflow's side keeps files: frozen plans and the evidence of runs.

`WATERSHED_STATE` names the folder (default: `watershed` in `AIRFLOW_HOME`); every worker and the triggerer
must see it.  XCom carries ids and paths only; nothing in here is needed to understand the clusters.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusters.private_files import make_folder, replace_file

if TYPE_CHECKING:
    from topology.plan import Plan


def locate_state_folder() -> Path:
    """Absolute, also where `WATERSHED_STATE` is relative."""
    home = os.environ.get("AIRFLOW_HOME", "~/airflow")
    return Path(os.environ.get("WATERSHED_STATE") or Path(home).expanduser() / "watershed").resolve()


def locate_task_folder(context: Any) -> Path:
    """`runs/<dag>/<run>/<task>[.<map index>]`, the same on every try of a task instance."""
    ti = context["ti"]
    index = getattr(ti, "map_index", -1)
    task = ti.task_id if index in (None, -1) else f"{ti.task_id}.{index}"
    return locate_run_folder(ti.dag_id, ti.run_id) / make_file_name(task)


def locate_run_folder(dag_id: str, run_id: str) -> Path:
    """Raises ValueError for a DAG whose id is not the name of a folder as it stands: rights are asked for by that id,
    and must not open another one's folder. Runs of one DAG have the same readers."""
    return locate_state_folder() / "runs" / require_folder_name(dag_id) / make_file_name(run_id)


@dataclass(frozen=True, slots=True)
class FrozenPlan:
    """A plan as it was compiled at the start of a run: later edits of the file do not reach the run."""

    hash: str
    folder: Path

    @property
    def topology(self) -> Path:
        """The copy of the topology file (or of the folder of its parts), for programs that take `--topology`."""
        parts = self.folder / "topology"
        return parts if parts.is_dir() else self.folder / "topology.yaml"

    def read(self) -> Plan:
        """The plan. Raises OSError, UnreadablePlan."""
        from topology.plan import decode_plan

        return decode_plan((self.folder / "plan.json").read_text(encoding="utf-8"))


def freeze_plan(path: Path) -> FrozenPlan:
    """Compile a topology file and keep plan and file under the plan's hash.

    Raises topology.errors.InvalidTopology or UnreadableTopology.
    """
    from topology import compile_path
    from topology.loader import list_topology_files
    from topology.plan import encode_plan

    plan = compile_path(path)
    frozen = FrozenPlan(plan.hash, _plan_folder(plan.hash))
    make_folder(frozen.folder)
    if path.is_dir():
        for part in list_topology_files(path):
            _replace(frozen.folder / "topology" / part.name, part.read_text(encoding="utf-8"))
    else:
        _replace(frozen.folder / "topology.yaml", path.read_text(encoding="utf-8"))
    _replace(frozen.folder / "plan.json", encode_plan(plan))
    return frozen


def find_frozen_plan(plan_hash: str) -> FrozenPlan:
    """The plan that `freeze` kept under this hash. Raises FileNotFoundError when there is none."""
    folder = _plan_folder(plan_hash)
    if not (folder / "plan.json").exists():
        raise FileNotFoundError(
            f"no frozen plan {plan_hash} in {folder.parent}: clear the task that compiles it and all after it"
        )
    return FrozenPlan(plan_hash, folder)


def write_json_file(path: Path, document: Any) -> None:
    """Whole or not at all: a reader never sees half a file."""
    _replace(path, json.dumps(document, indent=1, sort_keys=True))


def _plan_folder(plan_hash: str) -> Path:
    """Raises FileNotFoundError for what is no hash: it may come from a journal, and lead anywhere."""
    if not plan_hash.rpartition(":")[2].isalnum():
        raise FileNotFoundError(f"{plan_hash!r} is not the hash of a plan")
    return locate_state_folder() / "plans" / plan_hash.rpartition(":")[2]


def require_folder_name(dag_id: str) -> str:
    """The id, as the name of a file. Raises ValueError."""
    if make_file_name(dag_id) != dag_id:
        raise ValueError(
            f"the DAG {dag_id!r} has no folder: its id begins with a dot, or holds what no id can; rename it"
        )
    return dag_id


def make_file_name(text: str) -> str:
    """The text with `_` for what a file name should not hold; never empty, never hidden."""
    return "".join(c if c.isalnum() or c in "-_.+" else "_" for c in text).lstrip(".") or "_"


def _replace(path: Path, text: str) -> None:
    make_folder(path.parent)
    replace_file(path, text.encode())
