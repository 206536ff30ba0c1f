"""How many examples a property tries: few in `make test`, which tries the same ones every time; many in `make soak`."""

from __future__ import annotations

from hypothesis import settings


def choose_examples(few: int, many: int = 1_000) -> int:
    return few if settings.default.derandomize else many  # the profile `suite` of tests/conftest.py, or `explore`
