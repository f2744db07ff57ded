"""The sections of the page, in the order they are read: each takes the findings and returns HTML, empty where there is nothing
to say. A heading of second degree begins an entry of the contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from richcomponents.effects.answer import ExposureAnswer
from richcomponents.inference.verdicts import Verdict
from richcomponents.notebook import TONES
from richcomponents.pair.diagnostics import Diagnostics
from richcomponents.plots import (
    MOST,
    control_plot,
    correlation_plot,
    distribution_plot,
    estimate_plot,
    heat_map,
    heat_map_size,
    own_variance_plot,
    sample_plot,
    sensitivity_plot,
    variance_plot,
    volcano_plot,
)
from richcomponents.report.findings import SUSPICIOUS, Findings, Provenance
from richcomponents.report.pieces import SHOWN, Doubtful, figure, height, html_table, scrolled, with_tools
from richcomponents.text import as_sentence, escape, number, p_value

_MOST_HEAT_MAPS = 8
_MOST_COLOURS = 2  # pictures of samples
_MOST_VIEWS = 8
_NO_REMARK = "No column is constant or repeated."
_FEW = 10  # rows of a table that repeats a picture


def verdict(found: Findings) -> str:
    """What was asked, and the answer; a test that fails takes the green away."""
    tone, alarms = TONES.get(found.verdict, ""), found.alarms()
    said = found.verdict == "contradicted"
    badge = found.verdict + (f", {'and' if tone == 'poor' else 'but'} a test fails" if alarms and not said else "")
    steps, detail = found.next_steps(), found.detail()
    alarmed = "".join(f'<p class="alarm">{escape(sentence)}</p>' for sentence in alarms)
    details = _list(detail) if len(detail) > 1 else "".join(f"<p>{escape(one)}</p>" for one in detail)
    next_ = f'<p class="next">What next</p>{_list(steps)}' if steps else ""
    return (
        f"<p>{escape(found.question())}</p>"
        f'<section class="verdict {tone if not alarms or tone == "poor" else "fair"}" aria-label="Verdict">'
        f'<span class="badge">{escape(badge)}</span><p class="headline">{escape(found.said())}</p>{alarmed}{details}'
        f"{_list([sentence for sentence in found.advice() if sentence not in steps])}{next_}</section>"
    )


def _list(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def coefficients(found: Findings) -> str:
    """The outcome on the component."""
    told = found.outcome
    if told is None:
        return ""
    others = "the controls" if told.outside == "V" else told.outside
    words = {
        "naive": "Naive: the component's view as it is. " if found.sets else f"Naive: {others} are ignored. ",
        "residualised": f"Residualised: adjusted for {others}. ",
        "instrumental": "Instrumental: on what the component's other views predict of it. ",
    }
    compared = "".join(escape(words[name]) for name in told.estimate.others if name in words)
    caption = f"{compared}RCA: the regression on {escape(told.component)}. Lines are 95% intervals of RCA. "
    if told.estimate.identified is not None:
        caption += "Pale bands: all coefficients that agree with the correlations (identified sets). "
    classes = ""
    if told.contrast is not None:
        caption += "Above: what one unit multiplies the odds by."
        classes = (
            f" {escape(str(told.contrast))}. An odds ratio is what one unit multiplies the odds of "
            f"{escape(told.contrast.positive)} by, with its 95% interval."
        )
    draw = partial(estimate_plot, told.estimate, label=told.unit)
    what, size = f"Coefficients of {told.event} by method, with intervals", (7.6, height(len(told.estimate.names)))
    picture = figure(draw, size, what, "outcome", caption)
    return (
        f"<h2>What goes with {escape(told.event)}</h2><p>Each coefficient is the {escape(told.unit)} of the column, the "
        f"other columns held fixed.{classes}</p>{picture}{html_table(told.rows(), 'coefficients', order='RCA')}"
    )


def effects(found: Findings) -> str:
    """Every exposure: a picture of its effects, and all of them in a table."""
    return "".join(_effects(found, answer, i) for i, answer in enumerate(found.effects))


_FIRST_READ = (
    "name", "estimate", "low", "high", "p", "q", "adjusted", "naive", "truth", "standard error", "identified low",
    "identified high",
)  # fmt: skip


def _effects(found: Findings, answer: ExposureAnswer, i: int) -> str:
    told, name, u = answer.effects, escape(answer.exposure), escape(next(iter(found.views)))
    many = len(told.names) > MOST
    if many:
        draw: Any = volcano_plot
        size, what = (7.6, 4.6), f"Effects of {answer.exposure} and p values"
        caption = (
            "Each dot is a column: across, its effect; up, how clear it is (a p value of 0.001 is at 3). Blue dots have q "
            "below 0.1: at most about one in ten of them is there by chance. The clearest are named."
        )
    else:
        draw = partial(estimate_plot, label=f"effect of {answer.exposure}")
        size, what = (7.6, height(len(told.names))), f"Effects of {answer.exposure} by method, with intervals"
        caption = (
            "Blue dot and line: the estimate and its 95% interval. Green: adjusted for the controls. Orange: no "
            "controls at all (naive). Pale band: all effects that agree with the correlations, whatever the noise of the "
            "controls (identified set)."
        )
    rows = [{key: row[key] for key in _FIRST_READ if key in row} for row in answer.rows()]
    rows = [rows[int(at)] for at in answer.order()]
    picture = figure(partial(draw, told), size, what, f"effects{i}", caption)
    return (
        f"<h2>What changes with {name}</h2><p>Each effect is the difference in a column of {u} that goes with {name} "
        f"(for numbers: with one unit), in the column's own units.</p>"
        f"{picture}{html_table(rows, f'effects-{answer.exposure}')}"
        '<p class="soft">low, high: 95% interval. q: false discovery rate. Standard errors allow for an error as large as '
        "held-out controls show.</p>"
    )


def controls(found: Findings) -> str:
    """What controls get when they are held out: their effects are zero in truth."""
    if not found.effects:
        return ""
    out = [
        "<h2>Are the controls valid?</h2><p>A control is a column that the exposure does not change, but what is hidden "
        "disturbs. Each was held out in turn and its effect estimated from the others, as if it were a test: that effect "
        "should be zero.</p>"
    ]
    for i, answer in enumerate(found.effects):
        hidden = answer.hidden
        out.append(f"<h3>{escape(answer.exposure)}</h3>" if len(found.effects) > 1 else "")
        out.append(f"<p>{escape(answer.about_controls())}</p>")
        if hidden is None:
            continue
        draw = partial(control_plot, hidden)
        what = f"Effects of {answer.exposure} on held-out controls, with intervals"
        caption = (
            "Your controls, each held out and treated as a test. Blue: the estimate with its 95% interval; green: "
            "adjusted for the other controls. Intervals that miss the dashed line are worth a second look."
        )
        rows = [{k: v for k, v in row.items() if k != "exposure"} for row in answer.controls]
        size = (7.6, height(len(hidden.names)))
        out.append(figure(draw, size, what, f"controls{i}", caption))
        out.append(html_table(rows, f"controls-{answer.exposure}"))
    if any(answer.controls for answer in found.effects):
        out.append(
            "<p>A control with a small p may be changed by the exposure, or disturbed by something that the others do not see. "
            "Leave it out, fit again, and compare. “Effects move without it” says by how many of their standard errors the "
            "effects on the tests move when it is left out: above 1 the answer leans on it.</p>"
        )
    return "".join(out)


def sensitivity(found: Findings) -> str:
    """How the effects depend on what is assumed: the noise of the controls, and how many directions are hidden."""
    out: list[str] = []
    level = 4 if len(found.effects) > 1 else 3
    for i, answer in enumerate(found.effects):
        if not answer.rank:
            continue
        draw = partial(sensitivity_plot, answer.effects, answer.path)
        what = f"Effects of {answer.exposure} by the assumed noise of the controls"
        caption = (
            "The columns whose effects depend most on how noisy the controls are. Left: not at all, which is what adjusting "
            "for them assumes. Right: as noisy as the correlations allow, where each band is the identified set. Dots: the "
            "estimates. Bands that stay on one side of zero keep their sign whatever the noise."
        )
        out.append("" if out else "<h2>What if the controls were noisier?</h2>")
        out.append(f"<h3>{escape(answer.exposure)}</h3>" if len(found.effects) > 1 else "")
        out.append(figure(draw, (7.6, 4.4), what, f"sensitivity{i}", caption, phone=5.6))
        if len(answer.ranks) > 1:
            *others, last = map(str, answer.ranks)
            out.append(
                f"<h{level}>And if more, or less, were hidden?</h{level}><p>Effects of {escape(answer.exposure)} with "
                f"{', '.join(others)} or {last} hidden directions. Columns that change much are not settled.</p>"
                f"{html_table(answer.rank_rows(SHOWN), f'ranks-{answer.exposure}')}"
            )
    return "".join(out)


def learned(found: Findings) -> str:
    """Directions, means or couplings of the component."""
    if found.learned is None:
        return ""
    title, rows = found.learned.title, found.learned.rows
    names = next(iter(found.views.values()))
    across = [*names, *(rows[0] if rows else ())]  # whichever is written there, it needs room
    size = (7.6, heat_map_size(names, across)[1])
    picture = figure(found.learned.draw, size, title, "learned", f"{escape(title)}.")
    order = next((key for key, value in rows[0].items() if isinstance(value, float)), None) if rows else None
    return f"<h2>{escape(title)}</h2>{picture}{html_table(rows, 'model', order=order)}"


def components(found: Findings) -> str:
    """Which component carries how much of which view."""
    if found.sets is None:
        return ""
    size = (max(4.0, 1.8 + 0.9 * len(found.sets.rows)), 3.0 + 0.45 * len(found.views))
    caption = (
        "Bars: the share of a view's variance that a component carries there; hatched where the data do not tell how much. "
        "Dots below: the views it lives in. In the table, "
        "the relative error is the largest of the component's transformations; the verdict says how well the data tell the "
        "component, its transformations and how much there is of it (strong, weak or not identified); p "
        "(absent) is the chance of such evidence if the component were not there."
    )
    what = "Share of each view's variance that each component carries"
    picture = figure(found.sets.draw, size, what, "components", caption, whole=True)
    return (
        f"<h2>Which parts are there</h2>{picture}{html_table(found.sets.rows, 'components')}"
        "<h3>Column by column</h3><p>The variance of each column, and the share of it that each component carries.</p>"
        f"{html_table(found.sets.columns, 'columns')}"
        f"<details><summary>What tells these parts apart</summary><pre>{escape(found.sets.explanation)}</pre></details>"
    )


def shared_directions(found: Findings) -> str:
    """Canonical correlations and the rank."""
    d = found.diagnostics
    if d is None:
        return ""
    caption = (
        "Each bar is one direction in which the two views go together. Coloured directions are modelled as shared; grey ones "
        "are taken for chance."
    )
    draw = partial(correlation_plot, d.canonical_correlations, d.rank)
    what = f"Canonical correlations between the views; the first {d.rank} are taken as shared"
    return f"<h2>What the views share</h2>{figure(draw, (7.6, 2.8), what, 'correlations', caption)}"


def samples(found: Findings) -> str:
    """Samples in the shared directions, before and after cleaning, by what is known of them."""
    seen = found.samples
    if seen is None or seen.before is None or seen.after is None or not len(seen.drawn()):
        return ""
    u, at = escape(next(iter(found.views))), seen.drawn()
    before, after = seen.before[at], seen.after[at]
    many = f" {len(at)} of {seen.of} samples are drawn." if len(at) < seen.of else ""
    out = []
    for i, (name, values) in enumerate(list(seen.known.items())[:_MOST_COLOURS] or [("", None)]):
        colour = None if values is None else values[at]
        caption = (
            f"Each dot is a sample, in the two directions in which {u} shares most. Left (above, on a phone): as measured; "
            "right (below): with the shared part removed, as predicted sample by sample. "
        )
        if name:
            apart = "Groups that lie apart on the left and not on the right differ in what is shared."
            caption += f"Colour: {escape(name)}. {apart}"
        titles = ("as measured", "shared part removed")
        draw = partial(sample_plot, before=before, after=after, colour=colour, label=name, titles=titles)
        what = f"Samples in the shared directions, before and after cleaning{f' by {name}' if name else ''}"
        out.append(figure(draw, (7.6, 4.0), what, f"samples{i}", caption + many, whole=True, phone=6.4))
    return f"<h2>Samples, before and after cleaning</h2>{''.join(out)}"


def data(found: Findings) -> str:
    """What the columns look like: distributions, missing values, constant and repeated columns."""
    seen = found.samples
    if seen is None:
        return ""
    rows, left_out = seen.listed(found.views)
    lost = [row for row in rows if row["missing"]]
    remarks = [f"{row['column']} ({row['view']}): {row['remark']}" for row in rows if row["remark"]]
    told = [
        f"The first {seen.n} of {seen.of} rows." if seen.n < seen.of else f"{seen.n} rows.",
        _missing(lost),
        f"Look at {'; '.join(remarks[:5])}{' ...' if len(remarks) > 5 else ''}." if remarks else _NO_REMARK,
        left_out,
    ]
    pictures = [
        figure(
            partial(distribution_plot, [found.views[view][i] for i in known], x[:, known], title=view),
            (7.6, height(len(known))),
            f"Distributions of the columns of {view}",
            f"data{i}",
            f"Each column of {escape(view)}, in its own standard deviations.",
        )
        for i, (view, x) in enumerate(seen.views.items())
        if len(known := np.flatnonzero(np.isfinite(x).any(axis=0)))
    ]
    return (
        f"<h2>The data</h2><p>{escape(' '.join(filter(None, told)))}</p>{''.join(pictures[:_MOST_VIEWS])}"
        f"{html_table(rows, 'data')}"
    )


def _missing(rows: list[dict[str, object]]) -> str:
    """Which columns miss values, and the one that misses most."""
    if not rows:
        return "No value is missing."
    share, name = max((float(str(row["missing"])), str(row["column"])) for row in rows)
    if len(rows) == 1:
        return f"{name} misses {share:.1%} of its values."
    return f"{len(rows)} columns miss values, most of all {name} ({share:.1%})."


def variances(found: Findings) -> str:
    """Each column of U: how much is its own, how sure that is, by method."""
    table, d = found.variance, found.diagnostics
    if table is None or d is None or d.verdict == "nothing shared":  # then all is the column's own
        return ""
    told = d.verdict not in ("not identified", "contradicted")
    size, hatched = (
        (7.6, height(len(table.names))),
        "the 95% interval of the border between them; the line is the estimate.",
    )
    border = f", which also uses {_evidence(d)}."
    if not told:
        hatched = "the data do not tell whose this is (the identified set, widened for sampling noise)."
        border = "; here the higher orders say nothing, so it is the band, widened for sampling noise."
    shares = figure(
        partial(variance_plot, table.names, table.own, table.shared, table.low, table.high, told=told),
        size,
        "Share of each column's variance that is its own and that is shared",
        "variance",
        f"The variance of every column of U, split into its own part and the part shared with V. Hatched: {hatched}",
    )
    intervals = figure(
        partial(own_variance_plot, table, label="variance that is the column's own, Var(S1)"),
        size,
        "Variance of each column that is its own, by method",
        "intervals",
        "The pale band is what correlations alone allow, whatever the distributions (the identified set); naive takes all "
        f"variance to be the column's own, residualising is the band's upper end. The line is the 95% interval of RCA{border}",
    )
    return (
        f"<h2>How much of each column is its own</h2>{shares}{intervals}"
        f"{html_table(table.rows(), 'variances', order='shared share')}"
    )


def mixing(found: Findings) -> str:
    """How components enter views, as heat maps."""
    if found.diagnostics is not None and not found.diagnostics.rank:
        return ""
    out = []
    for i, part in enumerate(found.mixing[:_MOST_HEAT_MAPS]):
        what = "the shared part" if found.sets is None else part.component
        out.append(f"<h2>How {escape(what)} enters {escape(part.view)}</h2>")
        A = part.matrix
        if A is None:
            out.append(f"<p>A has {len(part.rows)} x {len(part.columns)} entries, too many to show.</p>")
            continue
        draw = partial(heat_map, A, part.rows, part.columns, label="entry of A", known=part.known)
        small = A.shape[1] <= MOST
        caption = f"How {escape(what)}, in the columns across, enters each column of {escape(part.view)} (down)."
        caption += " Only the shared directions count." if found.sets is None else ""
        if part.known is not None and not part.known.all():
            caption += " Grey: not told; the sign of the entry is open (95%)."
            caption += " Such numbers are pale below." if small else ""
        what_is_drawn, size = f"Heat map of A, {part.component} in {part.view}", heat_map_size(part.rows, part.columns)
        out.append(figure(draw, size, what_is_drawn, f"mixing{i}", caption))
        if small:
            sure = np.ones(A.shape, dtype=bool) if part.known is None else part.known
            entries: list[dict[str, object]] = []
            for row, *of in zip(part.rows, A, sure, strict=True):
                cells = {c: float(a) if told else Doubtful(a) for c, a, told in zip(part.columns, *of, strict=True)}
                entries.append({part.view: row, **cells})
            out.append(html_table(entries, f"A-{part.component}-{part.view}", shown=_FEW))
    left = len(found.mixing) - _MOST_HEAT_MAPS
    return "".join(out) + (f'<p class="soft">{left} more transformations are in the model.</p>' if left > 0 else "")


def checks(found: Findings) -> str:
    """Diagnostics, each with what it means."""
    rows = _of_two_views(found.diagnostics) if found.diagnostics is not None and not found.effects else []
    for answer in found.effects:
        for test in answer.tests:
            value = f"{test.p_value:.2g}" if test.name == "correction" else test.p_text
            value = "not tested" if np.isnan(test.p_value) else value
            name = f"{test.name.capitalize()} ({answer.exposure})"
            rows.append((name, value, test.finding == Verdict.STRONG, as_sentence(test.says)))
    if found.outcome is not None:
        told, p = found.outcome, found.outcome.test.p_value
        meaning = (
            f"Small p: the outcome goes with {told.outside}, so it depends on more than {told.component} and the coefficients "
            "may be wrong."
        )
        rows.append((f"{told.name} and {told.outside}", p_value(p), p >= SUSPICIOUS, meaning))
    if not rows:
        return ""
    body = "".join(
        f'<tr><td>{escape(name)}</td><td class="text">{escape(value)}</td><td class="text mark">{_mark(good)}</td>'
        f'<td class="long">{escape(meaning)}</td></tr>'
        for name, value, good, meaning in rows
    )
    head = "".join(f'<th scope="col" class="text">{title}</th>' for title in ("check", "value", "", "what it means"))
    table = scrolled("checks", head, body)
    return f"<h2>Checks</h2>{with_tools(table, 'checks', len(rows))}"


def _of_two_views(d: Diagnostics) -> list[tuple[str, str, bool | None, str]]:
    """Name, value, whether it is fine (None: it is neither) and meaning."""
    total, left, fit = len(d.canonical_correlations), d.leftover.p_value, d.overidentification
    split = (
        f"How clearly {_evidence(d)} tell the own part from the shared part. Small: collect more samples, or rely on the "
        "identified sets."
    )
    beyond = "Small p: the views share more than was modelled. Check that V holds controls only, or raise the rank."
    structure = "Small p: U = S1 + S2, V = A S2 + S3 with independent parts does not fit these data."
    seen = "Large (above about 100): some shared directions are barely visible in V."
    disturbances = "How many independent disturbances the views have in common."
    rows: list[tuple[str, str, bool | None, str]] = [("Shared directions", f"{d.rank} of {total}", None, disturbances)]
    if d.rank and np.isfinite(d.strength):
        rows.append(("Evidence on the split", f"{d.strength:.1f} standard errors", d.verdict == "strong", split))
    if d.rank < total:
        value = f"correlation {d.leftover_correlation:.2f}, {p_value(left)}"
        rows.append(("Left beyond the rank", value, left >= SUSPICIOUS, beyond))
    if fit is not None:
        rows.append(("Structure of the model", p_value(fit.p_value), fit.p_value >= SUSPICIOUS, structure))
    if d.rank:
        rows.append(("Condition of A", number(d.condition_A), None, seen))
    return rows


def _evidence(d: Diagnostics) -> str:
    """What tells the own part from the shared part, beside the correlations of both views."""
    return " and ".join(d.evidence) or "nothing"


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
    )


def words(found: Findings) -> str:
    """The glossary."""
    terms = _OF_EFFECTS if found.effects else _OF_TWO if found.sets is None else _OF_MANY
    return f"<h2>Words used on this page</h2><dl>{terms}{_OF_ALL}</dl>"


_OF_ALL = (
    "<dt>covariates</dt><dd>Columns that are known and are in no view (age, sex): what they explain is removed from all views, "
    "and from the outcome, before all else.</dd>"
    "<dt>verdict</dt><dd>How well the data tell the parts from each other: strong; weak (the results lean on the simple "
    "method); not identified (they are those of the simple method); model fails (the data contradict what is assumed, and "
    "nothing is corrected).</dd>"
    "<dt>95% interval</dt><dd>Limits that hold the true value in 95 of 100 studies such as this one.</dd>"
)
_OF_TWO = (
    "<dt>U, V</dt><dd>The two groups of columns: tests and controls, measured on the same samples.</dd>"
    "<dt>S1, S2, S3</dt><dd>The hidden parts: U = S1 + S2 and V = A S2 + S3. S2 is shared, S1 is U's own, S3 is V's own; "
    "the three are independent.</dd>"
    "<dt>identified set</dt><dd>All values that agree with the observed correlations.</dd>"
    "<dt>residualised, adjusted</dt><dd>What V predicts is subtracted from U, as if V were covariates. That takes V to be free "
    "of noise; as it is not, part of what is shared stays.</dd>"
)
_OF_EFFECTS = (
    "<dt>tests, controls</dt><dd>Two groups of columns (U, V), measured on the same samples. The exposure may change "
    "the tests; it does not change the controls.</dd>"
    "<dt>U = S1 + S2, V = A S2 + S3</dt><dd>The model, once effects are taken out: tests and controls share a hidden "
    "disturbance S2, which enters the controls through a matrix A; S1 and S3 are their own. The three are independent.</dd>"
    "<dt>hidden directions</dt><dd>How many independent disturbances tests and controls have in common, given the "
    "exposure.</dd><dt>naive</dt><dd>The difference as it is, with known covariates removed.</dd>"
    "<dt>adjusted</dt><dd>What the controls predict is subtracted, as if they were covariates. That takes them to be free of "
    "noise; as they are not, part of the disturbance stays.</dd>"
    "<dt>identified set</dt><dd>All effects that agree with the observed correlations, whatever the noise of the "
    "controls.</dd>"
)
_OF_MANY = (
    "<dt>view</dt><dd>A group of columns, measured on the same samples as the others.</dd>"
    "<dt>component</dt><dd>A hidden part, called by the views it lives in. Each view is the sum of its components, each "
    "transformed by a matrix A; all components are independent.</dd>"
)


SECTIONS = (
    verdict, coefficients, effects, controls, sensitivity, learned, components, shared_directions, samples, variances, mixing,
    data, checks, words, reproduce,
)  # fmt: skip
