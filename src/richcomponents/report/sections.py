"""The sections of the page, in the order they are read: each takes the findings and returns HTML."""

from __future__ import annotations

from typing import Any

import numpy as np

from richcomponents.plots import (
    MOST,
    correlation_plot,
    heat_map,
    heat_map_size,
    interval_plot,
    own_variance_plot,
    variance_plot,
)
from richcomponents.report.figures import inline_svg
from richcomponents.report.findings import Findings, Provenance
from richcomponents.report.tables import html_table, number
from richcomponents.text import escape

__all__ = ["SECTIONS"]

_TONE = {"strong": "good", "known mixing": "good", "weak": "fair", "not identified": "poor", "paper": "fair"}
_SUSPICIOUS = 0.01


def _height(rows: int) -> float:
    return 1.3 + 0.3 * min(rows, MOST)


def _figure(picture: str, caption: str) -> str:
    return f'<figure><div class="scroll">{picture}</div><figcaption>{caption}</figcaption></figure>'


def verdict(found: Findings) -> str:
    """What was asked, and the answer."""
    d = found.diagnostics
    sentences = [*d.advice(), *found.notes]
    advice = "".join(f"<li>{escape(sentence)}</li>" for sentence in dict.fromkeys(sentences))
    return (
        f"<p>{escape(found.question())}</p>"
        f'<section class="verdict {_TONE.get(d.verdict, "")}" aria-label="Verdict">'
        f'<span class="badge">{escape(d.verdict)}</span>'
        f'<p class="headline">{escape(found.headline())}</p><ul>{advice}</ul></section>'
    )


def coefficients(found: Findings) -> str:
    """The outcome on what is specific to U."""
    table = found.outcome
    if table is None:
        return ""

    def draw(ax: Any) -> Any:
        return interval_plot(table.names, table.methods(), table.low, table.high, label=table.unit, ax=ax)

    picture = inline_svg(
        draw, (7.6, _height(len(table.names))), f"Coefficients of {table.event} by method, with intervals", "outcome"
    )
    caption = (
        "Naive: the controls are ignored. Residualised: the controls are added as covariates. RCA: the regression on S1, the "
        "part of U that is not shared. Lines are 95% intervals of RCA. (Second moments alone put no bound on these "
        "coefficients, so there is no identified set to draw.)"
    )
    classes = ""
    if table.contrast is not None:
        classes = (
            f" {escape(str(table.contrast))}. An odds ratio is what one unit multiplies the odds of "
            f"{escape(table.contrast.positive)} by, with its 95% interval."
        )
    return (
        f"<h2>What goes with {escape(table.event)}</h2><p>Each coefficient is the {escape(table.unit)} of the column, the "
        f"other columns held fixed.{classes}</p>{_figure(picture, caption)}{html_table(table.rows(), order='RCA')}"
    )


def learned(found: Findings) -> str:
    """Directions, means or couplings of the component."""
    if found.detail is None:
        return ""
    title, rows = found.detail
    picture = ""
    if found.picture is not None:
        names = next(iter(found.views.values()))
        size = (7.6, heat_map_size(names, names)[1])
        picture = _figure(inline_svg(found.picture, size, title, "learned"), escape(title) + ".")
    order = next((key for key, value in rows[0].items() if isinstance(value, float)), None) if rows else None
    return f"<h2>{escape(title)}</h2>{picture}{html_table(rows, order=order)}"


def shared_directions(found: Findings) -> str:
    """Canonical correlations and the rank."""
    d = found.diagnostics
    picture = inline_svg(
        lambda ax: correlation_plot(d.canonical_correlations, d.rank, ax=ax),
        (7.6, 2.8),
        f"Canonical correlations between the views; the first {d.rank} are taken as shared",
        "correlations",
    )
    caption = (
        "Each bar is one direction in which the two views go together. Coloured directions are modelled as shared; grey ones "
        "are taken for chance."
    )
    return f"<h2>What the views share</h2>{_figure(picture, caption)}"


def variances(found: Findings) -> str:
    """Each column of U: how much is its own, how sure that is, by method."""
    table = found.variance
    shares = inline_svg(
        lambda ax: variance_plot(table.names, table.own, table.shared, ax=ax),
        (7.6, _height(len(table.names))),
        "Share of each column's variance that is its own and that is shared",
        "variance",
    )

    intervals = inline_svg(
        lambda ax: own_variance_plot(table, label="variance that is the column's own, Var(S1)", ax=ax),
        (7.6, _height(len(table.names))),
        "Variance of each column that is its own, by method",
        "intervals",
    )
    return (
        "<h2>How much of each column is its own</h2>"
        + _figure(shares, "The variance of every column of U, split into its own part and the part shared with V.")
        + _figure(
            intervals,
            "The pale band is what correlations alone allow, whatever the distributions (the identified set); naive takes all "
            "variance to be the column's own, residualising is the band's upper end. The line is the 95% interval of RCA"
            + (
                "; here the higher orders say nothing, so it is the band, widened for sampling noise."
                if found.diagnostics.verdict == "not identified"
                else ", which also uses skewness and kurtosis."
            ),
        )
        + html_table(table.rows(), order="shared share")
    )


def mixing(found: Findings) -> str:
    """A as a heat map."""
    if not found.diagnostics.rank:
        return ""
    (u, names_u), (v, names_v) = found.views.items()
    A = found.A
    if A is None:
        return (
            f"<h2>How the shared part enters {escape(v)}</h2><p>A has {len(names_v)} x {len(names_u)} entries, too many to "
            "show.</p>"
        )
    picture = inline_svg(
        lambda ax: heat_map(A, names_v, names_u, label="entry of A", ax=ax),
        heat_map_size(names_v, names_u),
        f"Heat map of A, {v} by {u}",
        "mixing",
    )
    caption = (
        f"How the shared part of each column of {escape(u)} (across) enters each column of {escape(v)} (down). Only the shared "
        "directions count."
    )
    return f"<h2>How the shared part enters {escape(v)}</h2>{_figure(picture, caption)}"


def checks(found: Findings) -> str:
    """Diagnostics, each with what it means."""
    d = found.diagnostics
    rows: list[tuple[str, str, bool | None, str]] = [
        (
            "Shared directions",
            f"{d.rank} of {len(d.canonical_correlations)}",
            None,
            "How many independent disturbances the views have in common.",
        )
    ]
    if d.rank and np.isfinite(d.strength):
        rows.append(
            (
                "Evidence on the split",
                f"{d.strength:.1f} standard errors",
                d.verdict == "strong",
                "How clearly skewness and kurtosis tell the own part from the shared part. Small: collect more samples, or "
                "rely on the band above.",
            )
        )
    if d.rank < len(d.canonical_correlations):
        rows.append(
            (
                "Left beyond the rank",
                f"correlation {d.leftover_correlation:.2f}, p = {number(d.leftover.p_value)}",
                d.leftover.p_value >= _SUSPICIOUS,
                "Small p: the views share more than was modelled. Check that V holds controls only, or raise the rank.",
            )
        )
    if d.overidentification is not None:
        rows.append(
            (
                "Structure of the model",
                f"p = {number(d.overidentification.p_value)}",
                d.overidentification.p_value >= _SUSPICIOUS,
                "Small p: U = S1 + S2, V = A S2 + S3 with independent parts does not fit these data.",
            )
        )
    if found.outcome is not None:
        p = found.outcome.test.p_value
        rows.append(
            (
                f"{found.outcome.outcome} and V",
                f"p = {number(p)}",
                p >= _SUSPICIOUS,
                "Small p: the outcome goes with the controls, so it depends on more than S1 and the coefficients may be wrong.",
            )
        )
    if d.rank:
        rows.append(
            (
                "Condition of A",
                number(d.condition_A),
                None,
                "Large (above about 100): some shared directions are barely visible in V.",
            )
        )
    body = "".join(
        f'<tr><td>{escape(name)}</td><td class="text">{escape(value)}</td><td class="text">{_mark(good)}</td>'
        f'<td class="long">{escape(meaning)}</td></tr>'
        for name, value, good, meaning in rows
    )
    return (
        '<h2>Checks</h2><div class="scroll"><table><thead><tr><th scope="col">check</th><th scope="col" class="text">value</th>'
        f'<th scope="col" class="text"></th><th scope="col" class="text">what it means</th></tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _mark(good: bool | None) -> str:
    if good is None:
        return ""
    return '<span class="ok">✓ fine</span>' if good else '<span class="bad">! look</span>'


def reproduce(found: Findings) -> str:
    """Command, versions, seed and files."""
    made = found.provenance
    versions = ", ".join(f"{name} {version}" for name, version in Provenance.versions().items())
    command = f"<pre><code>{escape(made.command)}</code></pre>" if made.command else ""
    files = "".join(
        f"<dt>{escape(path)}</dt><dd>SHA-256 <code>{escape(digest)}</code></dd>" for path, digest in made.files.items()
    )
    date = f"<dt>made</dt><dd>{escape(made.date)}</dd>" if made.date else ""
    return (
        f"<h2>How to reproduce this page</h2>{command}<dl><dt>versions</dt><dd>{escape(versions)}</dd>"
        f"<dt>seed (random_state)</dt><dd>{escape(str(made.seed))}</dd>{files}{date}</dl>"
        "<details><summary>Words used on this page</summary><dl>"
        "<dt>U, V</dt><dd>The two groups of columns: tests and controls, measured on the same samples.</dd>"
        "<dt>S1, S2, S3</dt><dd>The hidden parts: U = S1 + S2 and V = A S2 + S3. S2 is shared, S1 is U's own, S3 is V's own; "
        "the three are independent.</dd>"
        "<dt>identified set</dt><dd>All values that agree with the observed correlations.</dd>"
        "<dt>residualising</dt><dd>Subtracting from U what V predicts; the same as adding V as covariates.</dd>"
        "</dl></details>"
    )


SECTIONS = (verdict, coefficients, learned, shared_directions, variances, mixing, checks, reproduce)
