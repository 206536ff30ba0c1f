"""What `replicate__<name>` shows before it applies: the plan field by field, missing rights, and every note. It applies
no other changes than those."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from watershed.plugins.operators.operations import (
    AUTO,
    encode_evidence,
    look_up_settings,
    require_approval,
    translate_problems,
)
from watershed.plugins.state_folder import find_frozen_plan
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.cutover.operations.plan_review import PlanReview
    from watershed.topology.plan import Plan

_MOST_NAMED = 10  # changes in a message


class ReviewPlanOperator(BaseOperator):
    """As `topology plan`, and what `topology apply` says beside. Its result is the evidence of the approval.

    path: of the topology file, near which its lint configuration lies. Fails where `apply` would refuse: a right is
    missing, or a live rule is broken.
    """

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan, self.path = plan, path

    def execute(self, context: Any) -> dict[str, Any]:
        """Logs every line. Changes nothing."""
        return translate_problems(self.review)

    def review(self) -> dict[str, Any]:
        """The evidence. Raises ClusterError, CutoverError; AirflowFailException for what apply would refuse."""
        from watershed.cutover.operations.plan_review import list_apply_notes, list_missing_apply_rights

        frozen = find_frozen_plan(self.plan)
        plan = frozen.read()
        connect = look_up_settings(plan)
        if lacking := list_missing_apply_rights(plan, connect):
            raise AirflowFailException(escape_control_lines("\n".join(lacking)))
        review = review_frozen_plan(self.plan, self.path)
        lines, notes = list(review.render()), list_apply_notes(plan, frozen.topology, connect)
        for line in (*lines, *(f"note: {note}" for note in notes)):
            self.log.info("%s", escape_control_lines(line))
        if review.lint.errors:
            raise AirflowFailException(
                f"{review.lint.errors} rules are broken on the live clusters, so nothing is applied; the log of "
                "this task names each"
            )
        targets = ", ".join(sorted({flow.target for flow in plan.flows}))
        question = f"apply {plan.topology} ({len(plan.flows)} flows) to {targets}?"
        return encode_evidence(question, lines, notes, review.basis, is_needed=review.has_changes)


class ApplyPlanOperator(BaseOperator):
    """Create control and target topics and write the desired flows, as `topology apply` does.

    path: of the topology file. evidence, answer: the tasks that showed the changes and asked. approval: `auto` where
    nobody was to be asked; otherwise nothing is applied that was not shown and approved.
    """

    template_fields: Sequence[str] = ("plan", "approval")

    def __init__(self, *, plan: str, path: str, evidence: str, answer: str, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan, self.path, self.evidence = plan, path, evidence
        self.answer, self.approval = answer, approval

    def execute(self, context: Any) -> None:
        """Logs every change; a second run finds nothing to change."""
        if self.approval != AUTO:
            seen = context["ti"].xcom_pull(self.evidence)
            nothing = json.dumps([self.plan, []])
            approved = require_approval(context["ti"].xcom_pull(self.answer)) if seen["is_needed"] else nothing
            self.require_same_changes(approved)
        translate_problems(lambda: self.apply(find_frozen_plan(self.plan).read()))

    def require_same_changes(self, approved_basis: str) -> None:
        """Raises AirflowFailException for changes that nobody has approved."""
        review = translate_problems(lambda: review_frozen_plan(self.plan, self.path))
        if others := review.list_unapproved(approved_basis):
            raise AirflowFailException(
                escape_control_lines(
                    "the clusters are not as they were when the plan was shown, so nothing was applied. Not shown: "
                    f"{'; '.join(others[:_MOST_NAMED])}{' …' if len(others) > _MOST_NAMED else ''}. Clear `plan` and "
                    "all tasks behind it"
                )
            )

    def apply(self, plan: Plan) -> None:
        """Raises ClusterError; AirflowException for a refusal, which another try may not meet."""
        from watershed.replicator.apply import apply_plan
        from watershed.replicator.errors import ReplicatorError

        try:
            changes = apply_plan(
                plan,
                look_up_settings(plan),
                lambda change: self.log.info("%s: %s %s", change.cluster, change.what, change.name),
            )
        except ReplicatorError as problem:
            raise AirflowException(escape_control_lines(str(problem))) from None
        self.log.info("%d changes", len(changes))


def review_frozen_plan(plan_hash: str, path: str) -> PlanReview:
    """The plan beside the live clusters. path: of the topology file. Raises ClusterError, CutoverError."""
    from watershed.cutover.operations.plan_review import review_plan
    from watershed.topology.lint_configuration import read_nearest_configuration

    frozen = find_frozen_plan(plan_hash)
    plan = frozen.read()
    return review_plan(plan, frozen.topology, look_up_settings(plan), read_nearest_configuration(Path(path)))
