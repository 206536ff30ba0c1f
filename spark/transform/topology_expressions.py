"""The expressions of topology files, judged by Spark: `topology lint --spark`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spark.session import create_spark_session, end_session
from spark.transform.compiled_transform import find_wrong_expressions
from topology.finding import Label, Problem
from topology.loader import LoadedTopology
from topology.model import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODE = "SYN015"


def add_expression_problems(files: Sequence[LoadedTopology]) -> list[LoadedTopology]:
    """The same files, with a problem for each flow whose expressions Spark does not take. No session is started where
    no flow has `transform`. Raises SparkError."""
    if not any(_list_flows(loaded) for loaded in files):
        return list(files)
    session = create_spark_session("watershed-lint")
    try:
        return [
            replace(loaded, problems=(*loaded.problems, *_find_problems(session, _list_flows(loaded))))
            for loaded in files
        ]
    finally:
        end_session(session)


def _list_flows(loaded: LoadedTopology) -> list[Flow]:
    flows = () if loaded.topology is None else loaded.topology.flows
    return [flow for flow in flows if flow.plan.transform is not None]


def _find_problems(session: SparkSession, flows: Sequence[Flow]) -> Iterator[Problem]:
    for flow in flows:
        assert flow.plan.transform is not None
        for error in find_wrong_expressions(session, flow.plan.transform):
            key, _, name = error.path.partition(".")
            place = (key, name) if name else (key,)
            yield Problem(
                _CODE,
                f"flow {flow.id}: {error.reason}",
                (Label(flow.settings.where("transform", *place), "Spark does not take this"),),
                path=f"{flow.path}.transform.{error.path}",
                ids=(flow.id,),
                help="docs/transform.md says what expressions see, and which functions there are",
            )
