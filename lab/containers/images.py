"""The images: those of docker/Dockerfile, and the bases below them where no registry can be asked."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.containers.container_engine import ContainerEngine, EngineFailed, EngineMissing
from lab.errors import LabError

_DEBIAN = "localhost/watershed-debian"
_SUITE = "bookworm"
# Which stage of docker/bases/Containerfile stands for which image.
BASE_STAGES: Mapping[str, str] = {
    "eclipse-temurin": "java",
    "maven": "maven",
    "python": "python",
    "postgres": "postgres",
}
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
_CERTIFICATES = Path("/etc/ssl/certs")
_APT_SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
_PULL_S = 300.0
_BASE_S = 1800.0

_Say = Callable[[str], None]


def list_base_images(dockerfile: str, compose: str) -> list[str]:
    """The images that are taken from elsewhere: those with a tag (ours have none, and stages of the file neither)."""
    named = re.findall(r"^FROM +(\S+:\S+)", dockerfile, re.MULTILINE)
    named += re.findall(r"^ +image: +(\S+:\S+)", compose, re.MULTILINE)
    return sorted(set(named))


def list_builds(services: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Image → its `build` section. Raises LabError for an image that two services build: it would be built twice."""
    found: dict[str, dict[str, Any]] = {}
    for name, service in services.items():
        if "build" not in service:
            continue
        if service["image"] in found:
            raise LabError(f"{service['image']} has a second `build` in the service {name}; one is enough")
        found[service["image"]] = service["build"]
    return found


def provide_base_images(engine: ContainerEngine, images: list[str], bases: Path, scratch: Path, say: _Say) -> None:
    """Every base image is there: it was, or it is pulled, or it is made from Debian packages (podman only).

    bases: the folder of the Containerfile. Raises EngineMissing, EngineFailed.
    """
    missing = [image for image in images if engine.try_run("image", "inspect", image).returncode != 0]
    left = [image for image in missing if engine.try_run("pull", image, timeout=_PULL_S).returncode != 0]
    if not left:
        return
    if engine.name != "podman":
        raise EngineMissing(
            f"docker cannot pull {', '.join(left)}: no registry can be reached from here, or it refuses"
        )
    if shutil.which("mmdebstrap") is None:
        raise EngineMissing(
            f"no registry gives {', '.join(left)}, and without mmdebstrap they cannot be made from Debian packages: "
            "apt-get install mmdebstrap"
        )
    if pinned := [image for image in left if "@" in image]:
        raise EngineMissing(
            f"no registry gives {', '.join(pinned)}, and an image that is pinned by digest cannot be made"
        )
    began = time.monotonic()
    if engine.try_run("image", "inspect", _DEBIAN).returncode != 0:
        _make_debian(engine, scratch)
        say(f"Debian {_SUITE} made from packages, {time.monotonic() - began:.0f} s")
    for image in left:
        began = time.monotonic()
        stage = BASE_STAGES[image.partition(":")[0]]
        with _lend_settings(scratch) as lent:
            words = ["--target", stage, "--tag", f"localhost/{image}", "--file", str(bases / "Containerfile")]
            engine.run("build", "--quiet", *lent, *words, str(bases), timeout=_BASE_S)
        say(f"{image} made from Debian packages, {describe_image(engine, image)}, {time.monotonic() - began:.0f} s")


def build_images(engine: ContainerEngine, builds: Mapping[str, Mapping[str, Any]], root: Path, say: _Say) -> None:
    """Builds each image once. Raises EngineFailed."""
    for image, build in builds.items():
        began = time.monotonic()
        arguments = [f"--build-arg={each}" for each in list_build_arguments(build)]
        words = ["--file", str(root / build["dockerfile"]), "--target", build["target"], "--tag", image]
        with _lend_settings(root / ".watershed") as lent:
            mounts = lent if engine.name == "podman" else []
            engine.run("build", "--quiet", *mounts, *arguments, *words, str(root), timeout=None)
        say(f"{image} built, {describe_image(engine, image)}, {time.monotonic() - began:.0f} s")


def list_build_arguments(build: Mapping[str, Any]) -> list[str]:
    """`NAME=VALUE` of a `build` section. The specification has a mapping and a list."""
    args = build.get("args") or []
    return [f"{key}={value}" for key, value in args.items()] if isinstance(args, Mapping) else list(args)


def describe_image(engine: ContainerEngine, image: str) -> str:
    """Its size, for people."""
    known = engine.inspect(image) or {}
    return f"{known.get('Size', 0) / 1e9:.2f} GB"


def _make_debian(engine: ContainerEngine, scratch: Path) -> None:
    """From the mirror of this machine's own apt. Raises EngineFailed."""
    sources = [path for path in _APT_SOURCES if Path(path).exists()][:1]
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        tar = f"{folder}/debian.tar"
        command = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates", _SUITE, tar, *sources]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BASE_S)
        if done.returncode != 0:
            said = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise EngineFailed(f"mmdebstrap made no Debian {_SUITE} (exit {done.returncode}):\n{said}")
        engine.run("import", "--change", 'CMD ["bash"]', tar, _DEBIAN)


@contextmanager
def _lend_settings(scratch: Path) -> Iterator[list[str]]:
    """Mounts by which a build uses this machine's certificates, pip settings and Maven cache. Nothing of them is in an
    image: `:O` are layers that are thrown away."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        pip = Path(folder) / "pip.conf"
        pip.write_text(render_pip_settings(_read_pip_settings(), certificates=_CERTIFICATES.is_dir()))
        mounts = [f"--volume={pip}:/etc/pip.conf:ro"]
        if _CERTIFICATES.is_dir():
            mounts.append(f"--volume={_CERTIFICATES}:{_CERTIFICATES}:O")
        for name, how in (("repository", "O"), ("settings.xml", "ro")):
            if (own := Path.home() / ".m2" / name).exists():
                mounts.append(f"--volume={own}:/root/.m2/{name}:{how}")
        yield mounts


def render_pip_settings(told: str, *, certificates: bool) -> str:
    """A pip.conf from what `pip config list` says (variables of the environment among it)."""
    kept: dict[str, str] = {}
    for line in told.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in _PIP_KEYS:
            kept[key] = value.strip("'\"")
    if certificates:
        kept["cert"] = f"{_CERTIFICATES}/ca-certificates.crt"
    return "\n".join(["[global]", *(f"{key} = {value}" for key, value in kept.items()), ""])


def _read_pip_settings() -> str:
    return subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
