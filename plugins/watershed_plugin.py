"""The one module that Airflow loads from this folder (`.airflowignore`): tab with proofs, page *Replication*."""

from plugins.watershed.page.proof_reports import WatershedReports
from plugins.watershed.page.routes import WatershedPage

__all__ = ["WatershedPage", "WatershedReports"]  # Airflow takes the plugins that this module names
