"""What `replicate__<name>` shows before it applies: the plan field by field, missing rights, and every note."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from plugins.watershed.operators.operations import encode_evidence, look_up_settings, translate_problems
from plugins.watershed.state_folder import find_frozen_plan
from topology.text_escaping import escape_control_lines


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
        from cutover.operations.plan_review import list_apply_notes, list_missing_apply_rights, review_plan
        from topology.lint_configuration import read_nearest_configuration

        frozen = find_frozen_plan(self.plan)
        plan = frozen.read()
        connect = look_up_settings(plan)
        if lacking := list_missing_apply_rights(plan, connect):
            raise AirflowFailException(escape_control_lines("\n".join(lacking)))
        review = review_plan(plan, frozen.topology, connect, read_nearest_configuration(Path(self.path)))
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
