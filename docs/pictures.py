"""The pictures of the site, drawn from fits at every build: `python docs/pictures.py FOLDER`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import richcomponents as rc

BLUE, GREEN, ORANGE, GREY = "#1f6fb4", "#2a8c55", "#d9761b", "#8a8f98"  # ours, covariates, naive: as in reports
VERDICTS = {"strong": BLUE, "weak": "#7fb2dd", "not identified": GREY, "model fails": "#b3423a"}
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "richcomponents",
}

# ---- which tool


def decision() -> Any:
    """Four questions, four tools."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 5.2))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 100), ylim=(0, 56))
    ax.axis("off")
    _box(
        ax,
        26.75,
        51,
        52,
        "Are there columns that what is hidden disturbs too,\nbut that carry nothing of what you look for?",
        "#eef2f7",
    )
    _box(ax, 82.25, 51, 33.9, "No method can help:\nevery number would be an assumption", "#f5e6e4")
    _arrow(ax, (53, 51), (65, 51), "no")
    _arrow(ax, (27, 47.8), (27, 41.2), "yes")
    _box(ax, 26.75, 38, 52, "How many tables (views) of the same samples?", "#eef2f7")
    _box(ax, 82.25, 38, 33.9, "RCA\nwhich views share what", "#dcebf8", bold=True)
    _arrow(ax, (53, 38), (65, 38), "three or more")
    _arrow(ax, (27, 34.8), (27, 28.2), "two: tests U, controls V")
    _box(ax, 26.75, 25, 52, "What do you ask of the tests?", "#eef2f7")
    for x, ask, tool in (
        (12.5, "does an exposure\nchange them?", "ExposureEffects"),
        (37.5, "the tests without\nwhat they share", "ContrastiveRCA\n.transform"),
        (62.5, "which of them tell\nan outcome?", "ComponentRegression,\n...LogisticRegression"),
        (87.5, "what shape has\ntheir own part?", "ComponentPCA,\n...Mixture, ...Ising"),
    ):
        ax.annotate(
            "", (x, 16.2), (27, 21.8), arrowprops={"arrowstyle": "-|>", "color": GREY, "connectionstyle": "arc3,rad=0"}
        )
        ax.text(x, 12.6, ask, ha="center", va="center", color="#333", style="italic", backgroundcolor="white")
        _box(ax, x, 4.6, 23.5, tool, "#dcebf8", bold=True)
    return figure


def _box(ax: Any, x: float, y: float, width: float, text: str, colour: str, *, bold: bool = False) -> None:
    from matplotlib.patches import FancyBboxPatch

    height = 6.4
    ax.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=1.2",
            fc=colour,
            ec="#b7c2cf",
        )
    )
    ax.text(x, y, text, ha="center", va="center", weight="bold" if bold else "normal", color="#1c2530", fontsize=9.5)


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float], text: str) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": GREY})
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    beside = start[0] == end[0]
    ax.text(
        x + beside,
        y + (0 if beside else 0.8),
        text,
        ha="left" if beside else "center",
        va="center" if beside else "bottom",
        color="#444",
    )


# ---- the identified set


def identified_set() -> Any:
    """One test, one control: slopes that correlations allow, and the one that skewness tells."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 4.0), layout="constrained")
    for ax, (kind, title) in zip(
        figure.subplots(1, 2, sharex=True, sharey=True),
        (("gaussian", "What is shared is Gaussian"), ("skewed", "What is shared is skewed")),
        strict=True,
    ):
        data = rc.datasets.make_contrastive(4000, d=1, S2=kind, A=np.array([[1.0]]), scale_S2=1.4, random_state=5)
        u, v = data.X.T - data.X.mean(axis=0)[:, None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = rc.ContrastiveRCA(views=1, errors="free").fit(data.X)
        shallow, steep = u @ v / (u @ u), v @ v / (u @ v)
        x = np.array([-2.6, 2.6])
        ax.plot(u[:1200], v[:1200], ".", ms=2.5, color=GREY, alpha=0.45)
        ax.fill_between(
            x, x * shallow, x * steep, color=GREEN, alpha=0.16, lw=0, label="slopes that correlations allow"
        )
        ax.plot(x, x * shallow, color=GREEN, lw=1, ls="--")
        ax.plot(x, x * steep, color=GREEN, lw=1, ls="--")
        if model.verdict_ != "not identified":
            interval = model.confidence_interval("A")
            ax.fill_between(
                x,
                x * interval.low[0],
                x * interval.high[0],
                color=BLUE,
                alpha=0.35,
                lw=0,
                label="95% interval, orders 3 and 4",
            )
        ax.plot(x, x, color="black", lw=1.2, label="truth: A = 1")
        ax.set(title=f"{title}\nverdict: {model.verdict_}", xlabel="U, the test", xlim=(-2.6, 2.6), ylim=(-2.9, 3.3))
        ax.legend(loc="upper left", fontsize=8, frameon=False)
    figure.axes[0].set_ylabel("V, the control")
    return figure


# ---- the gate


def gate_draws(draws: int = 18) -> list[tuple[float, float, str]]:
    """(evidence, squared error of coefficients over that of V as covariates, verdict) of fits to tables of many kinds."""
    found = []
    for seed in range(draws):
        for kind, n in (("gaussian", 1000), ("paper", 1000), ("skewed", 300), ("skewed", 1000), ("skewed", 4000)):
            data = rc.datasets.make_contrastive(n, d=3, S2=kind, A="good", random_state=9000 + seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=3, errors="free")).fit(data.X, data.y)
            ours, simple = (float(np.sum((beta - data.beta) ** 2)) for beta in (model.coef_, model.residualised_))
            found.append((model.rca_.diagnostics_.strength, ours / simple, model.rca_.verdict_))
    return found


def gate() -> Any:
    """Without evidence the simple method's answer, with it a better one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    ax, found = figure.subplots(), gate_draws()
    for verdict, colour in VERDICTS.items():
        points = [(max(evidence, -2), ratio) for evidence, ratio, said in found if said == verdict]
        if points:
            ax.plot(
                *zip(*points, strict=True),
                "o",
                ms=5,
                alpha=0.75,
                color=colour,
                mew=0,
                label=f"{verdict} ({len(points)})",
            )
    ax.axhline(1, color=GREEN, lw=1.2, ls="--")
    ax.axvspan(3, 4, color="#f0d9a8", alpha=0.6, lw=0)
    ax.text(3.5, 0.012, "the gate", ha="center", fontsize=9, color="#7a5b12")
    ax.text(0.99, 1.08, "V as covariates", ha="right", transform=ax.get_yaxis_transform(), fontsize=9, color=GREEN)
    ax.set(
        yscale="log",
        xlabel="evidence in orders three and four (standard errors)",
        ylabel="squared error of coefficients,\nV as covariates = 1",
        ylim=(0.01, 2.5),
    )
    ax.legend(frameon=False, fontsize=9, loc="lower left")
    return figure


PICTURES = {"decision": decision, "identified-set": identified_set, "gate": gate}


def draw_all(folder: Path) -> None:
    """Each picture as an SVG file."""
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, draw in PICTURES.items():
            draw().savefig(folder / f"{name}.svg", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))
