"""`rca paper`: from settings to rows, figures and the page.

The page: the paper's claims next to what was measured; one file, nothing loaded from outside.
"""

from __future__ import annotations

import base64
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import richcomponents
from richcomponents.errors import DataError
from richcomponents.experiments import biomarkers, simulations
from richcomponents.experiments.claims import VARIANTS, Claim, check_claims, claim_verdicts, residualising
from richcomponents.experiments.panels import (
    AXIS_NAMES,
    Curves,
    cases_of,
    curves_of,
    joined_figure,
    method_label,
    panel_figure,
    save_figure,
)
from richcomponents.experiments.rows import Job, Row, Settings, load_settings, run_jobs
from richcomponents.outputs import check_outputs, write_text
from richcomponents.progress import metered
from richcomponents.report.page import policy
from richcomponents.text import escape, plain

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #57606a; --line: #d0d7de; --card: #f6f8fa;
  --yes: #1a7f37; --part: #9a6700; --no: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9198a1; --line: #3d444d;
  --card: #161b22; --yes: #3fb950; --part: #d29922; --no: #f85149; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; } h3 { margin: 1.6rem 0 .4rem; }
p.lead, .soft { color: var(--soft); }
.claim { border: 1px solid var(--line); border-radius: 8px; margin: .8rem 0; padding: .8rem 1rem; background: var(--card); }
.claim blockquote { margin: 0 0 .4rem; font-style: italic; }
.verdict { font-weight: 600; } .agrees { color: var(--yes); } .part { color: var(--part); } .not { color: var(--no); }
.unmeasured { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .6rem; text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
figure { margin: .6rem 0; } figure img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem;
  font-size: .8rem; } summary { cursor: pointer; }
.matrix th, .matrix td { text-align: center; } .matrix td { vertical-align: top; min-width: 7rem; }
.matrix td.words { text-align: left; white-space: normal; min-width: 22rem; }
.note { border-left: 4px solid var(--part); padding: .3rem .8rem; }
@media (max-width: 600px) { body { padding: 1rem .8rem; } figure.joined { overflow-x: auto; }
  figure.joined img { max-width: none; width: 60rem; } .matrix td.words { min-width: 13rem; } }
@media print { @page { margin: 14mm 12mm; }
  :root { --ink: #000; --paper: #fff; --soft: #444; --line: #bbb; --card: #fff; --yes: #1a7f37; --part: #9a6700; --no: #cf222e;
    color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10.5pt; } .scroll { overflow: visible; } pre { white-space: pre-wrap; }
  .note, figure, tr { break-inside: avoid; } h2, h3, blockquote { break-after: avoid; } thead { display: table-header-group; }
  figure img { max-height: 200mm; } table { font-size: 7.5pt; max-width: 100%; } th, td { padding: .12rem .25rem; }
  th:first-child, td:first-child { white-space: normal; } .matrix td, .matrix td.words { min-width: 0; }
  details > summary { list-style: none; }
  details::details-content { content-visibility: visible; display: block; height: auto; } }
"""


def write_page(
    path: Path,
    settings: Settings,
    rows: Sequence[Row],
    claims: Sequence[Claim],
    figures: Path,
    notes: Sequence[str] = (),
) -> Path:
    """index.html from rows, claims and the PNG figures in `figures`."""
    curves = curves_of(rows)
    measured = [name for name in settings.panels if any(key[0] == name for key in curves)]
    parts = [
        "<h1>Rich Component Analysis: the paper's experiments, measured again</h1>",
        "<p class=lead>Ge and Zou, Section 5 and Figure 1. U = S1 + S2, V = A S2 + S3; the parameters of S1 are learned "
        "from U and V. What the paper claims stands next to what was measured, agreeing or not.</p>",
        _overview(settings, claims),
        *(
            [_image(joined, "all panels of Figure 1", "joined")]
            if (joined := figures / "figure-1.png").exists()
            else []
        ),
        *_by_variant(settings, claims),
        *(f"<p class=note>{escape(note)}</p>" for note in notes),
        "<h2>Claim by claim</h2>",
        "<p class=soft>Quotations are from the paper (its figure was not at hand). Errors are means over repeats; all methods "
        "see the same draws, and “significantly” is a paired test on them.</p>",
        *(_claim(settings, number, claim) for number, claim in enumerate(claims, 1) if claim.measured),
        _folded(
            "Claims that were not measured", [_claim(settings, i, c) for i, c in enumerate(claims, 1) if not c.measured]
        ),
        "<h2>Panel by panel</h2>",
    ]
    for name in measured:
        panel = settings.panels[name]
        label = f"{name}: {panel.title}" if len(name) == 1 else panel.title
        parts += [f"<h3 id='panel-{escape(name)}'>{escape(label)}</h3>", _image(figures / f"panel-{name}.png", label)]
        for case in cases_of(curves, panel):
            parts += [_residualising(settings, curves, name, case), _numbers(settings, curves, name, case)]
    unmeasured = [f"{name}: {panel.title}" for name, panel in settings.panels.items() if name not in measured]
    parts += [_folded("Panels that were not measured", [f"<p>{escape(text)}</p>" for text in unmeasured])]
    parts += [_how(settings, rows)]
    body = "\n".join(parts)
    write_text(
        path,
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>Rich Component Analysis: the paper's experiments</title>{policy(_STYLE)}<style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n",
    )
    return path


# ---- claims


def _overview(settings: Settings, claims: Sequence[Claim]) -> str:
    said = [claim for claim in claims if claim.measured and not claim.ours]
    if not said:
        return "<p>None of the paper's claims was measured: run all of their panels.</p>"
    about = [claim for claim in said if not claim.alone]
    counts = [
        f"{sum(claim.verdict(v) == 'holds' for claim in about)} {escape(settings.methods.get(v, v))}" for v in VARIANTS
    ]
    alone = [claim.verdict("benchmarks") == "holds" for claim in said if claim.alone]
    return (
        f"<p>Of the <b>{len(about)} claims about RCA</b> that were measured, these hold in every setting: "
        + ", ".join(f"<b>{text.split(' ', 1)[0]}</b> with {text.split(' ', 1)[1]}" for text in counts)
        + f". Of {len(alone)} about the benchmarks alone, {sum(alone)} hold.</p>"
    )


def _variants(settings: Settings) -> str:
    mixings = "; ".join(f"“{name}” is {text}" for name, text in settings.mixings.items())
    return (
        "<p class=soft>The paper does not say whether A was known in a-j. So each claim is tested in four variants: by the "
        "paper's formulas and the paper's learners (plain second moments, alternating minimisation, stochastic gradients with "
        "the cubic and with the Taylor polynomial) with A known and with A from its equation (2), and by RCA as it is here, "
        f"with A known and unknown. Nor does it say which A it was: {escape(mixings)}.</p>"
    )


def _by_variant(settings: Settings, claims: Sequence[Claim]) -> list[str]:
    """The claims that were measured, if any was."""
    if not any(claim.measured for claim in claims):
        return []
    return ["<h2>Claim by variant</h2>", _variants(settings), _matrix(settings, claims)]


def _matrix(settings: Settings, claims: Sequence[Claim]) -> str:
    """Claim by variant; those that were not measured are folded below."""
    heads = "".join(f"<th>{escape(text)}</th>" for text in ("claim", *(settings.methods.get(v, v) for v in VARIANTS)))
    lines = []
    for number, claim in enumerate(claims, 1):
        if not claim.measured:
            continue
        verdicts = claim_verdicts(claim)
        span = f" colspan={len(VARIANTS)}" if len(verdicts) == 1 else ""
        cells = "".join(
            f"<td{span} class='verdict {_kind(text)}'>{escape(text)}"
            f"{' (about the benchmarks)' if span else ''}<br><small>{escape(claim.by_case(name))}</small></td>"
            for name, text in verdicts.items()
        )
        words = escape(claim.quote if not claim.ours else f"(not the paper's words) {claim.quote}")
        lines.append(f"<tr><td class=words>{number}. {words} <small>({escape(claim.where)})</small></td>{cells}</tr>")
    body = "".join(lines)
    return f"<div class=scroll><table class=matrix><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"


def _kind(verdict: str) -> str:
    return {"holds": "agrees", "fails": "not"}.get(verdict, "part" if " of " in verdict else "unmeasured")


def _claim(settings: Settings, number: int, claim: Claim) -> str:
    verdicts = claim_verdicts(claim)
    names = {**dict.fromkeys(verdicts, "about the benchmarks"), **{v: settings.methods.get(v, v) for v in VARIANTS}}
    said = "; ".join(
        f"{escape(names[v])}: <span class='verdict {_kind(text)}'>{escape(text)}</span>" for v, text in verdicts.items()
    )
    if not claim.measured:
        missing = escape(", ".join(claim.missing))
        said = f"<span class='verdict unmeasured'>not measured</span>: {missing} did not run, or with too few draws"
    words = escape(claim.quote if claim.ours else f"“{claim.quote}”")
    about = "" if not claim.ours else "Not the paper's words. "
    return (
        f"<div class=claim><blockquote>{number}. {words}</blockquote><div>{said}</div>"
        f"<div class=soft>{about}Panels {escape(claim.where)}; tested: {escape(claim.test)}.</div>"
        f"{_evidence(settings, claim) if claim.measured else ''}</div>"
    )


def _evidence(settings: Settings, claim: Claim) -> str:
    heads = list(dict.fromkeys(key for line in claim.evidence for key in line.numbers))
    judged = list(dict.fromkeys(v for line in claim.evidence for v in line.holds))
    noted = any(line.note for line in claim.evidence)
    words = {True: "yes", False: "no", None: ""}
    lines = [
        [
            line.setting,
            *(line.numbers.get(head, "") for head in heads),
            *(words[line.holds.get(v)] for v in judged),
            *([line.note] if noted else []),
        ]
        for line in claim.evidence
    ]
    titles = [f"holds: {settings.methods.get(v, v)}" if v in VARIANTS else "holds" for v in judged]
    table = _table(["setting", *heads, *titles, *([""] if noted else [])], lines)
    return f"<details><summary>evidence</summary>{table}</details>"


def _folded(title: str, parts: Sequence[str]) -> str:
    """What need not be seen at once; nothing, if there is nothing."""
    return f"<details><summary>{escape(title)} ({len(parts)})</summary>{''.join(parts)}</details>" if parts else ""


# ---- numbers


def _residualising(settings: Settings, curves: Curves, name: str, case: str) -> str:
    """Where RCA does what V as covariates does."""
    where, panel = residualising(curves, name, case), settings.panels[name]
    if not where:
        return ""
    at = ", ".join(f"{x:g}" for x in where)
    return (
        f"<p class=soft>{escape(settings.mixings.get(case, case))}: here RCA is residualising at {escape(AXIS_NAMES[panel.x])} "
        f"= {at}: by default it is V as covariates in most draws.</p>"
    )


def _numbers(settings: Settings, curves: Curves, name: str, case: str) -> str:
    """Mean, standard deviation and standard error of every method."""
    panel = settings.panels[name]
    lines, heads, count = [], [], 0
    for method in panel.methods:
        curve = curves.get((name, case, method))
        if curve is not None:
            heads = [f"{x:g}" for x in curve.x]
            count = int(curve.count.max())
            cells = [
                f"{m:.3g} ± {s:.2g} ({e:.1g})"
                for m, s, e in zip(curve.mean, curve.sd, curve.standard_error, strict=True)
            ]
            lines.append([method_label(settings, panel, method), *cells])
    repeats = f"{count} repeat{'' if count == 1 else 's'}"
    about = f"{settings.mixings.get(case, case)}: mean ± standard deviation (standard error), {repeats}"
    return f"<details><summary>{escape(about)}</summary>{_table([panel.x, *heads], lines)}</details>"


def _table(heads: Iterable[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _image(path: Path, label: str, kind: str = "panel") -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<figure class={kind}><img alt='{escape(label)}' src='data:image/png;base64,{data}'></figure>"


def _how(settings: Settings, rows: Sequence[Row]) -> str:
    packages = ("numpy", "scipy", "scikit-learn", "matplotlib")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
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


@dataclass(frozen=True)
class _Work:
    """Rows of a job of any panel; picklable, so that workers can have it."""

    settings: Settings
    markers: biomarkers.Markers | None

    def __call__(self, job: Job) -> list[Row]:
        if job["panel"] == "biomarkers":
            assert self.markers is not None
            return biomarkers.measure(self.settings, self.markers, job)
        return simulations.measure(self.settings, job)


def run_paper(out: Path, panels: Sequence[str] = ("all",), *, console: Console | None = None, **options: Any) -> Path:
    """Measure what is missing in `out`, draw everything that is there, and return the page.

    options : of :func:`measure_panels`. `out` gets rows.csv, the figures, index.html and a copy of the settings.
    """
    console = Console() if console is None else console
    settings, rows = measure_panels(out, panels, console=console, **options)
    console.print("drawing the figures")
    return _present(settings, rows, out, console)


def measure_panels(
    out: Path,
    panels: Sequence[str] = ("all",),
    *,
    full: bool = False,
    data: Path | None = None,
    pheno: Path | None = None,
    settings_file: Path | None = None,
    processes: int | None = None,
    console: Console | None = None,
) -> tuple[Settings, list[Row]]:
    """The settings, and all rows in `out` once those of these panels are there.

    panels : letters of the paper's figure, "biomarkers", or "all". data, pheno : files for the biomarkers; the embedded table
    without them.
    """
    settings = load_settings(settings_file)
    console = Console() if console is None else console
    wanted = _names(settings, panels)
    markers, cases = None, {}
    if data is not None and "biomarkers" not in wanted:
        raise DataError("--data is for the biomarkers: add --panel biomarkers (or all)")
    out.mkdir(parents=True, exist_ok=True)
    check_outputs([out / name for name in ("rows.csv", "settings.toml", "index.html")], [data, pheno, settings_file])
    if "biomarkers" in wanted:
        markers = _markers(settings, data, pheno)
        cases = {"biomarkers": [markers.label]}
    _keep_settings(settings, out)
    jobs = settings.jobs(wanted, "full" if full else "quick", cases)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings, _run(jobs, _Work(settings, markers), out / "rows.csv", processes or cores)


def _names(settings: Settings, panels: Sequence[str]) -> list[str]:
    if "all" in panels:
        return list(settings.panels)
    unknown = [name for name in panels if name not in settings.panels]
    if unknown:
        raise DataError(f"there is no panel {unknown[0]!r}: choose from {', '.join(settings.panels)} or all")
    return [name for name in settings.panels if name in panels]


def _keep_settings(settings: Settings, out: Path) -> None:
    """Rows of other settings, or of another version, must not be mixed with these."""
    text = f"# richcomponents {richcomponents.__version__}\n{settings.text}"
    kept = out / "settings.toml"
    if kept.exists() and kept.read_text(encoding="utf-8") != text and (out / "rows.csv").exists():
        raise DataError(f"{out} holds rows of other settings or of another version: choose another --out, or delete it")
    write_text(kept, text)


def _markers(settings: Settings, data: Path | None, pheno: Path | None) -> biomarkers.Markers:
    if data is None and pheno is None:
        return biomarkers.embedded_markers()
    if data is None or pheno is None:
        raise DataError("--data (markers) and --pheno (who is ill) go together")
    return biomarkers.read_markers(data, pheno, outcome=settings.panels["biomarkers"].options["outcome"])


def _run(jobs: Sequence[Job], work: _Work, path: Path, processes: int) -> list[Row]:
    seen = 0
    with metered(f"draws, {processes} at a time", len(jobs)) as advance:

        def told(done: int, total: int) -> None:
            nonlocal seen
            advance(done - seen)
            seen = done

        return run_jobs(jobs, work, path, processes=processes, advance=told)


def _present(settings: Settings, rows: Sequence[Row], out: Path, console: Console) -> Path:
    """Figures, warnings and the page, from rows alone."""
    curves = curves_of(rows)
    figures = out / "figures"
    measured = [name for name in settings.panels if any(key[0] == name for key in curves)]
    for name in measured:
        save_figure(panel_figure(settings, curves, name), figures, f"panel-{name}")
    if any(len(name) == 1 for name in measured):
        save_figure(joined_figure(settings, curves), figures, "figure-1")
    notes = []
    for case in sorted({row["case"] for row in rows if row["panel"] == "biomarkers"}):
        ranks = np.array([row["value"] for row in rows if (row["case"], row["method"]) == (case, "rank")])
        text = biomarkers.shared_beyond_labs(ranks, int(settings.panels["biomarkers"].options["n_labs"]))
        if text is not None:
            notes.append(f"{case}: {text}.")
            console.print(plain(f"warning: {notes[-1]}"), style="yellow", highlight=False, markup=False)
    if "biomarkers" in measured:
        notes.append(biomarkers.ABOUT_A)
    claims = check_claims(settings, curves)
    for number, claim in enumerate(claims, 1):
        if claim.measured:
            said = ", ".join(f"{settings.methods.get(v, v)}: {text}" for v, text in claim_verdicts(claim).items())
            console.print(f"{number}. {claim.quote}\n   {said}", highlight=False, markup=False)
    return write_page(out / "index.html", settings, rows, claims, figures, notes)
