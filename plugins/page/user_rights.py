"""Who may see and do what: Airflow's own answer for each DAG of a topology, asked at every request.

A topology is seen by whoever may read `replicate__<name>`; its migrations by whoever may read runs of the DAGs that
move applications; its proofs likewise, DAG by DAG. A DAG that Airflow has not parsed is hidden from everyone. A stale
DAG stays visible to its team but cannot be triggered. The page itself starts nothing: buttons call Airflow's public
REST interface, which checks the rights again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api import security
from airflow.models.dag import DagModel
from fastapi import HTTPException, Request

from watershed.plugins.state_folder import make_file_name
from watershed.plugins.supervisor_queues import SUPERVISE_KINDS


@dataclass(frozen=True, slots=True)
class DagAction:
    """A button: its words, and what a person is told who presses it. danger: it moves applications back or without
    their source, and stands apart from the others."""

    words: str
    does: str
    danger: bool = False


# By what a DAG does with a topology, in the order of the buttons.
DAG_ACTIONS = {
    "replicate": DagAction(
        "Start replication",
        "The file is compiled. Missing topics are created on the target clusters, the flows are written down there, "
        "and workers start to copy. Applications go on as they are. What runs already is not started twice.",
    ),
    "fleet": DagAction(
        "Workers",
        "The workers of one target cluster are scaled, restarted one by one, stopped, or started again where they "
        "died. Copying goes on while they are scaled or restarted. While they are stopped, nothing is copied.",
    ),
    "verify": DagAction(
        "Prove",
        "Both sides of every flow are read again and compared record by record. Nothing is changed; reading takes "
        "bandwidth of both clusters.",
    ),
    "inspect": DagAction(
        "Inspect",
        "A command that changes nothing, which the form names: a scan, a report, a plan. Its result is in the run.",
    ),
    "operate": DagAction(
        "Operate",
        "A flow is paused, resumed, stopped or restarted, single partitions are paused or moved to a worker, or "
        "translated positions of groups are committed. The run shows first what would be done, and a person approves.",
    ),
    "drill": DagAction(
        "Rehearse",
        "A wave is moved and taken back on copies of its topics, with producers and consumers of its own. No "
        "application moves; the real topics are only read.",
    ),
    "migrate": DagAction(
        "Migrate",
        "The applications of the chosen waves move to the target cluster. Their producers stand still from the fence "
        "to the switch. Before the point of no return, whatever fails is taken back by itself.",
    ),
    "decide": DagAction(
        "Decide",
        "A decision that stays: records that are given up, a topic that is copied again, a group that is set back. The "
        "run names offsets and records first, and a person approves them.",
        danger=True,
    ),
    "rollback": DagAction(
        "Roll back",
        "The applications of the chosen waves go back to the source cluster, with all that was written since. Their "
        "producers stand still meanwhile.",
        danger=True,
    ),
    "failover": DagAction(
        "Fail over",
        "The target cluster becomes the primary WITHOUT the source. Records that were never copied are missing there; "
        "they are counted, and a person accepts them first. This is for a source that is gone.",
        danger=True,
    ),
    "failback": DagAction(
        "Fail back",
        "The applications return to the old primary after a failover. Records that only the old primary has are listed "
        "first, and are never merged.",
        danger=True,
    ),
    "abandon": DagAction(
        "Give up a run",
        "The unfinished run is taken back, whoever began it, after a person has approved it. Behind its point of no "
        "return nothing is taken back; then roll back.",
        danger=True,
    ),
}
_MOVES = ("migrate", "rollback", "failover", "failback")  # those whose runs are in the journal
_WITHOUT_BUTTON = ("after_cutover", *SUPERVISE_KINDS)  # Airflow starts these; their failures are told
DAGS_WITH_PROOFS = ("verify", *_MOVES, "after_cutover")
_RUNS = 1_000
_Method = Literal["GET", "POST", "PUT"]


@dataclass(frozen=True, slots=True)
class KnownDag:
    """A DAG that Airflow has parsed. stale: it is in no file any more, or its file has an import error."""

    id: str
    team: str | None
    paused: bool
    stale: bool = False


@dataclass(frozen=True, slots=True)
class UserRights:
    """One user's, for one topology. dags: by what they do, those that Airflow has parsed."""

    user: Any
    topology: str
    dags: dict[str, KnownDag]

    def can_see_topology(self) -> bool:
        """Whether the user may read the DAG `replicate__<name>`."""
        return self._may("replicate", "GET", None)

    def can_see_runs(self, what: str) -> bool:
        """Whether the user may read runs of the DAG `<what>__<name>`."""
        return self._may(what, "GET", DagAccessEntity.RUN)

    def readable(self, what: Iterable[str]) -> list[str]:
        """Ids of the DAGs of these kinds whose runs the user may read."""
        return [build_dag_id(each, self.topology) for each in what if self.can_see_runs(each)]

    def dags_with_runs(self) -> list[str]:
        """Ids of all DAGs of the topology that Airflow has parsed, and whose runs the user may read."""
        return self.readable(what for what in self.dags if self.can_see_runs(what))

    def dags_with_questions(self) -> list[str]:
        """Of those the ids of the DAGs whose questions to people the user may read, as Airflow guards them."""
        seen = (what for what in self.dags if self._may(what, "GET", DagAccessEntity.HITL_DETAIL))
        return self.readable(seen)

    def can_see_logs(self, what: str) -> bool:
        """Whether the user may read the logs of tasks of the DAG `<what>__<name>`."""
        return self._may(what, "GET", DagAccessEntity.TASK_LOGS)

    def actions(self) -> list[dict[str, Any]]:
        """What the buttons of the page do, and why the user may not do it; only DAGs that there are."""
        found = []
        for what, action in DAG_ACTIONS.items():
            known = self.dags.get(what)
            if known is None or known.stale or not self.can_see_runs(what):
                continue
            allowed = self._may(what, "POST", DagAccessEntity.RUN)
            answers = self._may(what, "PUT", DagAccessEntity.HITL_DETAIL)
            found.append(
                {
                    "what": what,
                    "words": action.words,
                    "does": action.does,
                    "danger": action.danger,
                    "dag": known.id,
                    "paused": known.paused,
                    "allowed": allowed,
                    "why_not": "" if allowed else f"You may look, and not start runs of {known.id} (Airflow's rights).",
                    "unpauses": self._may(what, "PUT", None),
                    "answers": answers,
                    "why_no_answer": "" if answers else f"You may look, and not answer for {known.id}.",
                }
            )
        return found

    def _may(self, what: str, method: _Method, entity: DagAccessEntity | None) -> bool:
        known = self.dags.get(what)
        if known is None:  # Airflow would answer for a DAG of no team
            return False
        details = DagDetails(id=known.id, team_name=known.team)
        manager = security.get_auth_manager()  # type: ignore[attr-defined]  # the one that Airflow's own checks ask
        return bool(manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=self.user))


def find_user_rights(user: Any, topologies: Sequence[str]) -> dict[str, UserRights]:
    """By topology, with one question to Airflow's database."""
    ids = {build_dag_id(what, name): (name, what) for name in topologies for what in (*DAG_ACTIONS, *_WITHOUT_BUTTON)}
    found = {name: UserRights(user, name, {}) for name in topologies}
    for known in _known(list(ids)):
        name, what = ids[known.id]
        found[name].dags[what] = known
    return found


def read_run_ids(dags: Sequence[str]) -> dict[tuple[str, str], str]:
    """(DAG, folder of the run) → the run's id, of the newest runs: folders are named a little differently."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        asked = select(DagRun.dag_id, DagRun.run_id).where(DagRun.dag_id.in_(dags)).order_by(DagRun.id.desc())
        return {(dag, make_file_name(run)): run for dag, run in session.execute(asked.limit(_RUNS))}


def is_known_dag(dag_id: str) -> bool:
    """Whether Airflow has parsed a DAG of exactly this id, however long ago."""
    return [each.id for each in _known([dag_id])] == [dag_id]


def require_one_known_dag(request: Request) -> None:
    """Rights were asked for one id. Raises 404 unless it is the only one, and of a DAG with a folder of its own."""
    asked = request.query_params.getlist("dag_id")
    if len(asked) != 1 or make_file_name(asked[0]) != asked[0] or not is_known_dag(asked[0]):
        raise HTTPException(404, "no such DAG", headers={"Cache-Control": "no-store"})


def build_dag_id(what: str, topology: str) -> str:
    """`<what>__<topology>`: how every DAG of a topology is named."""
    return f"{what}__{topology}"


def _known(ids: list[str]) -> list[KnownDag]:
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        asked = select(DagModel.dag_id, DagModel.is_paused, DagModel.is_stale).where(DagModel.dag_id.in_(ids))
        rows = session.execute(asked).all()
    teams = DagModel.get_dag_id_to_team_name_mapping(ids)
    return [KnownDag(found, teams.get(found), bool(paused), bool(stale)) for found, paused, stale in rows]
