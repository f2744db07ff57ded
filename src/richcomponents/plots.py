"""Plots for people: plain arrays (or a table of them) in, matplotlib Axes out.

Every function takes `ax=None` and draws on a new figure of fitting size then. Wide inputs are cut to their `MOST` largest
entries, which the title says. Names are drawn literally (a `$` in a column name is no formula). matplotlib is imported
when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from richcomponents.algebra import Array, IntArray
from richcomponents.cumulants.estimate import READABLE
from richcomponents.text import in_lines, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from richcomponents.components.component import VarianceTable
    from richcomponents.cumulants.estimate import Estimate


MOST = 25
"""Features shown in one plot."""

# told apart by colour-blind readers, on light and on dark paper
BLUE, ORANGE, GREEN, PINK, GREY = "#3b82c4", "#e08e0b", "#0f9d76", "#c2489a", "#8a919c"
_MARKERS = {
    "naive": ("s", ORANGE),
    "residualised": ("D", GREEN),
    "adjusted": ("D", GREEN),
    "ANCOVA": ("D", GREEN),
    "RUV-2": ("^", GREY),
    "RCA": ("o", BLUE),
    "truth": ("*", PINK),
}
_LONGEST, _LINE = 24, 36  # letters of a name, and of a line below an axis
_DODGED = (-0.24, 0.24, -0.12, 0.12)  # where other methods stand beside the estimate, so that none lies on another
PALE = "#c9ced6"


def largest(values: Array, most: int = MOST) -> IntArray:
    """Positions (at most `most`) of the entries largest in size, in their original order.

    >>> largest(np.array([1.0, -5.0, 0.1, 3.0]), 2).tolist()
    [1, 3]
    """
    size = np.nan_to_num(np.abs(values), nan=0.0)
    return np.sort(np.argsort(-size, kind="stable")[:most])


def new_figure(width: float, height: float) -> Any:
    """A figure of pyplot, in inches. A notebook draws what a cell returns, and at its end all figures that pyplot holds: one
    that was returned is drawn once."""
    import matplotlib.pyplot as plt

    figure: Any = plt.figure(figsize=(width, height), layout="constrained")
    figure._ipython_display_ = partial(_draw_once, figure)
    return figure


def _draw_once(figure: Any) -> None:
    """What IPython asks first when it shows a figure: pyplot lets go of it, and it is shown as any other is."""
    import matplotlib.pyplot as plt

    if "inline" in plt.get_backend():  # elsewhere it has a window
        plt.close(figure)
    raise NotImplementedError


def _axes(ax: Axes | None, width: float, height: float) -> Any:
    """Where to draw: as given, or a new figure of this size."""
    return new_figure(width, height).subplots() if ax is None else ax


def _wrapped(text: str) -> str:
    """The label of an axis, in lines that a figure has room for."""
    return fill(plain(text), _LINE)


def _literal(*texts: Any) -> None:
    """A $ in a name is no formula."""
    for text in texts:
        text.set_parse_math(False)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Names on the vertical axis, the first on top."""
    ax.set_yticks(np.arange(len(names)), in_lines(names, _LONGEST))
    _literal(*ax.get_yticklabels())
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def _title(ax: Axes, *parts: str) -> None:
    ax.set_title(plain(", ".join(filter(None, parts))), loc="left", fontsize="medium", parse_math=False)


def _bar(figure: Any, drawn: Any, label: str, pad: float, ax: Any) -> None:
    bar = figure.colorbar(drawn, ax=ax, fraction=0.05, pad=pad)
    bar.set_label(plain(label), parse_math=False)
    bar.outline.set_visible(False)


def _frame(ax: Axes, title: str, shown: int, total: int) -> None:
    _title(ax, title, f"{shown} largest of {total}" if shown < total else "")
    ax.spines[["top", "right"]].set_visible(False)


def _legend(ax: Axes) -> None:
    """Below the only picture of a figure that makes room for it, beside others. Names are drawn literally."""
    figure: Any = ax.figure
    if len(figure.axes) == 1 and figure.get_layout_engine() is not None:
        handles, labels = ax.get_legend_handles_labels()
        legend = figure.legend(handles, labels, loc="outside lower left", ncols=3, frameon=False, fontsize="small")
    else:
        legend = ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    _literal(*legend.get_texts())


def correlation_plot(correlations: Array, rank: int, *, ax: Axes | None = None) -> Axes:
    """Canonical correlations (k,) as bars; the first `rank`, taken to be shared, in colour."""
    shown = min(len(correlations), max(MOST, rank))
    ax = _axes(ax, 6.4, 2.8)
    colours = [BLUE if i < rank else GREY for i in range(shown)]
    ax.bar(np.arange(1, shown + 1), correlations[:shown], color=colours, width=0.75)
    if 0 < rank < shown:
        ax.axvline(rank + 0.5, color=GREY, linestyle="--", linewidth=1)
    ax.set_ylim(0, 1)
    ax.set_xlim(0.4, shown + 0.6)
    ax.set_xticks(np.arange(1, shown + 1, max(1, shown // 12)))
    ax.set_xlabel("canonical direction")
    ax.set_ylabel("correlation of U and V")
    _frame(ax, f"{rank} of {len(correlations)} directions taken as shared", shown, len(correlations))
    return ax


def variance_plot(
    names: Sequence[str],
    own: Array,
    shared: Array,
    low: Array | None = None,
    high: Array | None = None,
    *,
    estimated: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Each feature's variance as shares: its own part (d,) and the part shared with the other view (d,).

    low, high : limits of the own part (d,); between them variance may be of either part, and the estimate is a line.
    estimated : whether there is an estimate at all, or the limits only.
    """
    total = np.maximum(own + shared, np.finfo(float).tiny)
    rows = largest(shared / total)
    ax = _axes(ax, 6.4, 1.3 + 0.26 * len(rows))
    mine = (own / total)[rows]
    least, utmost = mine, mine
    if low is not None and high is not None:
        ends = (np.where(np.isfinite(end), end / total, own / total) for end in (low, high))
        least, utmost = (np.clip(end, 0, 1)[rows] for end in ends)
    at = np.arange(len(rows))
    ax.barh(at, least, color=BLUE, height=0.7, label="own (S1)")
    if np.any(utmost > least):
        ax.barh(at, utmost - least, left=least, color=PALE, hatch="////", edgecolor=GREY, linewidth=0, height=0.7,
                label="one or the other")  # fmt: skip
        if estimated:
            ax.vlines(mine, at - 0.35, at + 0.35, color=PINK, linewidth=2, label="estimate")
    ax.barh(at, 1 - utmost, left=utmost, color=ORANGE, height=0.7, label="shared (S2)")
    _name_rows(ax, [names[i] for i in rows])
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the variance of U")
    _frame(ax, "Own and shared variance", len(rows), len(names))
    _legend(ax)
    return ax


def interval_plot(
    names: Sequence[str],
    points: Mapping[str, Array],
    low: Array | None = None,
    high: Array | None = None,
    *,
    identified: tuple[Array, Array] | None = None,
    title: str = "",
    label: str = "",
    ax: Axes | None = None,
) -> Axes:
    """One row per quantity: a marker for each method, a line for the confidence interval, a band for the identified set.

    points : {"naive" | "residualised" | "RCA" | "truth": (d,)}. low, high : confidence limits (d,) of "RCA". identified :
    both ends (d,) of what second moments alone allow.
    """
    rows = largest(points.get("RCA", next(iter(points.values()))))
    ax = _axes(ax, 6.4, 1.3 + 0.3 * len(rows))
    at = np.arange(len(rows))
    ax.use_sticky_edges = False  # a band at the edge leaves room for markers
    if identified is not None:
        width = np.maximum(identified[1] - identified[0], 0.0)[rows]
        ax.barh(at, width, left=identified[0][rows], height=0.62, color=BLUE, alpha=0.22, label="identified set")
    if low is not None and high is not None:
        known = np.isfinite(low[rows]) & np.isfinite(high[rows])
        if known.any():
            ax.hlines(at[known], low[rows][known], high[rows][known], color=BLUE, linewidth=2, label="95% interval")
    others = [method for method in points if method != "RCA"]
    for method, values in points.items():
        marker, colour = _MARKERS.get(method, ("P", GREY))
        size = 9 if marker == "*" else 6
        beside = at + (_DODGED[others.index(method) % len(_DODGED)] if method in others else 0.0)
        ax.plot(values[rows], beside, marker, color=colour, markersize=size, label=method, linestyle="none")
    if ax.get_xlim()[0] < 0 < ax.get_xlim()[1]:
        ax.axvline(0, color=GREY, linewidth=0.8, zorder=0)
    _name_rows(ax, [names[i] for i in rows])
    ax.set_xlabel(_wrapped(label), parse_math=False)
    _frame(ax, title, len(rows), len(names))
    _legend(ax)
    return ax


def heat_map(
    matrix: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    label: str = "",
    known: Array | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A matrix (m, n) in colours around zero; of a large one, the rows and columns with the largest norms.

    known : (m, n), False where the sign of the entry is open; there the cell is grey.
    """
    from matplotlib.colors import ListedColormap

    keep_rows = largest(np.linalg.norm(np.nan_to_num(matrix), axis=1))
    keep_columns = largest(np.linalg.norm(np.nan_to_num(matrix), axis=0))
    part = matrix[np.ix_(keep_rows, keep_columns)]
    ax = _axes(ax, *heat_map_size(rows, columns))
    scale = max(float(np.nanmax(np.abs(part), initial=0.0)), np.finfo(float).tiny)
    mesh = ax.pcolormesh(part, cmap="RdBu_r", vmin=-scale, vmax=scale, edgecolors="face", linewidth=0.2)
    if known is not None and not known.all():
        hidden = np.ma.masked_array(np.ones(part.shape), known[np.ix_(keep_rows, keep_columns)].astype(np.bool_))
        ax.pcolor(hidden, cmap=ListedColormap([PALE]), hatch="////", edgecolor=GREY, linewidth=0)
    down, across = (
        in_lines([names[i] for i in kept], _LONGEST) for names, kept in ((rows, keep_rows), (columns, keep_columns))
    )
    ax.set_xticks(np.arange(part.shape[1]) + 0.5, across, rotation=90)
    ax.set_yticks(np.arange(part.shape[0]) + 0.5, down)
    _literal(*ax.get_xticklabels(), *ax.get_yticklabels())
    ax.tick_params(length=0)
    ax.set_ylim(part.shape[0], 0)
    _bar(ax.figure, mesh, label, 0.03, ax)
    of = f"the largest {part.shape[0]} x {part.shape[1]} of {matrix.shape[0]} x {matrix.shape[1]}"
    _title(ax, title, of if part.shape != matrix.shape else "")
    ax.spines[:].set_visible(False)
    return ax


def heat_map_size(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float]:
    """Width and height in inches at which the cells and all names of :func:`heat_map` have room."""
    letters_down, letters_across = (max(min(len(name), _LONGEST) for name in names) for names in (rows, columns))
    width = 1.5 + 0.08 * letters_down + 0.3 * max(min(len(columns), MOST), 6)
    return width, 0.8 + 0.08 * letters_across + 0.24 * max(min(len(rows), MOST), 4)


def loading_plot(
    names: Sequence[str], loadings: Array, labels: Sequence[str], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Directions (k, d) over named coordinates: bars for one or two of them, a heat map for more."""
    if len(loadings) > 2:
        return heat_map(loadings.T, names, labels, title=title, label="loading", ax=ax)
    rows = largest(np.abs(loadings).max(axis=0))
    ax = _axes(ax, 6.4, 1.3 + 0.3 * len(rows))
    height = 0.8 / len(loadings)
    for i, (vector, name, colour) in enumerate(zip(loadings, labels, (BLUE, ORANGE), strict=False)):
        at = np.arange(len(rows)) + (i - (len(loadings) - 1) / 2) * height
        ax.barh(at, vector[rows], height=height * 0.9, color=colour, label=name)
    ax.axvline(0, color=GREY, linewidth=0.8)
    _name_rows(ax, [names[i] for i in rows])
    ax.set_xlabel("loading")
    _frame(ax, title, len(rows), len(names))
    _legend(ax)
    return ax


def estimate_plot(estimate: Estimate, **where: Any) -> Axes:
    """Its values, those of other methods (a known truth on top), limits and identified set; title, label,
    ax : as of :func:`interval_plot`."""
    points = {**estimate.others, "RCA": estimate.value}
    if "truth" in points:
        points["truth"] = points.pop("truth")
    drawn = interval_plot(estimate.names, points, estimate.low, estimate.high, identified=estimate.identified, **where)
    if estimate.positive:
        _odds_axis(drawn, estimate.positive)
    return drawn


def _odds_axis(ax: Axes, positive: str) -> None:
    """Log-odds below, what they multiply the odds by above."""
    above = ax.secondary_xaxis("top", functions=(lambda x: x, lambda x: x))
    above.set_xlabel(_wrapped(f"odds ratio of {positive}"), parse_math=False)
    above.xaxis.set_major_formatter(lambda x, _: f"{np.exp(x):.2g}" if abs(x) < READABLE else "")


def own_variance_plot(table: VarianceTable, **where: Any) -> Axes:
    """Var(S1) of each column by several methods, with confidence interval and identified set; title, label, ax : as of
    :func:`interval_plot`."""
    points = {"naive": table.total, "residualised": table.residualised, "RCA": table.own}
    identified = (table.identified_low, table.identified_high)
    return interval_plot(table.names, points, table.low, table.high, identified=identified, **where)


def volcano_plot(effects: Estimate, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Effects against -log10 of their p values; those below a false discovery rate of 10% are coloured, the twelve clearest
    named (unless a name would lie on another)."""
    ax = _axes(ax, 6.4, 4.6)
    p, found = np.maximum(effects.p_value, 1e-300), effects.q_value < 0.1
    height = -np.log10(p)
    ax.plot(effects.value[~found], height[~found], "o", color=GREY, markersize=3, alpha=0.6, label="q \u2265 0.1")
    ax.plot(effects.value[found], height[found], "o", color=BLUE, markersize=4, label="q < 0.1")
    ax.axvline(0, color=GREY, linewidth=0.8, zorder=0)
    ax.margins(x=0.12, y=0.08)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("effect")
    ax.set_ylabel("-log10 p")
    _frame(ax, title, 1, 1)
    _legend(ax)
    clearest = np.flatnonzero(found)[np.lexsort((-np.abs(effects.z[found]), p[found]))]
    names = in_lines([effects.names[i] for i in clearest[:200]], _LONGEST)
    _name_dots(ax, names, effects.value[clearest], height[clearest], 12)
    return ax


def _name_dots(ax: Axes, names: Sequence[str], x: Array, y: Array, most: int) -> None:
    """Names beside dots, away from zero, as many as fit inside without lying on each other or on a dot."""
    size, placed = 7.0, list[tuple[float, float, float, float]]()
    figure: Any = ax.figure
    figure.figure.draw_without_rendering()  # the axes have their place then
    edge = np.array([ax.bbox.x0, ax.bbox.x1]) * 72 / figure.dpi
    dots = ax.transData.transform(np.column_stack([x, y])) * 72 / ax.figure.dpi  # in points
    placed += [(a - 2, b - 2, a + 2, b + 2) for a, b in dots]
    most += len(placed)
    for name, value, at, (left, bottom) in zip(names, x, np.column_stack([x, y]), dots, strict=False):
        width, side = 0.62 * size * len(name), 1 if value >= 0 else -1
        if (left + 4 + width > edge[1]) if side > 0 else (left - 4 - width < edge[0]):
            side = -side
        start = left + 4 if side > 0 else left - 4 - width
        box = (start, bottom - 0.6 * size, start + width, bottom + 0.6 * size)
        if any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in placed):
            continue
        placed.append(box)
        ax.annotate(
            name, at, xytext=(4 * side, 0), textcoords="offset points", ha="left" if side > 0 else "right", va="center",
            fontsize=size, parse_math=False,
        ).set_in_layout(False)  # fmt: skip
        if len(placed) == most:
            return


def control_plot(hidden: Estimate, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Effects that held-out controls come out with, with limits, around their true value, zero."""
    ax = estimate_plot(hidden, title=title, label="effect (zero in truth)", ax=ax)
    ax.axvline(0, color=GREY, linewidth=1.2, linestyle="--", zorder=0)
    return ax


def sensitivity_plot(
    effects: Estimate, path: tuple[Array, Array, Array, float], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Effects of the columns that change most, from controls without noise (the controls as covariates) to nothing but noise.

    path : shares of noise (k,), lower and upper ends (k, d) of the effects that so much noise allows, and the share at which
    the estimate lies.
    """
    ax = _axes(ax, 6.8, 4.6)
    at, low, high, here = path
    shown = largest(high[-1] - low[-1], 10)
    shown = shown[np.argsort(-high[-1, shown])]  # named in the order in which the bands end
    for i, name in zip(shown, in_lines([effects.names[i] for i in shown], _LONGEST), strict=True):
        (line,) = ax.plot(at, high[:, i], linewidth=1.2, label=name)
        ax.plot(at, low[:, i], linewidth=1.2, color=line.get_color())
        ax.fill_between(at, low[:, i], high[:, i], color=line.get_color(), alpha=0.08, linewidth=0)
        ax.plot([here], [effects.value[i]], "o", color=line.get_color(), markersize=5)
    ax.axhline(0, color=GREY, linewidth=0.8, zorder=0)
    ax.axvline(here, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["none:\nadjusted", "1/4", "1/2", "3/4", "all that\nis possible"])
    ax.set_xlabel("assumed noise of the controls")
    ax.set_ylabel("effect")
    _frame(ax, title, len(shown), low.shape[1])
    _legend(ax)
    return ax


def distribution_plot(names: Sequence[str], values: Array, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Columns of values (n, d), each in its own standard deviations: range, middle half, median; the most skewed of many."""
    centred = values - np.nanmean(values, axis=0)
    scale = np.nanstd(values, axis=0)
    scaled = centred / np.where(scale > 0, scale, 1.0)
    rows = largest(np.nan_to_num(np.nanmean(scaled**3, axis=0)))
    ax = _axes(ax, 6.4, 1.3 + 0.26 * len(rows))
    least, low, middle, high, utmost = np.nanquantile(scaled[:, rows], [0, 0.25, 0.5, 0.75, 1], axis=0)
    at = np.arange(len(rows))
    ax.hlines(at, least, utmost, color=GREY, linewidth=1, label="range")
    ax.hlines(at, low, high, color=BLUE, linewidth=5, label="middle half")
    ax.plot(middle, at, "o", color=ORANGE, markersize=4, linestyle="none", label="median")
    _name_rows(ax, [names[i] for i in rows])
    ax.set_xlabel("standard deviations from the mean")
    _frame(ax, f"{title}, the {len(rows)} most skewed of {len(names)}" if len(rows) < len(names) else title, 1, 1)
    _legend(ax)
    return ax


_CLASSES = (BLUE, ORANGE, GREEN, PINK, "#7a5fc0", GREY)


def sample_plot(
    figure: Any, before: Array, after: Array, colour: Array | None, label: str, titles: Sequence[str] = ()
) -> None:
    """Samples (n, 2) in two directions before and after cleaning, on one scale; colour : (n,) numbers or texts, or None."""
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    classes = [] if colour is None else sorted({str(one) for one in colour})
    for ax, points, title in zip(panels, (before, after), titles or ("before", "after"), strict=True):
        if colour is None:
            ax.plot(*points.T, "o", color=BLUE, markersize=3, alpha=0.6)
        elif len(classes) <= len(_CLASSES):
            for name, short, shade in zip(classes, in_lines(classes, _LONGEST), _CLASSES, strict=False):
                chosen = np.array([str(one) == name for one in colour])
                ax.plot(*points[chosen].T, "o", color=shade, markersize=3, alpha=0.7, label=short)
        else:
            drawn = ax.scatter(*points.T, c=np.asarray(colour, dtype=np.float64), s=9, cmap="viridis", alpha=0.8)
        ax.axhline(0, color=GREY, linewidth=0.6, zorder=0)
        ax.axvline(0, color=GREY, linewidth=0.6, zorder=0)
        _frame(ax, title, 1, 1)
        ax.set_xlabel("shared direction 1")
    panels[0].set_ylabel("shared direction 2")
    if colour is not None and len(classes) <= len(_CLASSES):
        handles, labels = panels[0].get_legend_handles_labels()
        small: dict[str, Any] = {"frameon": False, "fontsize": "small", "title_fontsize": "small"}
        legend = figure.legend(handles, labels, title=plain(label), loc="outside lower left", ncols=3, **small)
        _literal(*legend.get_texts(), legend.get_title())
    elif colour is not None:
        _bar(figure, drawn, label, 0.02, panels)


def overview_plot(draw: Sequence[Any]) -> Any:
    """A new figure with one panel for each of the functions `draw`, which take an Axes; two panels a row."""
    count = (len(draw) + 1) // 2
    figure = new_figure(13, 4.2 * count)
    axes = figure.subplots(count, 2, squeeze=False)
    for panel, ax in zip(draw, axes.flat, strict=False):
        panel(ax)
    for ax in axes.flat[len(draw) :]:
        ax.set_axis_off()
    return figure
