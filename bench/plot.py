"""The results of `bench.replicate` as pictures, PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Row = dict[str, Any]

# Okabe and Ito (2008): told apart also without seeing red or green.
_COLOURS = {"limit": "#999999", "watershed": "#0072B2", "mm2 tuned": "#E69F00", "mm2 default": "#D55E00"}


def plot_throughput(rows: Sequence[_Row], directory: Path) -> None:
    """replicate.png/.svg: records a second of each case, and what a record costs."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, (fast, cheap) = _figure(2, len(cases))
    for axes, key, title in (
        (fast, "krecords_s", "records a second, thousands (more is better)"),
        (cheap, "cpu_s_per_m", "CPU seconds per million records (less is better)"),
    ):
        contenders = [name for name in _COLOURS if key == "krecords_s" or name != "limit"]
        for number, contender in enumerate(contenders):
            found = {row["case"]: max(row[key], 1e-3) for row in rows if row["contender"] == contender}
            width = 0.8 / len(contenders)
            at = [
                index + (number - (len(contenders) - 1) / 2) * width
                for index, case in enumerate(cases)
                if case in found
            ]
            axes.barh(
                at, [found[case] for case in cases if case in found], width, color=_COLOURS[contender], label=contender
            )
        axes.set_xscale("log")
        axes.set_title(title, fontsize=10, loc="left")
    fast.set_yticks(range(len(cases)), [_words(case) for case in cases])
    fast.invert_yaxis()
    _finish(figure, fast, directory / "replicate")


def plot_latencies(rows: Sequence[_Row], directory: Path) -> None:
    """replicate-latency.png/.svg: added latency at 1,000 records a second, with and without load."""
    loads = list(dict.fromkeys(row["load"] for row in rows))
    figure, panels = _figure(len(loads), 5)
    figures = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}
    for axes, load in zip(panels, loads, strict=True):
        contenders = [name for name in _COLOURS if any(row["contender"] == name for row in rows)]
        for number, contender in enumerate(contenders):
            row = next(row for row in rows if row["load"] == load and row["contender"] == contender)
            width = 0.8 / len(contenders)
            at = [index + (number - (len(contenders) - 1) / 2) * width for index in range(len(figures))]
            axes.barh(at, [max(row[key], 0.05) for key in figures], width, color=_COLOURS[contender], label=contender)
        axes.set_xscale("log")
        axes.set_title(f"ms added, {load}", fontsize=10, loc="left")
    panels[0].set_yticks(range(len(figures)), list(figures.values()))
    panels[0].invert_yaxis()
    _finish(figure, panels[0], directory / "replicate-latency")


def _figure(columns: int, groups: int) -> tuple[Figure, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "watershed"  # the same figures give the same file
    from matplotlib import pyplot

    size = (11, 1.6 + 0.55 * groups)
    figure, grid = pyplot.subplots(1, columns, sharey=True, figsize=size, layout="constrained", squeeze=False)
    axes = grid[0]
    for each in axes:
        each.grid(axis="x", alpha=0.3)
        each.set_axisbelow(True)
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _finish(figure: Figure, axes: Any, path: Path) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path.with_suffix(".png"), dpi=130)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def _words(case: str) -> str:
    size, codec, batch = case.split("-")
    return f"{size.removesuffix('b')} B, {codec}, {batch} a batch"
