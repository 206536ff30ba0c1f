"""No DAG: while a topology file does not compile, Airflow shows an import error for this file, which names it.

A file of DAGs with an import error takes all of its DAGs with it; this one has none.
"""

import airflow.sdk  # noqa: F401 (Airflow reads no file that does not name it)

from watershed.plugins.topology_dags import require_compiled_topologies

require_compiled_topologies()
