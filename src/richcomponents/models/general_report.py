"""What a fitted RCA tells a reader: a page of text, and an UpSet-like figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from richcomponents.general.solution import component_name
from richcomponents.text import in_line, page

if TYPE_CHECKING:
    from richcomponents.models.general import RCA

__all__ = ["plot", "summary"]

_BAR = 8  # characters of a bar of 100%


def summary(model: RCA, inner: str | None = None) -> str:
    """The picture, the evidence, the explanation of the set system; inner : the contrastive page, for two views."""
    shares, views = model.variance_shares_, model.views_.names
    heads = [in_line(view) for view in views]
    width = max(len(in_line(component_name(q))) for q in model.components_)
    cell = max(_BAR + 6, *(len(head) + 2 for head in heads))
    lines = [
        f"RCA of {len(views)} views, {len(model.components_)} components (method {model.method!r})",
        "Share of each view's variance, by component:",
        "",
        " " * width + "  " + "".join(f"{head:<{cell}}" for head in heads).rstrip(),
    ]
    for q in model.system_.order:
        cells = [_cell(shares[view, q]) if view in q else "." for view in views]
        lines.append(f"{in_line(component_name(q)):<{width}}  " + "".join(f"{text:<{cell}}" for text in cells).rstrip())
    lines.append("")
    errors = getattr(model, "relative_errors_", None)
    if errors:
        lines.append("Relative standard errors of the transformations (approximate):")
        for q in model.system_.order:
            cells = [f"{in_line(view)} {errors[view, q]:.0%}" for view in q if (view, q) in errors]
            if cells:
                lines.append(f"  {in_line(component_name(q)):<{width}}  " + "  ".join(cells))
        lines.append("")
    verdicts = getattr(model, "evidence_", None)
    if verdicts:
        lines.append("Evidence (sign-flip test over blocks; p values of absence):")
        lines += [f"  {in_line(component_name(q)):<{width}}  {verdict}" for q, verdict in verdicts.items()]
        lines.append("")
    lines.append(inner if inner is not None else model.system_.explain())
    return page(lines)


def _cell(share: float) -> str:
    return f"{share:4.0%} " + "█" * max(1, round(_BAR * min(max(share, 0.0), 1.0)))


def plot(model: RCA, figure: Any = None) -> Any:
    """Bars: the share of each view's variance that a component carries. Dots below: the views it lives in."""
    import matplotlib.pyplot as plt

    views, order, shares = model.views_.names, model.system_.order, model.variance_shares_
    if figure is None:
        figure = plt.figure(figsize=(1.8 + 0.9 * len(order), 3.0 + 0.45 * len(views)), layout="constrained")
    bars, dots = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 0.4 + 0.45 * len(views)]})
    colours = {view: plt.get_cmap("tab10")(i % 10) for i, view in enumerate(views)}
    at = np.arange(len(order))
    for x, q in zip(at, order, strict=True):
        wide = 0.84 / len(views)  # one width for all bars: areas compare too
        for i, view in enumerate(q):
            height, middle = 100 * shares[view, q], x + (i - (len(q) - 1) / 2) * wide
            bars.bar(middle, height, 0.9 * wide, color=colours[view])
            bars.text(middle, max(height, 0.0), f"{height:.0f}", ha="center", va="bottom", fontsize=8, color="0.3")
        rows = [views.index(view) for view in q]
        dots.plot([x, x], [min(rows), max(rows)], color="0.3", lw=2, zorder=2)
        for i, view in enumerate(views):
            dots.scatter(x, i, s=90, color=colours[view] if view in q else "0.88", zorder=3)
    bars.set_ylabel("variance of the view (%)")
    bars.set_title("What each hidden component carries in each view", fontsize=11)
    bars.spines[["top", "right"]].set_visible(False)
    bars.tick_params(axis="x", length=0)
    dots.set_yticks(range(len(views)), [in_line(view) for view in views])
    dots.set_ylim(len(views) - 0.5, -0.5)
    dots.set_xticks([])
    dots.set_xlim(-0.6, len(order) - 0.4)
    dots.set_xlabel("components, by the views they live in")
    dots.tick_params(axis="y", length=0)
    dots.spines[:].set_visible(False)
    return figure
