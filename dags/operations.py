"""Airflow DAGs `inspect__`, `operate__`, `decide__`, `drill__` and `abandon__<name>`: operations beside runs."""

import airflow.sdk  # noqa: F401 (Airflow reads no file that does not name it)

from watershed.plugins.operation_dags import (
    build_abandon_dag,
    build_decide_dag,
    build_drill_dag,
    build_inspect_dag,
    build_operate_dag,
    has_migration,
    has_plan,
)
from watershed.plugins.topology_dags import build_topology_dags

globals().update(build_topology_dags("inspect", build_inspect_dag, has_plan))
globals().update(build_topology_dags("operate", build_operate_dag, has_plan))
globals().update(build_topology_dags("decide", build_decide_dag, has_plan))
globals().update(build_topology_dags("drill", build_drill_dag, has_migration))
globals().update(build_topology_dags("abandon", build_abandon_dag, has_migration))
