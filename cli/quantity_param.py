"""Amounts with a unit on the command line, as in the file: `5s`, `60MiB/s`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class _Quantity(click.ParamType[int]):
    """`parse` is one of `topology.quantities`, by name, so that nothing is imported for `--help`."""

    def __init__(self, parse: str, name: str, *, least: int = 0) -> None:
        self.parse = parse
        self.name = name
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from watershed.topology import quantities

        parse: Callable[[str], int] = getattr(quantities, self.parse)
        try:
            amount = value if isinstance(value, int) else parse(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        if amount < self.least:
            self.fail(f"{value!r} is too small", param, ctx)
        return amount


DURATION_PARAM = _Quantity("parse_duration", "duration")
SIZE_PARAM = _Quantity("parse_size", "size", least=1)
RATE_PARAM = _Quantity("parse_rate", "rate", least=1)
