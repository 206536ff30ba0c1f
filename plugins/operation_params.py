"""The parameters of the DAGs `operate__`, `decide__`, `inspect__`, `drill__` and `abandon__<name>`.

A parameter that only some operations read names them in its schema, under `operations`: the page *Replication* shows it
for those only. Airflow's own form shows all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param

from watershed.plugins.dag_params import PLAN_HASH_PARAM
from watershed.plugins.steps.command_runs import INSPECTIONS
from watershed.plugins.steps.migration_dag_tasks import AS_DECLARED, STRATEGIES
from watershed.topology.plan import Plan

OPERATE_MEANINGS: Mapping[str, str] = {
    "pause": "the flow, or only the named topic or partition, copies nothing more for now; positions are kept",
    "resume": "it goes on where it was paused or stopped",
    "stop": "it copies nothing more; positions are kept",
    "restart": "it goes on, and looks again at partitions that have halted",
    "move": "a topic or partition is served by the named worker, as long as that is there",
    "release": "a topic or partition that was moved is placed by the fleet again",
    "sync": "translated positions of groups are committed at the target now",
}
DECIDE_MEANINGS: Mapping[str, str] = {
    "accept-gap": "source records that expired before they were copied are given up",
    "reseed": "a topic or partition is copied again into an empty target",
    "copy-foreign": "source records that name a flow as producer and are not its own are copied",
    "adopt": "the flow goes on behind what another copier left, after a proof of every record",
    "reset-group": "a group's position at the target goes back, or replaces another program's",
    "prune": "rights and users that the sync brought, and the source has taken away, are removed at the target",
}
_OF_PARTITIONS = ("pause", "resume", "move", "release")
_ROLES = ("apply", "worker", "observe", "verify", "migrate", "align")
_ACCEPTABLE = ("duplicates", "aborted", "missing", "compacted", "timestamps", "unverifiable")
_ABOVE_SHARE = "above-share"
_ORIGINS = ("records", "mm2", "equal-offsets")
_NAME: dict[str, Any] = {"type": ["null", "string"], "maxLength": 249}
_NUMBER: dict[str, Any] = {"type": ["null", "integer"], "minimum": 0}
_APPROVAL = Param(
    "manual", enum=["manual", "auto"], description="manual: a person sees what would be done, and approves. auto: "
    "nobody is asked; the record names who triggered the run.",
)  # fmt: skip

APPLY_APPROVAL_PARAM = Param(
    "manual",
    enum=["manual", "auto"],
    description="manual: a person sees the plan and approves, where it changes something. auto: nobody is asked; a "
    "missing right or a broken rule still ends the run.",
)


def build_operate_params(plan: Plan) -> dict[str, Param]:
    """What another operation takes back: `approval` may be `auto`."""
    return {
        "operation": _choose_operation(OPERATE_MEANINGS),
        "flow": _choose_flow(plan),
        "topic": Param(
            None,
            **_NAME,
            operations=list(_OF_PARTITIONS),
            description="At the source. Empty for `pause` and `resume`: the whole flow.",
        ),
        "partition": Param(
            None, **_NUMBER, operations=list(_OF_PARTITIONS), description="Its number. Empty: the whole topic."
        ),
        "worker": Param(
            None,
            **_NAME,
            operations=["move"],
            description="For `move`: its name as in the table of partitions; without the number at its end: whoever "
            "runs in that place.",
        ),
        "reason": Param(
            None,
            type=["null", "string"],
            maxLength=500,
            operations=["pause", "move"],
            description="For `pause` of a topic or partition, and `move`: why, for those who see it.",
        ),
        "group": Param(
            None,
            **_NAME,
            operations=["sync"],
            description="For `sync`: only this group, as the source calls it. Empty: all.",
        ),
        "approval": _APPROVAL,
        "plan_hash": PLAN_HASH_PARAM,
    }


def build_decide_params(plan: Plan) -> dict[str, Param]:
    """What stays as it is decided: a person always approves."""
    return {
        "operation": _choose_operation(DECIDE_MEANINGS),
        "flow": _choose_flow(plan),
        "topic": Param(None, **_NAME, description="At the source. Empty for `adopt`: all topics of the flow."),
        "partition": Param(
            None,
            **_NUMBER,
            operations=["accept-gap", "reseed", "copy-foreign", "reset-group"],
            description="Its number. Empty for `reseed` and `reset-group`: all.",
        ),
        "through": Param(
            None,
            **_NUMBER,
            operations=["accept-gap", "copy-foreign"],
            description="For `accept-gap` and `copy-foreign`: the last source offset that the decision may cover.",
        ),
        "group": Param(
            None,
            **_NAME,
            operations=["reset-group"],
            description="For `reset-group`: the group, as the source calls it.",
        ),
        "copied_by": Param(
            "records",
            enum=list(_ORIGINS),
            operations=["adopt"],
            description="For `adopt`: who copied. mm2 also reads MirrorMaker's own notes; equal-offsets requires the "
            "source's offsets.",
        ),
        "accept": Param(
            [],
            type="array",
            items={"enum": [*_ACCEPTABLE, _ABOVE_SHARE]},
            examples=[*_ACCEPTABLE, _ABOVE_SHARE],
            operations=["adopt", "prune"],
            description="For `adopt`: findings with which the copy is taken all the same. For `prune`: `above-share` "
            "removes although most of what the sync brought is gone at the source at once.",
        ),
        "plan_hash": PLAN_HASH_PARAM,
    }


def build_inspect_params(plan: Plan) -> dict[str, Param]:
    """Nothing is changed, so nobody is asked."""
    clusters = [str(cluster.alias) for cluster in plan.clusters]
    told = {name: inspection.about for name, inspection in INSPECTIONS.items()}
    return {
        "operation": _choose_operation(told),
        "flow": _choose_flow(plan, operations=_list_needing("flow")),
        "cluster": Param(
            clusters[0], enum=clusters, operations=_list_needing("cluster"), description="For `probe` and `trace`."
        ),
        "role": Param(
            "apply", enum=list(_ROLES), operations=_list_needing("role"), description="For `acls`: whose rights."
        ),
        "group": Param(None, **_NAME, operations=["groups"], description="For `groups`: only this group. Empty: all."),
        "topic": Param(
            None,
            **_NAME,
            operations=[*_list_needing("topic"), "quarantined"],
            description="For `translate`, `map`, `trace` and `quarantined`.",
        ),
        "partition": Param(
            None,
            **_NUMBER,
            operations=_list_needing("partition"),
            description="For `translate`, `map` and `trace`: its number.",
        ),
        "offset": Param(
            None, **_NUMBER, operations=_list_needing("offset"), description="For `translate` and `trace`."
        ),
        "reverse": Param(
            False,
            type="boolean",
            operations=["translate"],
            description="For `translate`: from the target to the source.",
        ),
    }


def _list_needing(param: str) -> list[str]:
    """The inspections that cannot do without it."""
    return [name for name, inspection in INSPECTIONS.items() if param in inspection.needs]


def build_drill_params(waves: Sequence[str]) -> dict[str, Param]:
    """What is rehearsed."""
    return {
        "wave": Param(waves[0], enum=list(waves), description="The wave to rehearse, on copies of its topics."),
        "strategy": Param(
            AS_DECLARED, enum=[AS_DECLARED, *STRATEGIES], description="Another order of steps than the file's."
        ),
        "records": Param(
            10_000,
            type="integer",
            minimum=1,
            maximum=10_000_000,
            description="So many of each topic's newest records are copied.",
        ),
        "keep": Param(False, type="boolean", description="Leave the copies, to expire in an hour."),
        "approval": _APPROVAL,
        "plan_hash": PLAN_HASH_PARAM,
    }


def build_abandon_params() -> dict[str, Param]:
    """A person always approves."""
    return {
        "force": Param(
            False,
            type="boolean",
            description="End the run although something cannot be undone. The journal names what is left.",
        ),
        "plan_hash": PLAN_HASH_PARAM,
    }


def _choose_operation(meanings: Mapping[str, str]) -> Param:
    told = "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items())
    return Param(next(iter(meanings)), enum=list(meanings), meanings=dict(meanings), description=f"{told}.")


def _choose_flow(plan: Plan, **schema: Any) -> Param:
    flows: list[Any] = [str(flow.id) for flow in plan.flows]
    return Param(flows[0], enum=flows, **schema, description="The flow that it is about.")
