"""The version of Watershed that runs here."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def read_installed_version() -> str:
    """As `topology --version` says it; "" where the package is used without having been installed."""
    try:
        return version("watershed")
    except PackageNotFoundError:
        return ""
