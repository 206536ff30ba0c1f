"""What a flow's expressions read, set and drop in keys or values whose schemas stand in a registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from watershed.clusters.registry.subject_names import SubjectSide
from watershed.topology.record_transform import RegistryFormat

_DROPPED: Final = -1


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """columns: a struct of what expressions see. sets: names that lead to the fields that are set, one for each value
    that `change` is given; drops: those that are dropped."""

    side: SubjectSide
    form: RegistryFormat
    columns: pa.DataType
    sets: tuple[tuple[str, ...], ...] = ()
    drops: tuple[tuple[str, ...], ...] = ()

    def find_column(self, names: tuple[str, ...]) -> pa.DataType:
        """The type of the column of a field. Raises KeyError with the first name that the columns lack."""
        found = self.columns
        for name in names:
            if not isinstance(found, pa.StructType) or found.get_field_index(name) < 0:
                raise KeyError(name)
            found = found.field(name).type
        return found


@dataclass(frozen=True, slots=True)
class FieldChange:
    """What happens to one field: it gets value `number`, of this column; or is dropped; or fields within it change."""

    number: int = _DROPPED
    column: pa.DataType | None = None
    within: Mapping[str, FieldChange] = field(default_factory=dict)

    @property
    def is_drop(self) -> bool:
        """Whether the field itself is dropped."""
        return self.number == _DROPPED and not self.within

    @property
    def is_setting(self) -> bool:
        """Whether something is set, here or further in."""
        return self.number != _DROPPED or any(each.is_setting for each in self.within.values())

    def has_value(self, values: Sequence[Any]) -> bool:
        """Whether something, here or further in, is set to what is not null."""
        here = self.number != _DROPPED and values[self.number] is not None
        return here or any(each.has_value(values) for each in self.within.values())


def build_change_tree(plan: FieldPlan) -> dict[str, FieldChange]:
    """By the fields of the record. Paths are apart (`topology.record_transform`)."""
    changes = [(names, FieldChange(at, plan.find_column(names))) for at, names in enumerate(plan.sets)]
    return _build_tree([*changes, *((names, FieldChange()) for names in plan.drops)])


def _build_tree(changes: list[tuple[tuple[str, ...], FieldChange]]) -> dict[str, FieldChange]:
    found: dict[str, FieldChange] = {}
    for name in dict.fromkeys(names[0] for names, _ in changes):
        here = [(names[1:], change) for names, change in changes if names[0] == name]
        found[name] = here[0][1] if not here[0][0] else FieldChange(within=_build_tree(here))
    return found
