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
from richcomponents.experiments.claims import Claim, check_claims
from richcomponents.experiments.panels import Curves, curves_of, joined_figure, method_label, panel_figure, save_figure
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
.note { border-left: 4px solid var(--part); padding: .3rem .8rem; }
@media print { details { display: block; } .claim { break-inside: avoid; } }
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
        _overview(claims),
        "<h2>Claim by claim</h2>",
        "<p class=soft>Quotations are from the paper's section on experiments (its figure was not at hand). The tests are of "
        "RCA as this library does it by default, with A unknown; beside it RCA with A known, and with A and cumulants by the "
        "paper's formulas. Errors are means over repeats. The paper does not say which A it used in a-j; "
        + escape("; ".join(f"“{name}” is {text}" for name, text in settings.mixings.items()))
        + ".</p>",
        *(_claim(number, claim) for number, claim in enumerate(claims, 1) if not claim.ours),
        "<h3>Not the paper's words</h3>",
        *(_claim(number, claim) for number, claim in enumerate(claims, 1) if claim.ours),
        *(f"<p class=note>{escape(note)}</p>" for note in notes),
    ]
    if (figures / "figure-1.png").exists():
        parts += ["<h2>Figure 1</h2>", _image(figures / "figure-1.png", "all panels of Figure 1")]
    parts += ["<h2>Panel by panel</h2>"]
    for name in measured:
        title = settings.panels[name].title
        label = f"{name}: {title}" if len(name) == 1 else title
        parts += [f"<h3 id='panel-{escape(name)}'>{escape(label)}</h3>", _image(figures / f"panel-{name}.png", label)]
        parts += [_numbers(settings, curves, name, case) for case in _cases(curves, name)]
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


def _overview(claims: Sequence[Claim]) -> str:
    measured = [claim for claim in claims if claim.evidence and not claim.ours]
    agree = sum(claim.verdict == "agrees" for claim in measured)
    partly = sum(claim.verdict.startswith("agrees in") for claim in measured)
    return (
        f"<p><b>{agree} of the paper's {len(measured)} claims</b> that were measured agree in every setting, {partly} in some, "
        f"{len(measured) - agree - partly} in none.</p>"
    )


def _claim(number: int, claim: Claim) -> str:
    kind = {"agrees": "agrees", "does not agree": "not", "not measured": "unmeasured"}.get(claim.verdict, "part")
    table = ""
    if claim.evidence:
        heads = list(dict.fromkeys(key for line in claim.evidence for key in line.numbers))
        said = {True: "yes", False: "no", None: ""}
        lines = [
            [line.setting, *(line.numbers.get(head, "") for head in heads), said[line.holds], said[line.paper_holds]]
            for line in claim.evidence
        ]
        if all(line.paper_holds is None for line in claim.evidence):
            lines = [line[:-1] for line in lines]
        table = _table(["setting", *heads, "agrees", "… by the paper's formulas"][: len(lines[0])], lines)
    words = escape(claim.quote if claim.ours else f"“{claim.quote}”")
    return (
        f"<div class=claim><blockquote>{number}. {words}</blockquote>"
        f"<div><span class='verdict {kind}'>{escape(claim.verdict)}</span> "
        f"<span class=soft>({escape(claim.where)}; tested: {escape(claim.test)})</span></div>{table}</div>"
    )


# ---- numbers


def _cases(curves: Curves, name: str) -> list[str]:
    return list(dict.fromkeys(case for panel, case, _ in curves if panel == name))


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
    about = f"{settings.mixings.get(case, case)}: mean ± standard deviation (standard error), {count} repeats"
    return f"<details><summary>{escape(about)}</summary>{_table([panel.x, *heads], lines)}</details>"


def _table(heads: Iterable[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _image(path: Path, label: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<figure><img alt='{escape(label)}' src='data:image/png;base64,{data}'></figure>"


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
    claims = check_claims(settings, curves)
    for claim in (claim for claim in claims if claim.evidence):
        console.print(f"{claim.verdict} ({claim.where}): {claim.quote}", highlight=False, markup=False)
    return write_page(out / "index.html", settings, rows, claims, figures, notes)
