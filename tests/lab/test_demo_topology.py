"""The demonstration's topology file, and the runs that it declares, whatever the source's release."""

from __future__ import annotations

from pathlib import Path

import pytest

from watershed.lab.broker import LabBroker
from watershed.lab.clusters import Lab, LabCluster
from watershed.lab.demo import demo_setup
from watershed.lab.releases import DEFAULT_RELEASE
from watershed.plugins.steps.migration_dag_tasks import list_wave_groups
from watershed.topology import compile_path


def cluster(alias: str, port: int, kafka: str) -> LabCluster:
    return LabCluster(alias, f"{alias}-id", (LabBroker(alias, 1, port, port + 1, Path("/lab"), kafka=kafka),))


@pytest.mark.parametrize("release", ["0.11.0.3", "2.1.1", "2.4.1", DEFAULT_RELEASE])
def test_dags_are_waited_for_that_the_file_declares(release: str, tmp_path: Path) -> None:
    stage = demo_setup.DemoFolders(tmp_path)
    stage.topology.parent.mkdir(parents=True)
    ends = {"onprem": cluster("onprem", 1001, release), "cloud": cluster("cloud", 1011, DEFAULT_RELEASE)}
    demo_setup.write_demo_topology(stage, Lab(tmp_path, ends))
    plan = compile_path(stage.topology)
    # a DAG is made of each kind that has waves (dags/rollback.py, failover.py, failback.py)
    there = {kind for kind in ("rollback", "failover", "failback") if list_wave_groups(plan, kind)}
    assert there == set(demo_setup.list_declared_runs(release))
    assert ("failback" in there) is (release in ("2.4.1", DEFAULT_RELEASE))
