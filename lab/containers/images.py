"""The images: those of docker/Dockerfile, and the bases below them where no registry can be asked."""

from __future__ import annotations

import ast
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

from watershed.lab.containers.container_engine import ContainerEngine, EngineFailed, EngineMissing
from watershed.lab.errors import LabError
from watershed.lab.prometheus_server import fetch_prometheus, fetch_promtool

_DEBIAN = "localhost/watershed-debian"
_SUITE = "bookworm"
# Which stage of docker/bases/Containerfile stands for which image.
BASE_STAGES: Mapping[str, str] = {
    "eclipse-temurin": "java",
    "maven": "maven",
    "python": "python",
    "postgres": "postgres",
    "prom/prometheus": "prometheus",
}
# Programs that Debian does not have, or too old: built from Go modules, and lent to the stage.
_LENT_PROGRAMS: Mapping[str, Callable[[], list[Path]]] = {
    "prometheus": lambda: [fetch_prometheus(), fetch_promtool()],
}
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_APT_SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
_WITHOUT_SOURCES = 'rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/etc/apt/auth.conf.d/*'
_PULL_S = 300.0
_BASE_S = 1800.0

_Say = Callable[[str], None]


def list_base_images(dockerfile: str, services: Mapping[str, Any]) -> list[str]:
    """The images that are taken from elsewhere: those with a tag (ours have none, and stages of the file neither).
    services: those that are to run, by name."""
    named = re.findall(r"^FROM +(\S+:\S+)", dockerfile, re.MULTILINE)
    return sorted({*named, *(each["image"] for each in services.values() if ":" in each["image"])})


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
    left = [image for image in missing if not _is_pulled(engine, image)]
    if not left:
        return
    if engine.name != "podman":
        raise EngineMissing(
            f"docker cannot pull {', '.join(left)}: no registry can be reached from here, or it refuses"
        )
    require_debian(left)
    began = time.monotonic()
    if engine.try_run("image", "inspect", _DEBIAN).returncode != 0:
        _make_debian(engine, scratch)
        say(f"Debian {_SUITE} made from packages, {time.monotonic() - began:.0f} s")
    for image in left:
        began = time.monotonic()
        stage = BASE_STAGES[image.partition(":")[0]]
        with _lend_settings(scratch, sources=True) as lent:
            programs = _LENT_PROGRAMS[stage]() if stage in _LENT_PROGRAMS else []
            lent += [f"--volume={each}:/lent/{each.name}:ro,z" for each in programs]
            words = ["--target", stage, "--tag", f"localhost/{image}", "--file", str(bases / "Containerfile")]
            engine.run("build", "--quiet", *lent, *words, str(bases), timeout=_BASE_S)
        size, seconds = describe_image(engine, image), time.monotonic() - began
        say(f"in place of {image}: {stage} of Debian {_SUITE}, with its version, {size}, {seconds:.0f} s")


def _is_pulled(engine: ContainerEngine, image: str) -> bool:
    """A registry that does not answer in time gives nothing either."""
    try:
        return engine.try_run("pull", image, timeout=_PULL_S).returncode == 0
    except EngineFailed:
        return False


def require_debian(images: list[str], release: Path = Path("/etc/os-release")) -> None:
    """Raises EngineMissing where these images cannot be made from Debian packages."""
    if pinned := [image for image in images if "@" in image]:
        raise EngineMissing(
            f"no registry gives {', '.join(pinned)}, and an image that is pinned by digest cannot be made"
        )
    if shutil.which("mmdebstrap") is None:
        raise EngineMissing(
            f"no registry gives {', '.join(images)}, and without mmdebstrap they cannot be made from Debian packages: "
            "apt-get install mmdebstrap"
        )
    lines = release.read_text().splitlines() if release.exists() else []
    if not {"ID=debian", f"VERSION_CODENAME={_SUITE}"} <= set(lines):
        raise EngineMissing(
            f"no registry gives {', '.join(images)}, and only Debian {_SUITE} can make them from packages: "
            "this machine's apt has another distribution. Pull them elsewhere and bring them here (podman save, load)"
        )


def build_images(engine: ContainerEngine, builds: Mapping[str, Mapping[str, Any]], root: Path, say: _Say) -> None:
    """Builds each image once. Raises EngineFailed."""
    # Made here, the base images have no apt sources; pulled, they have their own distribution's.
    sources = engine.try_run("image", "inspect", _DEBIAN).returncode == 0
    for image, build in builds.items():
        began = time.monotonic()
        arguments = [f"--build-arg={each}" for each in list_build_arguments(build)]
        words = ["--file", str(root / build["dockerfile"]), "--target", build["target"], "--tag", image]
        with _lend_settings(root / ".watershed", sources=sources) as lent:
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
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        tar = f"{folder}/debian.tar"
        done = subprocess.run(
            build_debian_command(tar, _list_apt_sources()), capture_output=True, text=True, check=False, timeout=_BASE_S
        )
        if done.returncode != 0:
            said = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise EngineFailed(f"mmdebstrap made no Debian {_SUITE} (exit {done.returncode}):\n{said}")
        engine.run("import", "--change", 'CMD ["bash"]', tar, _DEBIAN)


def build_debian_command(tar: str, sources: list[str]) -> list[str]:
    """mmdebstrap's command line. The machine's sources, which may name a password, do not stay in the image."""
    without = f"--customize-hook={_WITHOUT_SOURCES}"
    return ["mmdebstrap", "--variant=minbase", "--include=ca-certificates", without, _SUITE, tar, *sources]


def _list_apt_sources() -> list[str]:
    return [path for path in _APT_SOURCES if Path(path).exists()][:1]


@contextmanager
def _lend_settings(scratch: Path, *, sources: bool) -> Iterator[list[str]]:
    """Mounts by which a build uses this machine's certificates, pip settings and Maven cache, and if sources are wanted
    those of its apt. Nothing of them is in an image: `:O` are layers that are thrown away."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        lent = {"pip.conf": "/etc/pip.conf"}
        (folder / "pip.conf").write_text(
            render_pip_settings(_read_pip_settings(), certificates=_CERTIFICATES.is_file())
        )
        files = {str(Path.home() / ".m2" / "settings.xml"): "/root/.m2/settings.xml"}
        if sources:
            files |= {path: f"/etc/apt/sources.list.d/lent{Path(path).suffix}" for path in _list_apt_sources()}
        for number, (file, target) in enumerate(files.items()):
            if Path(file).exists():
                lent[f"{number}"] = target
                shutil.copyfile(file, folder / f"{number}")
        # Copies, because `z` gives a file the label (SELinux) that containers may read.
        mounts = [f"--volume={folder / copy}:{target}:ro,z" for copy, target in lent.items()]
        if _CERTIFICATES.is_file():
            mounts.append(f"--volume={_CERTIFICATES.parent}:{_CERTIFICATES.parent}:O")
        if (repository := Path.home() / ".m2" / "repository").exists():
            mounts.append(f"--volume={repository}:/root/.m2/repository:O")
        yield mounts


def render_pip_settings(told: str, *, certificates: bool) -> str:
    """A pip.conf from what `pip config list` says (variables of the environment among it)."""
    kept: dict[str, str] = {}
    for line in told.splitlines():
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in _PIP_KEYS:
            # Several values, of extra-index-url say, have a line each; a line that goes on is indented.
            kept[key] = "\n    ".join(str(ast.literal_eval(value)).split())
    if certificates:
        kept["cert"] = str(_CERTIFICATES)
    return "\n".join(["[global]", *(f"{key} = {value}" for key, value in kept.items()), ""])


def _read_pip_settings() -> str:
    return subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
