"""The version before this one, for tests that need its code."""

from __future__ import annotations

import pytest

from watershed.lab.errors import LabError
from watershed.lab.previous_version import InstalledRelease, install_previous_release


@pytest.fixture(scope="session")
def previous() -> InstalledRelease:
    """Left out, with what to do, where the checkout does not have it in its history."""
    try:
        return install_previous_release()
    except LabError as error:
        pytest.skip(str(error))
