"""The parameters of DAGs that move applications, and the choices that they make for a rollback, failover or failback.
The defaults accept no loss.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from watershed.plugins.steps.migration_dag_tasks import AS_DECLARED, STRATEGIES, RunChoices

if TYPE_CHECKING:
    from watershed.cutover.run_plan import RunKind

_REFUSE = "refuse"
_ANY = "any"
# Airflow's form cannot be sent while a parameter that may not be null is empty.
PLAN_HASH_PARAM = Param(
    None,
    type=["null", "string"],
    pattern="^(sha256:[0-9a-f]{64})?$",
    description="Refuse to run unless the file still compiles to this plan (`topology compile`).",
)
APPROVAL_PARAM = Param(
    "manual",
    enum=["manual", "auto"],
    description="auto: nobody is asked; the journal records the approvals as automatic. A loss is never accepted so.",
)
DRY_RUN_PARAM = Param(
    False,
    type="boolean",
    description="Only say what every step does, who acts, and how it is undone: in the log of the task `dry_run`, "
    "and on the page Replication.",
)
ACCEPT_LOSS_PARAM = Param(
    None,
    # The form shows the first type that is not null: a text.
    type=["null", "string", "integer"],
    pattern=f"^({_ANY}|[0-9]{{1,15}})?$",
    minimum=0,
    description="Accept beforehand that at most so many records are missing (`any`: whatever it is). Empty: a person "
    "is shown the loss and asked.",
)
THOUGH_SOURCE_ANSWERS_PARAM = Param(
    False,
    type="boolean",
    description="Go on although the source answers; its producers are stopped and fenced first. Otherwise that is "
    "refused, because a migration loses nothing.",
)
STRANDED_PARAM = Param(
    _REFUSE,
    enum=[_REFUSE, "skip", "reread"],
    description="Records that somebody wrote at the old source after the switch. skip: groups go on behind them; "
    "reread: in front of them, and read again what follows.",
)
DIVERGENCE_PARAM = Param(
    _REFUSE,
    enum=[_REFUSE, "skip", "reread"],
    description="Records that only the old primary has; they stay in its log and are never merged. skip: groups go on "
    "behind them; reread: in front of them, and read again what follows.",
)
# The options of the commands, as messages name them, and the parameters that are the same.
_OPTIONS = {
    "--accept-loss": "accept_loss",
    "--though-source-answers": "though_source_answers",
    "--stranded": "stranded",
    "--divergence": "divergence",
}


def build_waves_param(
    names: Sequence[str], default: Sequence[str], description: str, *, required: bool = False
) -> Param:
    """A list of waves to choose from; `default` is chosen when nobody chooses. required: Airflow does not start a run
    without one."""
    schema: dict[str, Any] = {"type": "array", "items": {"enum": list(names)}, "uniqueItems": True}
    schema |= {"minItems": 1} if required else {}
    return Param(list(default), **schema, examples=list(names), description=description)


def build_strategy_param() -> Param:
    """The strategies that may replace the file's."""
    return Param(
        AS_DECLARED,
        enum=[AS_DECLARED, *STRATEGIES],
        description="Another strategy for the chosen waves than the file's; the journal says so.",
    )


def parse_choices(kind: RunKind, params: Mapping[str, Any]) -> RunChoices:
    """What a run's parameters decide. Raises AirflowFailException for what Airflow's own check has let through."""
    if kind == "migrate":
        return RunChoices()
    way = params.get("divergence" if kind == "failback" else "stranded", _REFUSE)
    if way not in (_REFUSE, "skip", "reread"):
        raise AirflowFailException(f"`{way}` is none of {_REFUSE}, skip and reread; nothing was touched")
    answers = params.get("though_source_answers", False)
    if not isinstance(answers, bool):
        raise AirflowFailException(f"though_source_answers is `{answers}`: say true or false; nothing was touched")
    return RunChoices(
        accept_loss=_most(params.get("accept_loss", "")),
        though_source_answers=answers,
        stranded=None if way == _REFUSE else way,
        waves=() if kind == "rollback" else tuple(params.get("waves") or ()),
    )


def refuse_contradictions(kind: RunKind, choices: RunChoices, approval: str) -> None:
    """What could only be refused when the flow has been stopped already. Raises AirflowFailException."""
    if kind == "failover" and approval == "auto" and choices.accept_loss is None:
        raise AirflowFailException(
            "approval is `auto`, and a loss is never accepted by itself: say in accept_loss how many records may be "
            "missing (0 if none, `any` for whatever it is), or let a person approve. Nothing was touched"
        )


def explain_options_as_params(reason: str) -> str:
    """A message that names options of the command, with the names of the DAG's parameters."""
    named = [f"{option} is the parameter {name}" for option, name in _OPTIONS.items() if option in reason]
    return f"{reason} (in Airflow, {', '.join(named)})" if named else reason


def _most(said: object) -> int | None:
    if said in ("", None):
        return None
    if said == _ANY:
        return sys.maxsize
    if isinstance(said, bool) or not str(said).isdecimal():
        raise AirflowFailException(
            f"accept_loss is `{said}`: say a number of records, `{_ANY}`, or leave it empty; nothing was touched"
        )
    return int(str(said))
