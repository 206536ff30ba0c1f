"""The one module that Airflow loads from this folder (`.airflowignore`): tab with proofs, page *Replication*, and the
listener that imports modules before tasks are forked."""

from airflow.plugins_manager import AirflowPlugin

from plugins.watershed.page.proof_reports import WatershedReports
from plugins.watershed.page.routes import WatershedPage
from plugins.watershed.preloaded_modules import PreloadModules


class WatershedListeners(AirflowPlugin):
    """What follows Airflow's own life."""

    name = "watershed_listeners"
    listeners = [PreloadModules()]  # noqa: RUF012 (Airflow's form)


# Airflow takes the plugins that this module names.
__all__ = ["WatershedListeners", "WatershedPage", "WatershedReports"]
