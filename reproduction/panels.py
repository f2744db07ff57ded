"""Rows -> figures: one per panel, and the joined one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction.settings import Array, Panel, Settings
from rows import Row

# Okabe and Ito's colours, told apart by colour-blind readers; the markers repeat the distinction.
STYLES: dict[str, dict[str, Any]] = {
    "true": {"color": "#000000", "marker": "s"},
    "paper_true": {"color": "#000000", "marker": "s", "linestyle": "--", "markerfacecolor": "white"},
    "paper_known": {"color": "#D55E00", "marker": "X", "linestyle": "--", "markerfacecolor": "white"},
    "paper": {"color": "#D55E00", "marker": "X"},
    "known": {"color": "#0072B2", "marker": "o", "linestyle": "--", "markerfacecolor": "white"},
    "rca": {"color": "#0072B2", "marker": "o", "linewidth": 2.4, "zorder": 5},
    "rca_auto": {"color": "#56B4E9", "marker": "^"},
    "default": {"color": "#56B4E9", "marker": "", "linestyle": "--"},
    "covariates": {"color": "#009E73", "marker": "D"},
    "cca": {"color": "#CC79A7", "marker": "v"},
    "cca5": {"color": "#CC79A7", "marker": "v", "linestyle": "--", "markerfacecolor": "white"},
    "kernel_cca": {"color": "#CC79A7", "marker": "*", "linestyle": ":", "markersize": 8},
    "naive": {"color": "#E69F00", "marker": "P"},
    "paper_cca": {"color": "#CC79A7", "marker": "v", "linewidth": 0.8},
    "paper_cca5": {"color": "#CC79A7", "marker": "v", "linestyle": "--", "linewidth": 0.8},
    "paper_kernel_cca": {"color": "#CC79A7", "marker": "*", "linestyle": ":", "linewidth": 0.8},
    "paper_naive": {"color": "#E69F00", "marker": "P", "linestyle": "--", "linewidth": 0.8},
    "regression": {"color": "#009E73", "marker": "D"},
    "zero": {"color": "#999999", "marker": "", "linestyle": ":"},
}
AXIS_NAMES = {
    "n": "samples N",
    "strength": "perturbation sd(S2) / sd(S1)",
    "step": "SGD step",
    "degree": "degree of the polynomial",
    "scale": "scale of the lab biases",
}
_DEPTH = 6  # cells of a row of the joined figure


@dataclass(frozen=True)
class Curve:
    """What was measured at each x; draws : errors (repeats,), in the order of the repeats, which are those of all methods."""

    x: Array
    draws: tuple[Array, ...]

    @cached_property
    def mean(self) -> Array:
        return np.array([values.mean() for values in self.draws])

    @cached_property
    def sd(self) -> Array:
        return np.array([values.std(ddof=1) if len(values) > 1 else 0.0 for values in self.draws])

    @property
    def count(self) -> Array:
        return np.array([len(values) for values in self.draws])

    @property
    def standard_error(self) -> Array:
        return np.asarray(self.sd / np.sqrt(self.count))

    def draws_at(self, x: float) -> Array:
        return self.draws[int(np.flatnonzero(self.x == x)[0])]

    def at(self, x: float) -> float:
        """The mean at x."""
        return float(self.draws_at(x).mean())


Curves = Mapping[tuple[str, str, str], Curve]  # of (panel, case, method)


def curves_of(rows: Iterable[Row]) -> Curves:
    """(panel, case, method) -> what was measured."""
    grouped: dict[tuple[str, str, str], dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        grouped[row["panel"], row["case"], row["method"]][row["x"]][row["repeat"]] = row["value"]
    return {
        key: Curve(np.array(sorted(by_x)), tuple(np.array([by_x[x][r] for r in sorted(by_x[x])]) for x in sorted(by_x)))
        for key, by_x in grouped.items()
    }


def panel_figure(settings: Settings, curves: Curves, name: str) -> Figure:
    """One panel: an axis per case, or one in all; the legend stands below."""
    panel = settings.panels[name]
    cells = _cells(curves, panel)
    wide = 0.85 * len(cases_of(curves, panel)) if cells == [""] else 4.2 * len(cells)
    figure = Figure(figsize=(max(wide, 7.5), 5.2), layout="constrained")
    axes = figure.subplots(1, len(cells), squeeze=False, sharey=True)[0]
    for axis, case in zip(axes, cells, strict=True):
        _draw(axis, settings, curves, panel, case)
        axis.set_title(settings.mixings.get(case, case), fontsize=9, parse_math=False)  # it may be the name of a file
        axis.label_outer()
    figure.suptitle(f"{_letter(panel)}{panel.title}{_setting(panel)}", fontsize=12, fontweight="bold")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def joined_figure(settings: Settings, curves: Curves) -> Figure:
    """All panels of Figure 1 that were measured; legends have cells of their own."""
    present = [name for name in settings.panels if len(name) == 1 and any(key[0] == name for key in curves)]
    lines = _joined_lines([settings.panels[name] for name in present], curves)
    depth = min(max(map(len, lines)) + 1, _DEPTH)  # of few panels, no empty half
    figure = Figure(figsize=(3.7 * depth, 3.3 * len(lines) + 0.5), layout="constrained")
    grid = figure.subplots(len(lines), depth, squeeze=False)
    for line, axes in zip(lines, grid, strict=True):
        for axis, (panel, case) in zip(axes, line, strict=False):
            _draw(axis, settings, curves, panel, case)
            short = f", A {case}" if case in settings.mixings else f", {case}" if case else ""
            axis.set_title(f"{_letter(panel)}{panel.title}{short}", fontsize=10, fontweight="bold", loc="left")
        for axis in axes[len(line) :]:
            axis.set_axis_off()
        if len(line) < depth:
            methods = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
            place = axes[len(line)]
            place.legend(methods.values(), methods.keys(), loc="center left", fontsize=9, frameon=False)
    mixings = "; ".join(f"{name}: {text}" for name, text in settings.mixings.items())
    about = (
        "Figure 1 of Ge and Zou, measured again: mean squared error, mean and standard deviation over repeats. "
        f"The paper does not say which A it used in a-j: both are shown. {mixings}"
    )
    figure.suptitle(fill(about, width=30 * depth), fontsize=12)
    return figure


# ---- parts of a figure


def _cells(curves: Curves, panel: Panel) -> list[str]:
    """One axis each; designs side by side share one, named ""."""
    if "designs" in panel.options:
        return [""]
    return cases_of(curves, panel)


def cases_of(curves: Curves, panel: Panel) -> list[str]:
    """The cases that were measured, in the order of the settings."""
    measured = [key[1] for key in curves if key[0] == panel.name]
    return [case for case in panel.cases if case in measured] or sorted(set(measured))


def _joined_lines(panels: Sequence[Panel], curves: Curves) -> list[list[tuple[Panel, str]]]:
    """Rows of (panel, case): sample sizes for each A; steps; strengths; A itself."""
    groups: dict[str, list[Panel]] = defaultdict(list)
    for panel in panels:
        groups["A" if "dimensions" in panel.options else panel.x].append(panel)
    cells = {x: [(panel, case) for panel in members for case in _cells(curves, panel)] for x, members in groups.items()}
    lines: list[list[tuple[Panel, str]]] = []
    for group in ("n", "step", "strength", "A"):
        held = cells.get(group, [])
        if group in ("n", "strength"):  # one A after the other
            order = list(dict.fromkeys(case for _, case in held))
            held = sorted(held, key=lambda cell: order.index(cell[1]))
        width = len(groups[group]) if len(held) > _DEPTH else _DEPTH
        lines += [held[i : i + width] for i in range(0, len(held), width)]
    return lines


def _draw(axis: Axes, settings: Settings, curves: Curves, panel: Panel, case: str) -> None:
    axis.set_yscale("log", nonpositive="mask")
    if "designs" in panel.options:
        _draw_designs(axis, settings, curves, panel)
    else:
        _draw_curves(axis, settings, curves, panel, case)
    what = "mean squared error of A" if "dimensions" in panel.options else "mean squared error"
    axis.set_ylabel(f"{what} (± sd)")
    axis.grid(alpha=0.25, which="major")


def _draw_curves(axis: Axes, settings: Settings, curves: Curves, panel: Panel, case: str) -> None:
    if panel.x == "step":  # step 0 is the start
        axis.set_xscale("symlog", linthresh=1, linscale=0.3)
    else:
        axis.set_xscale("log")
    shown = [m for m in panel.methods if m in STYLES and (panel.name, case, m) in curves]
    for number, method in enumerate(shown):
        curve = curves[panel.name, case, method]
        dodge = 1.0 if panel.x == "step" else 1.025 ** (number - (len(shown) - 1) / 2)
        label = method_label(settings, panel, method)
        _errorbar(axis, curve.x * dodge, curve.mean, curve.sd, label=label, **STYLES[method])
    axis.set_xlabel(AXIS_NAMES[panel.x])
    ticks = [x for x in panel.values if panel.x != "step" or f"{x:g}"[0] in "01"]
    axis.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axis.minorticks_off()


def _draw_designs(axis: Axes, settings: Settings, curves: Curves, panel: Panel) -> None:
    """Cases side by side at one x, a mark for each method."""
    cases = cases_of(curves, panel)
    shown = [m for m in panel.methods if m in STYLES and any((panel.name, case, m) in curves for case in cases)]
    for number, method in enumerate(shown):
        held = [
            (i, curves[panel.name, case, method])
            for i, case in enumerate(cases)
            if (panel.name, case, method) in curves
        ]
        at = np.array([i for i, _ in held]) + 0.8 * ((number + 0.5) / len(shown) - 0.5)
        mean, sd = (np.array([getattr(curve, what)[0] for _, curve in held]) for what in ("mean", "sd"))
        style = {**STYLES[method], "linestyle": ""}
        _errorbar(axis, at, mean, sd, label=method_label(settings, panel, method), **style)
    axis.set_xticks(range(len(cases)), [case.replace(", ", "\n") for case in cases], fontsize=7)
    for edge in range(1, len(cases)):
        axis.axvline(edge - 0.5, color="#cccccc", linewidth=0.6)


def _errorbar(axis: Axes, x: Array, mean: Array, sd: Array, **style: Any) -> None:
    """Points a little apart, so that bars do not hide each other; a bar that would reach zero ends at a tenth of the mean."""
    down = np.minimum(sd, 0.9 * mean)
    options = {"linewidth": 1.4, "markersize": 4.5, **style}
    axis.errorbar(x, mean, yerr=np.stack([down, sd]), capsize=1.5, elinewidth=0.6, **options)


def method_label(settings: Settings, panel: Panel, method: str) -> str:
    """What a method is called in a panel."""
    return str(panel.options.get("labels", {}).get(method, settings.methods.get(method, method)))


def _letter(panel: Panel) -> str:
    return f"{panel.name}  " if len(panel.name) == 1 else ""


def _setting(panel: Panel) -> str:
    return f", N = {panel.options['n']}" if "n" in panel.options else ""
