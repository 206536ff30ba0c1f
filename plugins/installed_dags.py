"""The DAGs of an installed Watershed as a bundle of Airflow's: its settings name no folder (docs/install.md)."""

from __future__ import annotations

from typing import Any

from airflow.dag_processing.bundles.local import LocalDagBundle

from watershed import IMPORT_ROOT


class InstalledDagBundle(LocalDagBundle):
    """The folder `watershed/dags` of the installed package."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(path=str(IMPORT_ROOT / "watershed" / "dags"), **settings)
