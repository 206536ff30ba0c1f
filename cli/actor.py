"""In whose name a command acts: the journal and decisions name him."""

from __future__ import annotations

import getpass
import os


def name_actor() -> str:
    """The user of this machine; or whom Airflow names, which runs some commands for the user of its interface."""
    return os.environ.get("WATERSHED_ACTOR") or getpass.getuser()
