"""Where a secret stands: the only way in which one is in a file, a plan or a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is, never what it is."""

    kind: Literal["env", "file", "airflow_connection"]
    name: str

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> SecretRef | None:
        """Reads the JSON form of the plan; None stays None."""
        return None if value is None else cls(**value)
