"""The topologies that DAGs are made from: every `*.yaml` in the folder `WATERSHED_TOPOLOGIES`, and every folder in it
whose files form one topology.

DAG files are parsed again and again, and once more in every task, so that a compiled plan is kept beside the
state, under a hash of the file and of the compiler; a parse then needs neither YAML nor graph.  A file that
does not compile becomes a DAG that says why: it must not take the others with it, and must not vanish.  If it did
compile before, its DAGs stay as they were then: Airflow would end runs whose tasks vanish, in the middle of a
migration. New runs fail at their first task, which compiles the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG, BaseOperator, get_parsing_context
from airflow.sdk.exceptions import AirflowFailException

from plugins.watershed_state import state_folder

if TYPE_CHECKING:
    from topology.plan import Plan


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
            f"### {self.path.name} does not compile any more\n```\n{self.problem}\n```\n{doc}" if self.problem else doc
        )

    @property
    def tags(self) -> list[str]:
        """Of every DAG."""
        return ["watershed", "broken"] if self.problem else ["watershed"]

    def is_wanted(self, dag_id: str) -> bool:
        """In a task only the task's own DAG is built."""
        only = get_parsing_context().dag_id
        return only is None or only == dag_id


def topology_files() -> Iterator[TopologyFile]:
    """All files by name. The second file of a name is a problem: its DAGs would replace the first one's."""
    folder = os.environ.get("WATERSHED_TOPOLOGIES")
    if not folder:
        return
    taken: dict[str, Path] = {}
    for path in sorted(_topologies(Path(folder))):
        file = _load(path)
        if file.name in taken:
            problem = f"{path}: the name {file.name!r} is taken by {taken[file.name]}; change metadata.name"
            file = TopologyFile(path, f"{file.name}.{path.stem}", None, problem)
        taken[file.name] = path
        yield file


def _topologies(folder: Path) -> Iterator[Path]:
    """Files, and folders with files."""
    from topology.load import CONFIGURATION, SUFFIXES

    for path in folder.iterdir():
        is_file = path.suffix in SUFFIXES and path.name != CONFIGURATION
        if is_file or (path.is_dir() and any(each.suffix in SUFFIXES for each in path.iterdir())):
            yield path


def _content(path: Path) -> bytes:
    """Everything that a topology is made from, with the names of its files."""
    if not path.is_dir():
        return path.read_bytes()
    from topology.load import files_of

    return b"".join(b"%s\0%s\0" % (each.name.encode(), each.read_bytes()) for each in files_of(path))


def report_dag(prefix: str, file: TopologyFile) -> DAG:
    """The DAG of a file that does not compile: its documentation and its one task are the report."""
    with DAG(
        dag_id=f"{prefix}__{file.name}",
        schedule=None,
        tags=["watershed", "broken"],
        doc_md=f"### {file.path.name} does not compile\n```\n{file.problem}\n```",
    ) as dag:
        ReportProblem(task_id="report", problem=file.problem)
    return dag


class ReportProblem(BaseOperator):
    """Fails with the report."""

    def __init__(self, *, problem: str, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.problem = problem

    def execute(self, context: object) -> None:
        raise AirflowFailException(self.problem)


def _load(path: Path) -> TopologyFile:
    try:
        content = _content(path)
        if (plan := _remembered(content)) is None:
            from topology import compile_path

            plan = compile_path(path)
            _remember(_memory(content), plan)
            _remember(_last(path), plan)
    except Exception as problem:  # noqa: BLE001 (whatever is wrong with one file stays with that file)
        report, last = str(problem) or repr(problem), _read(_last(path))
        return TopologyFile(path, last.topology if last else path.stem, last, report)
    return TopologyFile(path, plan.topology, plan)


def _remembered(content: bytes) -> Plan | None:
    return _read(_memory(content), own=True)


def _read(path: Path, *, own: bool = False) -> Plan | None:
    from topology.errors import UnreadablePlan
    from topology.plan import plan_from_json

    with contextlib.suppress(OSError, UnreadablePlan):
        return plan_from_json(path.read_text(encoding="utf-8"), own=own)
    return None


def _remember(path: Path, plan: Plan) -> None:
    from topology.plan import plan_json

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(plan_json(plan), encoding="utf-8")
        fresh.replace(path)


def _last(path: Path) -> Path:
    """The newest plan of a file, whatever is in it by now."""
    return state_folder() / "compiled" / "last" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()}.json"


def _memory(content: bytes) -> Path:
    key = hashlib.sha256(_compiler() + content).hexdigest()
    return state_folder() / "compiled" / f"{key}.json"


@cache
def _compiler() -> bytes:
    """Names, sizes and times of the compiler's own files: a new compiler trusts no old plan."""
    import topology

    folder = Path(topology.__file__).parent
    stats = [(str(p), s.st_size, s.st_mtime_ns) for p in sorted(folder.rglob("*.py")) for s in [p.stat()]]
    return repr(stats).encode()
