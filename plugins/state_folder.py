"""Where Airflow's side keeps files: frozen plans and the evidence of runs.

`WATERSHED_STATE` names the folder (default: `watershed` in `AIRFLOW_HOME`). Hosts of Airflow share it, or each has its
own and `WATERSHED_STATE_SHARED=no` says so (decision 0095): then a run's plan travels in XCom to whoever needs it.
Otherwise XCom carries ids and paths only; nothing in here is needed to understand the clusters.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from watershed.clusters.private_files import make_folder, replace_file

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from watershed.topology.plan import Plan

_COMPILE_TASK: Final = "compile"  # of FreezePlanOperator, in every DAG
_FILES_KEY: Final = "topology_files"
_MOST_BYTES: Final = 64 << 20  # of topology files that a run has handed on


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
        from watershed.topology.plan import decode_plan

        return decode_plan((self.folder / "plan.json").read_text(encoding="utf-8"))


def freeze_plan(path: Path) -> FrozenPlan:
    """Compile a topology file and keep plan and file under the plan's hash.

    Raises topology.errors.InvalidTopology or UnreadableTopology.
    """
    from watershed.topology import compile_path
    from watershed.topology.plan import encode_plan
    from watershed.topology.topology_files import list_topology_files

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
    """The plan that `freeze_plan` kept under this hash, here or, in a task, on the host that compiled it. Raises
    FileNotFoundError when there is none."""
    folder = _plan_folder(plan_hash)
    if not (folder / "plan.json").exists() and not is_state_shared():
        run = _find_task_run()
        if run is not None:
            _receive_plan(plan_hash, *run)
    if not (folder / "plan.json").exists():
        raise FileNotFoundError(
            f"no frozen plan {plan_hash} in {folder.parent}: clear the task that compiles it and all after it. Where "
            "hosts of Airflow have a folder each, set WATERSHED_STATE_SHARED=no on all of them"
        )
    return FrozenPlan(plan_hash, folder)


def is_state_shared() -> bool:
    """Whether all hosts of Airflow see one state folder (the default). Raises ValueError for another word than yes and
    no."""
    word = os.environ.get("WATERSHED_STATE_SHARED") or "yes"
    if word not in ("yes", "no"):
        raise ValueError(f"WATERSHED_STATE_SHARED is yes or no, not {word!r}")
    return word == "yes"


def hand_plan_on(frozen: FrozenPlan, ti: Any) -> None:
    """Leave the topology's files in the XCom of the task that compiled them, for tasks and triggers on hosts with a
    state folder of their own. Nothing is written where all share one."""
    if is_state_shared():
        return
    topology = frozen.topology
    parts = sorted(topology.iterdir()) if topology.is_dir() else [topology]
    files = {part.name: part.read_text(encoding="utf-8") for part in parts}
    packed = zlib.compress(json.dumps({"folder": topology.is_dir(), "files": files}).encode(), 9)
    ti.xcom_push(key=_FILES_KEY, value=base64.b64encode(packed).decode())


async def bring_plan(trigger: BaseTrigger, plan_hash: str) -> None:
    """Have a trigger's plan in the folder of this host before anybody asks for it: here, or in another process. Nothing
    is done where it is there, or where all hosts share a folder."""
    ti = trigger.task_instance
    if ti is None or is_state_shared() or (_plan_folder(plan_hash) / "plan.json").exists():
        return
    await asyncio.to_thread(_receive_plan, plan_hash, ti.dag_id, ti.run_id)


def _find_task_run() -> tuple[str, str] | None:
    """DAG and run of the task in whose process this is; None elsewhere."""
    from airflow.sdk import get_current_context

    try:
        ti = get_current_context()["ti"]
    except RuntimeError:
        return None
    return ti.dag_id, ti.run_id


def _receive_plan(plan_hash: str, dag_id: str, run_id: str) -> None:
    """Compile again what the run's first task has handed on. What compiles to another plan is left aside: this host has
    another version of the compiler, and the caller finds no plan."""
    from airflow.sdk.bases.xcom import BaseXCom

    packed = BaseXCom.get_one(key=_FILES_KEY, dag_id=dag_id, task_id=_COMPILE_TASK, run_id=run_id)
    if packed is None:
        return
    told = json.loads(zlib.decompressobj().decompress(base64.b64decode(packed), _MOST_BYTES))
    with tempfile.TemporaryDirectory(prefix="watershed-plan-") as place:
        folder = Path(place) / "topology"
        for name, text in told["files"].items():
            _replace(folder / make_file_name(name), text)
        freeze_plan(folder if told["folder"] else folder / "topology.yaml")


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
