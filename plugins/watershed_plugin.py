"""The one module that Airflow loads from this folder (`.airflowignore`): tab with proofs, page *Replication*."""
