"""The tasks of `verify__<name>`: the proof, and the event that carries its result to other DAGs.

The result is an event of the asset `watershed://proof/<name>`. A task that fails has no events, and a proof that found
a difference must fail; so another task tells it, whatever came (docs/decisions/0032).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from airflow.sdk import Asset, BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from watershed.clusters.private_files import make_folder
from watershed.cutover.evidence.proof_summary import PROOF_COUNTS
from watershed.plugins.lineage_datasets import read_proof_lineage
from watershed.plugins.operators.spark_application import SparkApplicationOperator, list_attempts
from watershed.plugins.state_folder import (
    find_frozen_plan,
    is_state_shared,
    locate_run_folder,
    locate_state_folder,
    locate_task_folder,
)

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

_REACHED = ("proven", "repeated", "different", "incomplete")  # an error is no verdict
_VERDICT_KEY = "verdict"  # XCom of a proof's task: for tasks on hosts that do not see its folder
_FINDINGS = 10  # what stands in the way, as far as an event should carry it


def build_proof_asset(topology: str) -> Asset:
    """What a DAG subscribes to by `schedule=[Asset("watershed://proof/NAME")]`."""
    return Asset(f"watershed://proof/{topology}", group="watershed")


def build_report_path(dag_id: str, run_id: str, task_id: str = "") -> str:
    """Where `plugins.page.proof_reports` serves the report of a run, relative to Airflow's address."""
    query = {"dag_id": dag_id, "run_id": run_id} | ({"task_id": task_id} if task_id else {})
    return f"/watershed/proof?{urlencode(query)}"


class ReportLink(BaseOperatorLink):
    """The button on a task's page that leads to the report."""

    name = "Proof"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The path of the report, without host: a kept link stays right when Airflow's address changes."""
        from airflow.sdk.configuration import conf

        # Only its path: a link that is kept must not name the address of that day.
        prefix = urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")
        return prefix + build_report_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id)


class ProofOperator(SparkApplicationOperator):
    """`spark.verify` as a task; with `incremental` it builds on the newest proof of the same DAG that can be built on.

    Arguments as for SparkApplicationOperator.
    """

    template_fields: Sequence[str] = (*SparkApplicationOperator.template_fields, "incremental")
    operator_extra_links = (ReportLink(),)

    def __init__(self, *, incremental: Any = True, module: str = "watershed.spark.verify", **kwargs: Any) -> None:
        super().__init__(module=module, **kwargs)
        self.incremental = incremental
        self.summary: Path | None = None  # of the attempt that was collected

    def execute(self, context: Any) -> str:
        """Adds `--since` with the newest earlier proof where `incremental` holds, and starts the application."""
        link, ti = ReportLink(), context["ti"]
        ti.xcom_push(link.xcom_key, link.get_link(self, ti_key=ti))  # Airflow itself does so when the task has ended
        earlier = find_newest_proof(locate_task_folder(context)) if self.incremental else None
        if earlier is not None:
            self.log.info("building on the proof in %s", earlier.parent)
            self.arguments = [*self.arguments, "--since", str(earlier)]
        elif self.incremental:
            self.log.info("no earlier proof to build on: everything is read")
        return super().execute(context)

    def collect(self, context: Any, event: dict[str, Any]) -> str:
        """As its base. The verdict is kept for other tasks before the task may fail for it."""
        folder = Path(event["folder"])
        self.summary = folder / "summary.json"
        if self.summary.exists():
            with contextlib.suppress(AirflowException):  # of a summary that is none: the exit code tells more
                context["ti"].xcom_push(key=_VERDICT_KEY, value=read_proof_result(folder.parent))
        return super().collect(context, event)

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """What was compared, and the verdict, also of a proof that found a difference (docs/lineage.md). Airflow calls
        it where lineage is on."""
        if self.summary is None:
            return None
        return read_proof_lineage(find_frozen_plan(self.plan).read(), self.summary)


class PublishProofOperator(BaseOperator):
    """Emits the asset event of a verdict, once. Skipped where none was reached."""

    operator_extra_links = (ReportLink(),)

    def __init__(self, *, topology: str, proof: str, **kwargs: Any) -> None:
        asset = build_proof_asset(topology)
        super().__init__(outlets=[asset], **kwargs)
        self.asset, self.proof = asset, proof

    def execute(self, context: Any) -> dict[str, Any]:
        """Returns what subscribers get as the event's `extra`."""
        ti = context["ti"]
        found = find_run_verdict(ti, self.proof)
        if found is None:
            raise AirflowSkipException("no verdict was reached, so there is nothing to tell")
        told = Path(found["path"]).with_name("told")
        if told.exists():  # the run was cleared, and its proof did not run again
            raise AirflowSkipException(f"the verdict in {found['path']} was told before, and there is no newer one")
        found["report"] = build_report_path(ti.dag_id, ti.run_id, self.proof)
        counts = ", ".join(f"{found[name]:,} {name}" for name in PROOF_COUNTS if found[name])
        self.log.info("%s: %s unproven (%s)", found["verdict"], f"{found['unproven']:,}", counts or "no records")
        context["outlet_events"][self.asset].extra = found
        make_folder(told.parent)  # of another host
        told.touch()
        return found


def find_run_verdict(ti: Any, task: str) -> dict[str, Any] | None:
    """What `read_proof_result` gives for a proof's task of this run; None without a verdict. Where hosts have a folder
    each, only XCom tells: Airflow removes it with a try, while an older verdict stays in the folder of its host. Raises
    AirflowException."""
    if is_state_shared():
        return read_proof_result(locate_run_folder(ti.dag_id, ti.run_id) / task)
    told = ti.xcom_pull(task, key=_VERDICT_KEY)
    return told if isinstance(told, dict) else None


def read_proof_result(folder: Path) -> dict[str, Any] | None:
    """What subscribers are told of the newest attempt below a task's folder; None without a verdict.

    Raises AirflowException for a summary that is none.
    """
    tried = list_attempts(folder)
    summary = tried[-1].folder / "summary.json" if tried else folder / "summary.json"
    try:
        told = json.loads(summary.read_text(encoding="utf-8"))
        if told["verdict"] not in _REACHED:
            return None
        names = (
            "verdict",
            "unproven",
            *PROOF_COUNTS,
            "proven_earlier",
            "proof_root",
            "plan_hash",
            "level",
            "mode",
            "records",
            "ended_at",
        )
        told.setdefault("repeated", 0)  # of a proof before there were flows that may repeat
        return {name: told[name] for name in names} | {"path": str(summary), "findings": told["findings"][:_FINDINGS]}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AirflowException(f"{summary} is not the summary of a proof ({error!r})") from None


def find_newest_proof(folder: Path) -> Path | None:
    """The summary of the newest earlier proof that can be built on. folder: of the task, which names DAG and task."""
    from watershed.spark.errors import WrongUse
    from watershed.spark.judging.earlier_proof import read_earlier_proof

    for summary in _earlier(folder):
        try:
            read_earlier_proof(summary)
        except WrongUse:
            continue  # an error, or a proof of metadata only: the one before it may do
        return summary
    return None


def _earlier(folder: Path) -> Iterator[Path]:
    """Summaries of the same task, this run's own earlier tries included, the newest first."""
    runs = folder.parent.parent
    assert runs.is_relative_to(locate_state_folder())
    found = [(path.stat().st_mtime_ns, path) for path in runs.glob(f"*/{folder.name}/*/summary.json")]
    yield from (path for _, path in sorted(found, reverse=True))
