"""Rows -> figures and index.html: the paper's claims next to what was measured. Plain HTML; its pictures are in figures/."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

import numpy as np

import richcomponents
from reproduction import biomarkers
from reproduction.claims import VARIANTS, Claim, check_claims, claim_verdicts, residualising
from reproduction.panels import AXIS_NAMES, Curves, cases_of, curves_of, joined_figure, method_label, panel_figure
from reproduction.settings import Settings
from rows import Row

_STYLE = """
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; font: 16px/1.5 system-ui, sans-serif; }
img { max-width: 100%; } pre, table { font-size: .82rem; } div { overflow-x: auto; }
table { border-collapse: collapse; } th, td { border-bottom: 1px solid #bbb; padding: .2rem .6rem; text-align: left; }
"""


def present(settings: Settings, rows: Sequence[Row], out: Path) -> Path:
    """Figures and the page in `out`, from rows alone; the claims that were measured are printed, too."""
    curves = curves_of(rows)
    figures = out / "figures"
    figures.mkdir(exist_ok=True)
    measured = [name for name in settings.panels if any(key[0] == name for key in curves)]
    drawn = {f"panel-{name}": panel_figure(settings, curves, name) for name in measured}
    if any(len(name) == 1 for name in measured):
        drawn["figure-1"] = joined_figure(settings, curves)
    for stem, figure in drawn.items():
        figure.savefig(figures / f"{stem}.png", dpi=130)
    claims = check_claims(settings, curves)
    for number, claim in enumerate(claims, 1):
        if claim.measured:
            said = ", ".join(f"{settings.methods.get(v, v)}: {text}" for v, text in claim_verdicts(claim).items())
            print(f"{number}. {claim.quote}\n   {said}")
    notes = _warnings(settings, rows)
    for note in notes:
        print(f"warning: {note}")
    if "biomarkers" in measured:
        notes.append(biomarkers.ABOUT_A)
    return write_page(out / "index.html", settings, rows, claims, notes)


def _warnings(settings: Settings, rows: Sequence[Row]) -> list[str]:
    """Of biomarkers that share more than the labs."""
    ranks: dict[str, list[float]] = {}
    for row in rows:
        if (row["panel"], row["method"]) == ("biomarkers", "rank"):
            ranks.setdefault(row["case"], []).append(row["value"])
    more = {
        case: biomarkers.shared_beyond_labs(np.array(held), int(settings.panels["biomarkers"].options["n_labs"]))
        for case, held in sorted(ranks.items())
    }
    return [f"{case}: {text}." for case, text in more.items() if text]


def write_page(
    path: Path, settings: Settings, rows: Sequence[Row], claims: Sequence[Claim], notes: Sequence[str] = ()
) -> Path:
    """index.html from rows and claims; the figures are in figures/ beside it."""
    curves = curves_of(rows)
    mixings = "; ".join(f"“{name}” is {text}" for name, text in settings.mixings.items())
    parts = [
        "<h1>Rich Component Analysis: the paper's experiments, measured again</h1>",
        "<p>Ge and Zou, Section 5 and Figure 1. U = S1 + S2, V = A S2 + S3; the parameters of S1 are learned "
        "from U and V. What the paper claims stands next to what was measured, agreeing or not.</p>",
        _overview(settings, claims),
        _image("figure-1", "all panels of Figure 1") if any(len(key[0]) == 1 for key in curves) else "",
        "<h2>Claim by variant</h2>",
        "<p>The paper does not say whether A was known in a-j. So each claim is tested in four variants: by the "
        "paper's formulas and the paper's learners (plain second moments, alternating minimisation, stochastic gradients with "
        "the cubic and with the Taylor polynomial) with A known and with A from its equation (2), and by RCA as it is here, "
        f"with A known and unknown. Nor does it say which A it was: {escape(mixings)}.</p>",
        _table(
            ["claim", *(settings.methods.get(v, v) for v in VARIANTS)],
            [_verdicts(number, claim) for number, claim in enumerate(claims, 1)],
        ),
        *(f"<p>{escape(note)}</p>" for note in notes),
        "<h2>Claim by claim</h2>",
        "<p>Quotations are from the paper (its figure was not at hand). Errors are means over repeats; all methods "
        "see the same draws, and “significantly” is a paired test on them.</p>",
        *(_claim(settings, number, claim) for number, claim in enumerate(claims, 1)),
        "<h2>Panel by panel</h2>",
        *(_panel(settings, curves, name) for name in settings.panels),
        _how(settings, rows),
    ]
    path.write_text(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f"<title>Rich Component Analysis: the paper's experiments</title><style>{_STYLE}</style></head>\n"
        "<body>\n" + "\n".join(parts) + "\n</body></html>\n",
        encoding="utf-8",
    )
    return path


# ---- claims


def _overview(settings: Settings, claims: Sequence[Claim]) -> str:
    said = [claim for claim in claims if claim.measured and not claim.ours]
    if not said:
        return "<p>None of the paper's claims was measured: run all of their panels.</p>"
    about = [claim for claim in said if not claim.alone]
    counts = ", ".join(
        f"{sum(claim.verdict(v) == 'holds' for claim in about)} with {settings.methods.get(v, v)}" for v in VARIANTS
    )
    alone = [claim.verdict("benchmarks") == "holds" for claim in said if claim.alone]
    return (
        f"<p>Of the {len(about)} claims about RCA that were measured, these hold in every setting: {escape(counts)}. "
        f"Of {len(alone)} about the benchmarks alone, {sum(alone)} hold.</p>"
    )


def _words(claim: Claim) -> str:
    return f"(not the paper's words) {claim.quote}" if claim.ours else f"“{claim.quote}”"


def _verdicts(number: int, claim: Claim) -> list[str]:
    """A line of the table claim by variant."""
    verdicts = claim_verdicts(claim)
    if claim.alone:
        return [f"{number}. {_words(claim)}", *(f"{text} (about the benchmarks)" for text in verdicts.values())]
    cells = [f"{text}: {cases}" if (cases := claim.by_case(v)) else text for v, text in verdicts.items()]
    return [f"{number}. {_words(claim)}", *cells]


def _claim(settings: Settings, number: int, claim: Claim) -> str:
    """How it was tested, and the evidence."""
    about = f"Where: {claim.where}. Tested: {claim.test}."
    if not claim.measured:
        about += f" Not measured: {', '.join(claim.missing)} did not run, or with too few draws."
    return (
        f"<details><summary>{number}. {escape(_words(claim))}</summary><p>{escape(about)}</p>"
        f"{_evidence(settings, claim) if claim.measured else ''}</details>"
    )


def _evidence(settings: Settings, claim: Claim) -> str:
    heads = list(dict.fromkeys(key for line in claim.evidence for key in line.numbers))
    judged = list(dict.fromkeys(v for line in claim.evidence for v in line.holds))
    words = {True: "yes", False: "no", None: ""}
    lines = [
        [
            line.setting,
            *(line.numbers.get(head, "") for head in heads),
            *(words[line.holds.get(v)] for v in judged),
            line.note,
        ]
        for line in claim.evidence
    ]
    return _table(["setting", *heads, *(f"holds: {settings.methods.get(v, v)}" for v in judged), ""], lines)


# ---- numbers


def _panel(settings: Settings, curves: Curves, name: str) -> str:
    """The figure, and the numbers behind it."""
    panel = settings.panels[name]
    title = f"<h3>{escape(f'{name}: {panel.title}' if len(name) == 1 else panel.title)}</h3>"
    cases = cases_of(curves, panel)
    if not cases:
        return f"{title}<p>Not measured.</p>"
    return "\n".join(
        [title, _image(f"panel-{name}", panel.title), *(_numbers(settings, curves, name, c) for c in cases)]
    )


def _numbers(settings: Settings, curves: Curves, name: str, case: str) -> str:
    """Mean, standard deviation and standard error of every method; where RCA does what V as covariates does."""
    panel = settings.panels[name]
    held = {m: curves[name, case, m] for m in panel.methods if (name, case, m) in curves}
    xs = next(iter(held.values())).x
    lines = [
        [
            method_label(settings, panel, method),
            *(f"{m:.3g} ± {s:.2g} ({e:.1g})" for m, s, e in zip(c.mean, c.sd, c.standard_error, strict=True)),
        ]
        for method, c in held.items()
    ]
    count = max(int(curve.count.max()) for curve in held.values())
    data = f"{case}, simulated labs" if name == "biomarkers" else f"simulated data, {settings.mixings.get(case, case)}"
    about = f"{data}: mean ± standard deviation (standard error), repeats: {count}"
    where = ", ".join(f"{x:g}" for x in residualising(curves, name, case))
    note = (
        f"Here RCA is residualising at {AXIS_NAMES[panel.x]} = {where}: by default it is V as covariates in most draws."
    )
    return (
        f"<details><summary>{escape(about)}</summary>{f'<p>{escape(note)}</p>' if where else ''}"
        f"{_table([panel.x, *(f'{x:g}' for x in xs)], lines)}</details>"
    )


def _table(heads: Iterable[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _image(stem: str, label: str) -> str:
    return f'<p><img alt="{escape(label)}" src="figures/{escape(stem)}.png"></p>'


def _how(settings: Settings, rows: Sequence[Row]) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "matplotlib"))
    return (
        "<h2>How it was made</h2>"
        f"<p>richcomponents {escape(richcomponents.__version__)}, Python {platform.python_version()}, {escape(versions)}. "
        f"{len(rows)} rows in rows.csv, each with its own seed: a hash of the seed of the settings ({settings.seed}), the "
        "panel, the case, x and the repeat. The same command gives the same rows with any number of processes, killed in "
        "between or not. Biomarkers are real measurements with simulated labs; the embedded table's raw columns violate the "
        "model (first canonical correlation .99 without any lab), so the rows of its controls are permuted before the labs "
        "are added.</p>"
        f"<details><summary>settings.toml</summary><pre>{escape(settings.text)}</pre></details>"
    )
