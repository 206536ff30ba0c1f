"""The one name that Watershed takes among Python packages (decision 0128).

The rooms are the folders beside this one (`topology/`, `replicator/`, …). Links in this folder give them their names in
Python: `topology/plan.py` is the module `watershed.topology.plan`. A wheel has the rooms themselves here.
"""

from pathlib import Path

IMPORT_ROOT = Path(__file__).resolve().parent.parent
"""The folder that has the package: of the checkout, or where it is installed. PYTHONPATH of programs that we start."""
