"""Airflow's scheduler and dag-processor import what our tasks need, once: each task and each parse of a DAG file is a
fork of theirs, and would import it again. Importing all of it takes half a second of processor time or more.
Airflow tells no component from another when it starts, so the triggerer imports them, too; it makes no Kafka client all
the same (decision 0057)."""

from __future__ import annotations

import contextlib
from importlib import import_module

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker

# Of these follow all others. None of them starts a thread or opens a connection, which a fork would not survive.
PRELOADED_MODULES = (
    "airflow.dag_processing.dagbag",
    "watershed.plugins.operators.budget_watch",
    "watershed.plugins.operators.decommission",
    "watershed.plugins.operators.fleet_actions",
    "watershed.plugins.operators.flow_status",
    "watershed.plugins.operators.plan_review",
    "watershed.plugins.operators.proof",
    "watershed.plugins.operation_dags",
    "watershed.plugins.operators.wave_task_groups",
    "watershed.plugins.topology_dags",
    "watershed.cutover.run_opening",
    "watershed.replicator.apply",
    "watershed.topology.loader",
)


class PreloadModules:
    """A listener of Airflow's. A task itself imports only what it needs: where it is no fork, that is less."""

    @hookimpl
    def on_starting(self, component: object) -> None:
        """A module that is missing is left to the task that needs it: its log says so."""
        if isinstance(component, TaskRunnerMarker):
            return
        for name in PRELOADED_MODULES:
            with contextlib.suppress(ImportError):
                import_module(name)


class WatershedListeners(AirflowPlugin):
    """What follows Airflow's own life."""

    name = "watershed_listeners"
    listeners = [PreloadModules()]  # noqa: RUF012 (Airflow's form)
