"""Files of settings that belong to the host, and to its operator alone: what they name may be run here, so that nobody
else may be able to write them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from watershed.cutover.errors import CutoverError

_MOST_BYTES = 256 * 1024


class HostSettingsRefused(CutoverError):
    """A file of settings of this host cannot be used; the message says what its operator would have to do."""

    exit_code = 1


def read_host_settings(path: Path, variable: str, key: str, manual: str) -> Any:
    """What stands under `key`, the only one of the file. variable: of the environment, which names the file; manual: a
    page of ours. Raises HostSettingsRefused, also for a file that somebody else could have written."""
    try:
        status = path.stat()
        if not path.is_absolute() or not stat.S_ISREG(status.st_mode):
            raise HostSettingsRefused(f"{variable}={path} is no absolute path of a file; correct it")
        if status.st_uid not in (0, os.getuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise HostSettingsRefused(
                f"{path} could have been written by others: give it to root or to this user (chown), and let nobody "
                "else write to it (chmod go-w)"
            )
        with path.open("rb") as file:
            value = yaml.safe_load(file.read(_MOST_BYTES))
    except OSError as error:
        raise HostSettingsRefused(f"{variable}={path} cannot be read ({error.strerror}); correct it") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):  # also what `!!bool x` raises
        raise HostSettingsRefused(f"{path} is no YAML; see {manual}") from None
    if not isinstance(value, dict) or set(value) != {key}:
        raise HostSettingsRefused(f"{path} has to hold `{key}:`, and nothing else; see {manual}")
    return value[key]
