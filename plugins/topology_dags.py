"""The topologies that DAGs are made from: every `*.yaml` in the folder `WATERSHED_TOPOLOGIES`, and every folder in it
whose files form one topology.

DAG files are parsed again and again, and once more in every task, so that a compiled plan is kept beside the
state, under a hash of the file and of the compiler; a parse then needs neither YAML nor graph.  A file that
does not compile becomes a DAG that says why: it must not take the others with it, and must not vanish.  If it did
compile before, its DAGs stay as they were then: Airflow would end runs whose tasks vanish, in the middle of a
migration. New runs fail at their first task, which compiles the file.

Airflow marks every DAG of a file as stale when that file has an import error. So none of the files with DAGs may ever
have one (`build_topology_dags`), whatever a topology is named or holds; `dags/broken_topologies.py` has no DAGs, and
has the error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, get_parsing_context
from airflow.sdk.exceptions import AirflowFailException

from watershed.clusters.private_files import make_folder, replace_file
from watershed.plugins.state_folder import locate_state_folder
from watershed.topology.text_escaping import escape_control_lines, escape_controls
from watershed.topology.topology_files import TOPOLOGY_SUFFIXES, is_topology_file_name, list_topology_files

if TYPE_CHECKING:
    from watershed.topology.migration_waves import PlanMigration
    from watershed.topology.plan import Plan, PlanFlow

_NO_ID = re.compile(r"[^A-Za-z0-9_.-]")  # what an id of a DAG cannot hold
_LONGEST = 100  # letters of a file's name in an id; Airflow takes 250 of all
_REPORTED = 10_000  # letters of a report


class BrokenTopologies(Exception):
    """Some files do not compile; says which, and where the report of each is."""


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A file; `problem` is the report for people when it does not compile; `plan` is then the last one that did, or
    None when none ever did."""

    path: Path
    name: str
    plan: Plan | None
    problem: str = ""

    def told(self, doc: str) -> str:
        """The documentation of a DAG, with the report in front."""
        return (
            f"### {escape_controls(self.path.name)} does not compile any more\n```\n{self.problem}\n```\n{doc}"
            if self.problem
            else doc
        )

    @property
    def tags(self) -> list[str]:
        """Of every DAG."""
        return ["watershed", "broken"] if self.problem else ["watershed"]

    def require_plan(self) -> Plan:
        """The compiled plan. Raises ValueError for a file that never compiled; a DAG of one is only its report."""
        if self.plan is None:
            raise ValueError(f"{self.path} has never compiled")
        return self.plan

    def require_migration(self) -> tuple[PlanMigration, PlanFlow]:
        """The migration that the file declares, and its flow. Raises ValueError for a file without one."""
        plan = self.require_plan()
        if plan.migration is None:
            raise ValueError(f"{self.path} declares no migration")
        return plan.migration, plan.flow(plan.migration.flow)

    def is_wanted(self, dag_id: str) -> bool:
        """In a task only the task's own DAG is built."""
        only = get_parsing_context().dag_id
        return only is None or only == dag_id


def list_dag_topologies() -> Iterator[TopologyFile]:
    """All files by name. The second file of a name is a problem: its DAGs would replace the first one's. One that has
    never compiled comes after those that have: its name is only its file's."""
    folder = os.environ.get("WATERSHED_TOPOLOGIES")
    if not folder:
        return
    found = [_load(path) for path in sorted(_topologies(Path(folder)))]
    taken: dict[str, Path] = {}
    for file in sorted(found, key=lambda each: each.plan is None):
        if file.name in taken:
            first, again = escape_controls(str(taken[file.name])), "" if file.plan else f"\n{file.problem}"
            how = "change metadata.name" if file.plan else "rename one of the two files"
            problem = f"{escape_controls(str(file.path))}: the name {file.name!r} is taken by {first}; {how}{again}"
            file = TopologyFile(file.path, _free(f"{file.name}.{_stem(file.path)}", taken), None, problem)
        taken[file.name] = file.path
        yield file


def build_topology_dags(
    what: str, build: Callable[[TopologyFile], DAG], has: Callable[[TopologyFile], bool]
) -> dict[str, DAG]:
    """The DAGs of one kind, by id, of the files that have it; instead of one that cannot be built, or whose file does
    not compile, the report. Whatever is wrong with one file stays with its DAG."""
    found = {}
    for file in list_dag_topologies():
        if not file.is_wanted(dag_id := f"{what}__{file.name}"):
            continue
        try:
            if not has(file):
                continue
            dag = build(file) if file.plan else _build_report_dag(what, file)
            dag.validate()
            dag.check_cycle()
        except Exception as problem:  # noqa: BLE001 (as the docstring says)
            dag = _build_report_dag(what, replace(file, plan=None, problem=_report(problem)))
        found[dag_id] = dag
    return found


def require_compiled_topologies() -> None:
    """Raises BrokenTopologies. Names files and DAGs only: everybody who may see import errors reads it."""
    broken = [file for file in list_dag_topologies() if file.problem]
    if broken:
        told = [
            f"{escape_controls(each.path.name)}: the report is in the DAG replicate__{each.name}" for each in broken
        ]
        raise BrokenTopologies("these topologies do not compile; all others are as they should be\n" + "\n".join(told))


def _free(name: str, taken: dict[str, Path]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free


def _stem(path: Path) -> str:
    """The file's name as a part of a DAG's id. It does not begin with a dot, as the names of hidden folders do."""
    return _NO_ID.sub("_", path.stem)[:_LONGEST].lstrip(".") or "_"


def _topologies(folder: Path) -> Iterator[Path]:
    """Files, and folders with files."""
    for path in folder.iterdir():
        if is_topology_file_name(path) or _has_parts(path):
            yield path


def _has_parts(path: Path) -> bool:
    try:
        return path.is_dir() and any(each.suffix in TOPOLOGY_SUFFIXES for each in path.iterdir())
    except OSError:
        return True  # one that cannot be looked into: loading it says why


def read_topology_content(path: Path) -> bytes:
    """Everything that a topology is made from, with the names of its files. Raises OSError, UnreadableTopology."""
    if not path.is_dir():
        if not path.is_file():  # a pipe would be waited for, for ever
            raise OSError(f"{path} is neither a file nor a folder that can be read; remove it")
        return path.read_bytes()
    return b"".join(b"%s\0%s\0" % (each.name.encode(), each.read_bytes()) for each in list_topology_files(path))


def _build_report_dag(prefix: str, file: TopologyFile) -> DAG:
    """The DAG of a file that does not compile: its documentation and its one task are the report."""
    with DAG(
        dag_id=f"{prefix}__{file.name}",
        schedule=None,
        tags=["watershed", "broken"],
        doc_md=f"### {escape_controls(file.path.name)} does not compile\n```\n{file.problem}\n```",
    ) as dag:
        ReportProblem(task_id="report", problem=file.problem)
    return dag


class ReportProblem(BaseOperator):
    """Fails with the report."""

    def __init__(self, *, problem: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.problem = problem

    def execute(self, context: object) -> None:
        """Fails the task for good: a retry would report the same."""
        raise AirflowFailException(self.problem)


def _load(path: Path) -> TopologyFile:
    try:
        str(path).encode()  # Airflow's database takes no other name
        content = read_topology_content(path)
        if (plan := _remembered(content)) is None:
            from watershed.topology import compile_path

            plan = compile_path(path)
            _remember(_memory(content), plan)
            _remember(_last(path), plan)
    except Exception as problem:  # noqa: BLE001 (whatever is wrong with one file stays with that file)
        last = read_last_plan(path)
        return TopologyFile(path, last.topology if last else _stem(path), last, _report(problem))
    return TopologyFile(path, plan.topology, plan)


def read_last_plan(path: Path) -> Plan | None:
    """The newest plan that the file has compiled to, whatever is in it now; None where none is kept here."""
    return _read(_last(path))


def _report(problem: Exception) -> str:
    """As Airflow's database takes it, and as text inside a fence of Markdown."""
    text = escape_control_lines(str(problem) or repr(problem)).replace("```", "'''")
    return text if len(text) <= _REPORTED else f"{text[: _REPORTED - 1]}…"


def _remembered(content: bytes) -> Plan | None:
    return _read(_memory(content), own=True)


def _read(path: Path, *, own: bool = False) -> Plan | None:
    from watershed.topology.errors import UnreadablePlan
    from watershed.topology.plan import decode_plan

    with contextlib.suppress(OSError, ValueError, UnreadablePlan):
        return decode_plan(path.read_text(encoding="utf-8"), own=own)
    return None


def _remember(path: Path, plan: Plan) -> None:
    from watershed.topology.plan import encode_plan

    with contextlib.suppress(OSError):
        make_folder(path.parent)
        replace_file(path, encode_plan(plan).encode())


def _last(path: Path) -> Path:
    """The newest plan of a file, whatever is in it by now."""
    return (
        locate_state_folder()
        / "compiled"
        / "last"
        / f"{hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()}.json"
    )


def _memory(content: bytes) -> Path:
    key = hashlib.sha256(_compiler() + content).hexdigest()
    return locate_state_folder() / "compiled" / f"{key}.json"


@cache
def _compiler() -> bytes:
    """Names, sizes and times of the compiler's own files: a new compiler trusts no old plan."""
    from watershed import topology

    folder = Path(topology.__file__).parent
    stats = [(str(p), s.st_size, s.st_mtime_ns) for p in sorted(folder.rglob("*.py")) for s in [p.stat()]]
    return repr(stats).encode()
