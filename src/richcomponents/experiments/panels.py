"""Rows -> figures: one per panel, and the joined one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from richcomponents.algebra import Array
from richcomponents.experiments.rows import Panel, Row, Settings
from richcomponents.outputs import writing

# Okabe and Ito's colours, told apart by colour-blind readers; the markers repeat the distinction.
STYLES: dict[str, dict[str, Any]] = {
    "true": {"color": "#000000", "marker": "s"},
    "known": {"color": "#56B4E9", "marker": "^"},
    "rca": {"color": "#0072B2", "marker": "o", "linewidth": 2.4, "zorder": 5},
    "rca_auto": {"color": "#56B4E9", "marker": "^"},
    "paper": {"color": "#D55E00", "marker": "x"},
    "exact": {"color": "#009E73", "marker": "D"},
    "default": {"color": "#CC79A7", "marker": "", "linestyle": "--"},
    "covariates": {"color": "#009E73", "marker": "D"},
    "cca": {"color": "#CC79A7", "marker": "v"},
    "cca5": {"color": "#CC79A7", "marker": "v", "linestyle": "--", "markerfacecolor": "white"},
    "naive": {"color": "#E69F00", "marker": "P"},
}
DIMENSION_COLOURS = ("#0072B2", "#009E73", "#E69F00")
AXIS_NAMES = {
    "n": "samples N",
    "strength": "perturbation sd(S2) / sd(S1)",
    "step": "SGD step",
    "scale": "scale of the lab biases",
}
_MAY_LEAVE = ("paper", "cca5")  # these can be off by orders of magnitude: they do not set the scale of the axis


@dataclass(frozen=True)
class Curve:
    """Mean, standard deviation and number of the repeats at each x."""

    x: Array
    mean: Array
    sd: Array
    count: Array

    @property
    def standard_error(self) -> Array:
        return np.asarray(self.sd / np.sqrt(self.count))

    def at(self, x: float) -> float:
        """The mean at x."""
        return float(self.mean[np.flatnonzero(self.x == x)[0]])


Curves = Mapping[tuple[str, str, str], Curve]  # of (panel, case, method)


def curves_of(rows: Iterable[Row]) -> Curves:
    """(panel, case, method) -> what was measured."""
    grouped: dict[tuple[str, str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        grouped[row["panel"], row["case"], row["method"]][row["x"]].append(row["value"])
    out = {}
    for key, by_x in grouped.items():
        xs = sorted(by_x)
        values = [np.array(by_x[x]) for x in xs]
        sds = [v.std(ddof=1) if len(v) > 1 else 0.0 for v in values]
        out[key] = Curve(
            np.array(xs), np.array([v.mean() for v in values]), np.array(sds), np.array([len(v) for v in values])
        )
    return out


def panel_figure(settings: Settings, curves: Curves, name: str) -> Figure:
    """One panel: an axis per mixing matrix, or one in all."""
    panel = settings.panels[name]
    cases = _cases(curves, panel)
    width = 4.2 * len(cases)
    figure = Figure(figsize=(max(width, 6.0), 4.9), layout="constrained")
    axes = figure.subplots(1, len(cases), squeeze=False, sharey=True)[0]
    for axis, case in zip(axes, cases, strict=True):
        _draw(axis, settings, curves, panel, case)
        axis.set_title(settings.mixings.get(case, case), fontsize=9, parse_math=False)  # it may be the name of a file
        axis.label_outer()
    figure.suptitle(f"{_letter(panel)}{panel.title}{_setting(panel)}", fontsize=12, fontweight="bold")
    _legend(figure, axes[0], columns=2 if len(cases) > 1 else 1)
    return figure


def joined_figure(settings: Settings, curves: Curves) -> Figure:
    """All panels of Figure 1 that were measured, five columns wide."""
    present = [name for name in settings.panels if len(name) == 1 and any(key[0] == name for key in curves)]
    cells = _joined_cells([settings.panels[name] for name in present], curves)
    depth = max(len(line) for line in cells)
    figure = Figure(figsize=(4.0 * depth, 3.5 * len(cells) + 0.8), layout="constrained")
    grid = figure.subplots(len(cells), depth, squeeze=False)
    for line, axes in zip(cells, grid, strict=True):
        for position, axis in enumerate(axes):
            if position >= len(line):
                axis.set_axis_off()
                continue
            panel, case = line[position]
            _draw(axis, settings, curves, panel, case)
            short = f", A {case}" if case in settings.mixings else ""
            axis.set_title(f"{_letter(panel)}{panel.title}{short}", fontsize=10, fontweight="bold", loc="left")
    mixings = "; ".join(f"{name}: {text}" for name, text in settings.mixings.items())
    about = (
        "Figure 1 of Ge and Zou, measured again: mean squared error, mean and standard deviation over repeats. "
        f"The paper does not say which A it used in a-j: both are shown. {mixings}"
    )
    figure.suptitle(fill(about, width=40 * depth), fontsize=12)
    common = [axis for axis in figure.axes if axis.get_xscale() == "log" and axis.get_legend() is None]
    _legend(figure, max(common or figure.axes, key=lambda axis: len(axis.containers)), columns=4)
    _legend_of_steps(figure)
    return figure


def _legend_of_steps(figure: Figure) -> None:
    """Panels over gradient steps have methods of their own: their legend stands in an empty cell, or else in the panel."""
    steps = [axis for axis in figure.axes if axis.get_xscale() == "symlog"]
    if steps:
        fullest = max(steps, key=lambda axis: len(axis.containers))
        empty = [axis for axis in figure.axes if not axis.axison]
        place = empty[0] if empty else fullest
        place.legend(*fullest.get_legend_handles_labels(), title="f, g", loc="upper left", fontsize=9)


def save_figure(figure: Figure, directory: Path, stem: str) -> None:
    """PNG and SVG; the same bytes for the same figure."""
    directory.mkdir(parents=True, exist_ok=True)
    with writing(directory / f"{stem}.png") as file:
        figure.savefig(file, format="png", dpi=130)
    with matplotlib.rc_context({"svg.hashsalt": "richcomponents"}), writing(directory / f"{stem}.svg") as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


# ---- parts of a figure


def _cases(curves: Curves, panel: Panel) -> list[str]:
    """One axis each; the dimensions of a panel share one, named ""."""
    if "dimensions" in panel.options:
        return [""]
    measured = [key[1] for key in curves if key[0] == panel.name]
    return [case for case in panel.cases if case in measured] or sorted(set(measured))


def _joined_cells(panels: Sequence[Panel], curves: Curves) -> list[list[tuple[Panel, str]]]:
    """Rows of (panel, case): sample sizes for each A; then steps and A itself; then strengths for each A."""
    groups: dict[str, list[Panel]] = defaultdict(list)
    for panel in panels:
        groups["single" if panel.x == "step" or "dimensions" in panel.options else panel.x].append(panel)
    lines: list[list[tuple[Panel, str]]] = []
    for group in ("n", "single", "strength"):
        members = groups[group]
        if group == "single":
            lines.append([(panel, case) for panel in members for case in _cases(curves, panel)])
            continue
        for case in dict.fromkeys(case for panel in members for case in _cases(curves, panel)):
            lines.append([(panel, case) for panel in members])
    return [line for line in lines if line]


def _draw(axis: Axes, settings: Settings, curves: Curves, panel: Panel, case: str) -> None:
    if panel.x == "step":  # step 0 is the start
        axis.set_xscale("symlog", linthresh=1, linscale=0.3)
    else:
        axis.set_xscale("log")
    axis.set_yscale("log", nonpositive="clip")
    drawn: list[tuple[str, Curve]] = []
    if "dimensions" in panel.options:
        for method in panel.methods:
            for colour, dimension in zip(DIMENSION_COLOURS, panel.cases, strict=False):
                curve = curves.get((panel.name, dimension, method))
                if curve is not None:
                    style = {**STYLES[method], "color": colour, "linewidth": 1.6}
                    style["linestyle"] = ":" if method == "paper" else "-"
                    _errorbar(axis, curve, 0.0, label=f"{dimension}, {settings.methods[method]}", **style)
                    drawn.append(("", curve))
        if len(axis.lines):
            axis.legend(fontsize=7, framealpha=0.8)
    else:
        for number, method in enumerate(panel.methods):
            curve = curves.get((panel.name, case, method))
            if curve is not None and method in STYLES:
                dodge = 0.0 if panel.x == "step" else number - (len(panel.methods) - 1) / 2
                _errorbar(axis, curve, dodge, label=method_label(settings, panel, method), **STYLES[method])
                drawn.append((method, curve))
    axis.set_xlabel(AXIS_NAMES[panel.x])
    what = "mean squared error of A" if "dimensions" in panel.options else "mean squared error"
    axis.set_ylabel(f"{what} (± sd)")
    axis.grid(alpha=0.25, which="major")
    ticks = [x for x in panel.values if panel.x != "step" or f"{x:g}"[0] in "01"]
    axis.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axis.minorticks_off()
    _scale(axis, drawn)


def _errorbar(axis: Axes, curve: Curve, dodge: float, **style: Any) -> None:
    """Points a little apart, so that bars of different methods do not hide each other."""
    axis.errorbar(
        curve.x * 1.025**dodge,
        curve.mean,
        yerr=curve.sd,
        capsize=2,
        elinewidth=0.8,
        markersize=4.5,
        **{"linewidth": 1.4, **style},
    )


def _scale(axis: Axes, drawn: Sequence[tuple[str, Curve]]) -> None:
    held = [curve for method, curve in drawn if method not in _MAY_LEAVE] or [curve for _, curve in drawn]
    if not held:
        return
    low = min(float(curve.mean.min()) for curve in held)
    high = max(float((curve.mean + curve.sd).max()) for curve in held)
    top = max(float((curve.mean + curve.sd).max()) for _, curve in drawn)
    axis.set_ylim(low / 2, 1.4 * min(top, 10 * high))


def method_label(settings: Settings, panel: Panel, method: str) -> str:
    """What a method is called in a panel."""
    return str(panel.options.get("labels", {}).get(method, settings.methods.get(method, method)))


def _letter(panel: Panel) -> str:
    return f"{panel.name}  " if len(panel.name) == 1 else ""


def _setting(panel: Panel) -> str:
    return f", N = {panel.options['n']}" if "n" in panel.options else ""


def _legend(figure: Figure, axis: Axes, *, columns: int) -> None:
    handles, labels = axis.get_legend_handles_labels()
    if axis.get_legend() is None and handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
