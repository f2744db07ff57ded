"""The paper's claims, in its own words, next to what was measured: which hold, and in which variant of RCA."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import rankdata

from reproduction.panels import Curve, Curves, method_label
from reproduction.settings import Array, Settings

CLOSE = 2.0
""""Approaches", "fairly accurate", "robust": at most so many times the other error."""
REASONABLE = 0.1
""""Reasonable estimates of A": at most so much of the error of A = 0, and substantially better than V regressed on U."""
SUBSTANTIAL = 0.75
""""Substantially better": at most so much of the benchmarks' error."""
FASTER = 2.0
""""A rate similar to": at most so many times the steps."""
LEVEL = 0.05
""""Significantly": the level of the paired test."""
DRAWS = 5
"""Fewer cannot reach that level, whatever they are: 2^-5 is the least p value of five."""
EQUAL = 0.01
"""Errors that differ by less, relative to them, are those of one and the same estimate."""

VARIANTS = ("paper_known", "paper", "known", "rca")
"""What "RCA" may mean: the paper's formulas and learners with A known and with A estimated, and RCA as it is here, the same."""
_BENCHMARKS = ("naive", "cca", "cca5")
_ALONE = "benchmarks"


@dataclass(frozen=True)
class ClaimCheck:
    """One line of evidence.

    setting : where; case : which A, if there are several; numbers : what was measured there; holds : variant -> whether the
    claim is true of it ("benchmarks", where the claim is not about RCA); note : what else is to be said.
    """

    setting: str
    numbers: Mapping[str, str]
    holds: Mapping[str, bool]
    case: str = ""
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """quote : from the paper, or our own words if `ours`; where : its panels; test : how the words were turned into a test;
    missing : what was not run, without which it is not judged; evidence : one line per setting; without : variants that it
    says nothing about, and why."""

    quote: str
    where: str
    test: str
    evidence: Sequence[ClaimCheck]
    missing: Sequence[str] = ()
    ours: bool = False
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        return bool(self.evidence) and not self.missing

    @property
    def alone(self) -> bool:
        """Whether it is about the benchmarks, not about RCA."""
        return any(_ALONE in line.holds for line in self.evidence)

    def verdict(self, variant: str) -> str:
        """ "holds", "k of m", "fails", or why it is not judged."""
        if not self.measured:
            return "not measured"
        lines = [line for line in self.evidence if variant in line.holds]
        true = sum(line.holds[variant] for line in lines)
        if not lines:
            return self.without.get(variant, "not judged")
        return "holds" if true == len(lines) else f"{true} of {len(lines)}" if true else "fails"

    def by_case(self, variant: str) -> str:
        """ "good 3/3, unif 1/3", where there are several kinds of A and it holds in some settings only."""
        cases = dict.fromkeys(line.case for line in self.evidence if line.case)
        if len(cases) < 2 or " of " not in self.verdict(variant):
            return ""
        counts = {case: [line.holds[variant] for line in self.evidence if line.case == case] for case in cases}
        return ", ".join(f"{case} {sum(held)}/{len(held)}" for case, held in counts.items())


def claim_verdicts(claim: Claim) -> dict[str, str]:
    """Variant -> verdict; a claim about the benchmarks has one."""
    names = (_ALONE,) if claim.alone else VARIANTS
    return {name: claim.verdict(name) for name in names}


def paired_p(ours: Array, theirs: Array) -> float:
    """One-sided p value that errors (repeats,) are smaller than others on the same draws: signed ranks of log ratios.

    Exact given the ranks, ties included: where nothing differs, each rank (twice it, a whole number) counts with chance 1/2.

    >>> errors = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> paired_p(errors, errors * 1.5), paired_p(errors, errors)
    (0.03125, 1.0)
    """
    ratios = (np.log(np.maximum(ours, 1e-300)) - np.log(np.maximum(theirs, 1e-300))).round(12)
    ratios = ratios[ratios != 0]
    ranks = (2 * rankdata(np.abs(ratios))).astype(int)
    chance = np.ones(1)  # of each sum of the ranks of positive ratios
    for rank in ranks:
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    return min(float(chance[: int(ranks[ratios > 0].sum()) + 1].sum()), 1.0)


@dataclass(frozen=True)
class Point:
    """values : method -> errors (repeats,) on the same draws, at one x of one case of a panel."""

    values: Mapping[str, Array]

    def mean(self, method: str) -> float:
        return float(self.values[method].mean())

    def like(self, method: str, other: str) -> str:
        """The other method with the same learner: the paper's own beside the paper's formulas, where that was run."""
        return f"paper_{other}" if method.startswith("paper") and f"paper_{other}" in self.values else other

    def better(self, method: str, others: Iterable[str], margin: float = 1.0) -> bool:
        """Whether its mean is below each of theirs (times a margin), and the paired test says so, too, of each."""
        rivals = [self.like(method, other) for other in others]
        return all(
            self.mean(method) < margin * self.mean(other) and paired_p(self.values[method], self.values[other]) < LEVEL
            for other in rivals
        )

    def floor(self, method: str) -> float:
        """The error on true samples with the same learner: the paper's own for the paper's formulas, where that was run."""
        return self.mean("paper_true" if method.startswith("paper") and "paper_true" in self.values else "true")

    def accurate(self, method: str) -> bool:
        """Whether it is close to its floor."""
        return self.mean(method) <= CLOSE * self.floor(method)

    @property
    def residualising(self) -> float:
        """Share of the draws in which RCA by default and V as covariates have the same error."""
        if not {"rca", "covariates"} <= set(self.values):
            return 0.0
        rca, covariates = self.values["rca"], self.values["covariates"]
        return float(np.mean(np.abs(rca - covariates) <= EQUAL * covariates))


def residualising(curves: Curves, panel: str, case: str) -> list[float]:
    """The x at which RCA by default is V as covariates in most draws."""
    return [x for x in _xs(curves, panel, case) if _point(curves, panel, case, x).residualising > 0.5]


def _xs(curves: Curves, panel: str, case: str) -> list[float]:
    return sorted({float(x) for key, curve in curves.items() if key[:2] == (panel, case) for x in curve.x})


def _point(curves: Curves, panel: str, case: str, x: float) -> Point:
    held = {key[2]: curve for key, curve in curves.items() if key[:2] == (panel, case) and x in curve.x}
    return Point({method: curve.draws_at(x) for method, curve in held.items()})


def check_claims(settings: Settings, curves: Curves) -> list[Claim]:
    """Every claim of the paper's section on experiments, and of Section 3.3 on kernel CCA, in every variant of RCA.

    At the end two of our own, which the paper's words suggest.
    """
    look = _Reader(settings, curves)
    moments, descents, strengths = "abc", "de", "hij"
    paired = f"a paired test on the same draws (signed ranks of log errors, one-sided, {LEVEL:.0%})"
    no_steps = dict.fromkeys(("known", "rca"), "no stochastic gradients")

    def claim(
        quote: str,
        panels: Sequence[str],
        test: str,
        evidence: Callable[[], Sequence[ClaimCheck]],
        *,
        at: float | None = None,
        **more: object,
    ) -> Claim:
        missing = look.missing(panels, at, DRAWS if paired in test else 1)
        where = ", ".join(panels) if len(panels) < 3 or len(panels[0]) > 1 else f"{panels[0]}-{panels[-1]}"
        return Claim(quote, where, test, [] if missing else evidence(), missing, **more)  # type: ignore[arg-type]

    return [
        claim(
            "Even with just 100 samples, RCA performs significantly better than the naive approach and CCA.",
            moments,
            f"at N = 100 mean error below those of naive and of CCA (1 and 5 variates), and {paired}",
            lambda: look.against(moments, 100),
            at=100,
        ),
        claim(
            "With 1000 samples, the accuracy of RCA approaches that of the algorithm using the true samples from S1.",
            moments,
            f"mean error at N = 1000 at most {CLOSE:g} times that of the same learner on true samples",
            lambda: look.lines(moments, 1000, Point.accurate),
            at=1000,
        ),
        claim(
            "Projecting onto the subspace orthogonal to CCA can perform much worse than even the naive algorithm. In the "
            "linear regression setting, for example [...]",
            "b",
            f"naive below CCA (5 variates) at N = 1000: mean error at most 1 / 1.2 of it, and {paired}",
            lambda: look.lines("b", 1000, lambda at, _: at.better("naive", ["cca5"], 1 / 1.2), alone=True),
            at=1000,
        ),
        claim(
            "RCA also performed substantially better than the two benchmarks (Figure 1 d, e).",
            descents,
            f"mean error at N = 1000 at most {SUBSTANTIAL:g} times those of naive and of CCA, and {paired}",
            lambda: look.against(descents, 1000, SUBSTANTIAL),
            at=1000,
        ),
        claim(
            "In all the cases, the accuracy of RCA improved monotonically with increasing sample size.",
            moments + descents,
            "mean error falls from every N to the next",
            lambda: look.trends(moments + descents),
        ),
        claim(
            "This was not the case for the Naive and CCA algorithms, which were unable to take advantage of larger data due to "
            "model-misspecification.",
            moments + descents,
            "mean error at the largest N at least half of that at N = 1000, of naive and of CCA (1 variate), each by itself",
            lambda: look.stagnant(moments + descents),
            at=1000,
        ),
        claim(
            "RCA converges to the final state at a rate similar to the true-sample case.",
            "fg",
            f"the mean error falls, nine tenths of the way in at most {FASTER:g} times the steps of true samples (the paper's "
            "learner on them: exact gradients have other steps)",
            lambda: look.rates("fg"),
            without=no_steps,
        ),
        claim(
            "The residual error of RCA is due to the bias introduced by approximating the sigmoid with low-degree polynomial.",
            "fg",
            "after the last step at least half of what exceeds the error of exact gradients on true samples is there on true "
            "samples with the same polynomial, too",
            lambda: look.residues("fg"),
            without=no_steps,
        ),
        claim(
            "When many samples are available, a higher-degree polynomial approximation can be used to reduce this bias.",
            ["degree"],
            "mean squared distance from the coefficients of the sigmoid itself on true samples smaller at the largest degree "
            f"than at the smallest, and {paired} (on true samples it is the bias of the polynomial alone)",
            lambda: look.degrees(),
        ),
        claim(
            "At close to 0, most of the signal of U comes from S1, and all the algorithms are fairly accurate.",
            strengths,
            f"at the smallest strength, RCA, naive and CCA (1 variate), each by itself, within {CLOSE:g} times the error of "
            "the same learner on true samples",
            lambda: look.all_accurate(strengths),
        ),
        claim(
            "As the strength of the perturbation increases, RCA performs significantly better than the benchmarks [...]",
            strengths,
            f"at the largest strength mean error below those of naive and of CCA (1 and 5 variates), each by itself, and "
            f"{paired}; and it has grown less (growth is shown)",
            lambda: look.growths(strengths),
        ),
        claim(
            "Even with 1000 samples, we can obtain reasonable estimates of A in R^(30 x 30).",
            "k",
            f"at N = 1000 mean squared error of A at most {REASONABLE:g} times that of A = 0 and {SUBSTANTIAL:g} times that of "
            f"regressing V on U, and {paired}",
            lambda: look.mixings(),
            at=1000,
            without=dict.fromkeys(("paper_known", "known"), "A is given"),
        ),
        claim(
            "The empirical results are robust to other choices of S3 that we have tried, e.g. multivariate Gaussian or mixture "
            "of Gaussians.",
            ["s3"],
            f"N = 1000, good A: RCA is better than naive and CCA (1 and 5 variates), each by itself, with uniform S3 and with "
            f"the other, by {paired}, and its mean error with the other is at most {CLOSE:g} times that with uniform S3",
            lambda: look.other_noises("s3"),
        ),
        claim(
            "Performing CCA (or kernel CCA) followed by taking the orthogonal projection leads to very poor performance.",
            ["kernel"],
            f"N = 1000, good A: mean error of RCA at most 1 / {CLOSE:g} of those of CCA and of kernel CCA, each by itself, and "
            f"{paired}",
            lambda: look.against(["kernel"], 1000, 1 / CLOSE, ("cca", "kernel_cca")),
            at=1000,
        ),
        claim(
            "Running logistic regression directly on U [gave] a MSE of 0.24 (std 0.03) [...] CCA [...] 0.25 (std 0.02). "
            "Using all the control markers as covariates [...] 0.14 (std 0.03). Using our RCA [...] we obtained significantly "
            "more accurate estimates [...], with MSE 0.1 (std 0.03).",
            ["biomarkers"],
            f"mean error below those of covariates, naive and CCA at this scale of the lab biases (the paper does not tell "
            f"its own), each judged by itself, and {paired}; the paper's formulas are judged where their learner, on markers "
            "without any perturbation, is better than naive",
            lambda: look.biomarkers(("covariates", "naive", "cca")),
        ),
        claim(
            "Adding V as covariates to the regression can eliminate S2 at the expense of adding S3, and can reduce accuracy "
            "when S3 is larger than S2.",
            ["biomarkers"],
            f"at the smallest scale of the lab biases naive has a smaller mean error than covariates, and {paired}",
            lambda: look.biomarkers(())[:1],
        ),
        *(
            claim(
                f"With {n} samples, RCA is better than naive and CCA in each of the five settings.",
                moments + descents,
                f"mean error at N = {n} below those of naive and of CCA (1 and 5 variates), and {paired}",
                lambda n=n: look.against(moments + descents, n),  # type: ignore[misc]
                at=n,
                ours=True,
            )
            for n in (100, 1000)
        ),
    ]


class _Reader:
    """Reads errors off the curves."""

    def __init__(self, settings: Settings, curves: Curves) -> None:
        self.settings, self.curves = settings, curves

    def missing(self, panels: Sequence[str], at: float | None, draws: int) -> list[str]:
        """The panels that were not run to their end, with so many draws, or are not measured at this x."""
        return [name for name in panels if not self._ran(name, at, draws)]

    def _ran(self, name: str, at: float | None, draws: int) -> bool:
        panel = self.settings.panels.get(name)
        if panel is None or (at is not None and at not in panel.values):
            return False
        measured = dict.fromkeys(key[1] for key in self.curves if key[0] == name)
        cases = list(panel.cases or measured)  # those of the biomarkers are files
        curves = [self.curves.get((name, case, method)) for case in cases for method in panel.methods]
        return bool(cases) and all(
            c is not None and set(panel.values) <= set(c.x) and c.count.min() >= draws for c in curves
        )

    def lines(
        self, panels: Sequence[str], x: float | None, holds: Callable[[Point, str], bool], *, alone: bool = False
    ) -> list[ClaimCheck]:
        """At one x (by default the first), for each panel and each case."""
        out = []
        for name, case in self._cases(panels):
            here = self.settings.panels[name].values[0] if x is None else x
            at = _point(self.curves, name, case, here)
            out.append(self._line(name, case, self._means(name, at), self._judged(at, holds, alone), self._note(at)))
        return out

    def against(
        self, panels: Sequence[str], x: float, margin: float = 1.0, others: Sequence[str] = _BENCHMARKS
    ) -> list[ClaimCheck]:
        """At one x, each benchmark judged by itself."""
        out = []
        for name, case in self._cases(panels):
            at = _point(self.curves, name, case, x)
            line = self._line(name, case, self._means(name, at), {}, self._note(at))
            held = {m: {v: at.better(v, [m], margin) for v in VARIANTS if v in at.values} for m in others}
            out += self._one_by_one(line, name, held)
        return out

    def all_accurate(self, panels: Sequence[str]) -> list[ClaimCheck]:
        """At the first x: a variant, naive and CCA with the same learner, each judged by itself."""
        out = []
        for name, case in self._cases(panels):
            at = _point(self.curves, name, case, self.settings.panels[name].values[0])
            line = self._line(name, case, self._means(name, at), {}, self._note(at))
            own = {v: at.accurate(v) for v in VARIANTS if v in at.values}
            out.append(replace(line, setting=f"{line.setting}, RCA", holds=own))
            for m in ("naive", "cca"):
                holds = {v: at.accurate(at.like(v, m)) for v in own}
                out.append(replace(line, setting=f"{line.setting}, {self._label(name, m)}", holds=holds))
        return out

    def trends(self, panels: Sequence[str]) -> list[ClaimCheck]:
        """Whether the mean falls with N."""
        out = []
        for name, case in self._cases(panels):
            curves = {v: self._curve(name, case, v) for v in VARIANTS}
            numbers = {self._label(name, v): ", ".join(f"{m:.2g}" for m in curve.mean) for v, curve in curves.items()}
            falls = {v: bool(np.all(np.diff(curve.mean) < 0)) for v, curve in curves.items()}
            out.append(self._line(name, case, numbers, falls, self._residualising_at(name, case)))
        return out

    def stagnant(self, panels: Sequence[str]) -> list[ClaimCheck]:
        """Errors of the benchmarks at N = 1000 and at the largest N."""
        out = []
        for name, case in self._cases(panels):
            for m in ("naive", "cca"):
                curve = self._curve(name, case, m)
                numbers = {self._label(name, m): f"{curve.at(1000):.2g}, {curve.mean[-1]:.2g}"}
                out.append(self._line(name, case, numbers, {_ALONE: bool(curve.mean[-1] > curve.at(1000) / 2)}))
        return out

    def growths(self, panels: Sequence[str]) -> list[ClaimCheck]:
        """Growth of the mean error from the first to the last strength."""
        out = []
        for name, case in self._cases(panels):
            panel = self.settings.panels[name]
            first, last = (_point(self.curves, name, case, panel.values[i]) for i in (0, -1))
            grown = {m: last.mean(m) - first.mean(m) for m in panel.methods}
            numbers = {self._label(name, m): f"{value:+.2g}" for m, value in grown.items()}
            held = {
                m: {v: last.better(v, [m]) and grown[v] < grown[last.like(v, m)] for v in VARIANTS} for m in _BENCHMARKS
            }
            out += self._one_by_one(self._line(name, case, numbers, {}, self._note(last)), name, held)
        return out

    def degrees(self) -> list[ClaimCheck]:
        """From the smallest degree to the largest: of every variant, and of the polynomials on true samples."""
        out = []
        for name, case in self._cases(["degree"]):
            panel = self.settings.panels[name]
            first, last = (_point(self.curves, name, case, panel.values[i]) for i in (0, -1))
            numbers = {self._label(name, m): f"{first.mean(m):.2g} → {last.mean(m):.2g}" for m in panel.methods}
            falls = {
                m: last.mean(m) < first.mean(m) and paired_p(last.values[m], first.values[m]) < LEVEL for m in VARIANTS
            }
            out.append(self._line(name, case, numbers, falls))
        return out

    def rates(self, panels: Sequence[str]) -> list[ClaimCheck]:
        """Steps until nine tenths of the way from the first to the last mean error are done; none where it does not fall."""
        out = []
        for name, case in self._cases(panels):
            steps, numbers = {}, {}
            methods = self.settings.panels[name].methods
            for method in (m for m in methods if m != "default"):
                curve = self._curve(name, case, method)
                start, end = curve.mean[0], curve.mean[-1]
                falls = bool(end < start)
                steps[method] = float(curve.x[np.argmax(curve.mean <= end + 0.1 * (start - end))]) if falls else np.inf
                how = f"{steps[method]:g} steps" if falls else "no fall"
                numbers[self._label(name, method)] = f"{how}, to {end:.2g}"
            most = FASTER * max(steps["paper_true"], 1.0)
            holds = {v: steps[v] <= most < np.inf for v in VARIANTS if v in methods}
            out.append(self._line(name, case, numbers, holds))
        return out

    def residues(self, panels: Sequence[str]) -> list[ClaimCheck]:
        """After the last step."""
        out = []
        for name, case in self._cases(panels):
            panel = self.settings.panels[name]
            last = {m: float(self._curve(name, case, m).mean[-1]) for m in panel.methods}
            polynomial = last["paper_true"] - last["true"]
            holds = {v: polynomial >= (last[v] - last["true"]) / 2 > 0 for v in VARIANTS if v in last}
            numbers = {self._label(name, m): f"{value:.2g}" for m, value in last.items()}
            out.append(self._line(name, case, numbers, holds))
        return out

    def mixings(self) -> list[ClaimCheck]:
        """Of thirty dimensions, as the paper says."""
        out = []
        for name, case in self._cases("k"):
            at = _point(self.curves, name, case, 1000)
            holds = {
                v: at.better(v, ["zero"], REASONABLE) and at.better(v, ["regression"], SUBSTANTIAL)
                for v in ("paper", "rca")
            }
            out += [ClaimCheck(case, self._means(name, at), holds)] if case == "d=30" else []
        return out

    def other_noises(self, name: str) -> list[ClaimCheck]:
        """Each S3 against the uniform one."""
        panel, out = self.settings.panels[name], []
        for case, design in panel.designs.items():
            if design["S3"] == "uniform":
                continue
            same = next(other for other, its in panel.designs.items() if its == {**design, "S3": "uniform"})
            there, here = (_point(self.curves, name, c, panel.values[0]) for c in (same, case))
            numbers = {self._label(name, m): f"{there.mean(m):.2g} → {here.mean(m):.2g}" for m in panel.methods}
            near = {v: here.mean(v) <= CLOSE * there.mean(v) for v in VARIANTS}
            held = {
                m: {v: near[v] and there.better(v, [m]) and here.better(v, [m]) for v in VARIANTS} for m in _BENCHMARKS
            }
            out += self._one_by_one(ClaimCheck(case, numbers, {}, note=self._note(here)), name, held)
        return out

    def biomarkers(self, others: Sequence[str]) -> list[ClaimCheck]:
        """At every scale, each of these benchmarks judged by itself, with standard deviations; without any: whether covariates
        lose to naive. Nothing is judged of a learner that is no better than naive on markers without any perturbation."""
        out = []
        for name, case in self._cases(["biomarkers"]):
            panel = self.settings.panels[name]
            for x in panel.values:
                at = _point(self.curves, name, case, x)
                numbers = {
                    self._label(name, m): f"{at.mean(m):.2g} (std {at.values[m].std(ddof=1):.1g})"
                    for m in panel.methods
                    if m != "rank"
                }
                where = f"{case}, scale {x:g}"
                judged = [v for v in VARIANTS if not v.startswith("paper") or at.floor(v) < at.mean("naive")]
                held = {m: {v: at.better(v, [m]) for v in judged} for m in others}
                out += self._one_by_one(ClaimCheck(where, numbers, {}, note=self._note(at)), name, held)
                if not others:
                    out.append(ClaimCheck(where, numbers, {_ALONE: at.better("naive", ["covariates"])}))
        return out

    # ---- parts of a line

    def _judged(self, at: Point, holds: Callable[[Point, str], bool], alone: bool) -> dict[str, bool]:
        return {_ALONE: holds(at, "")} if alone else {v: holds(at, v) for v in VARIANTS if v in at.values}

    def _line(
        self, name: str, case: str, numbers: Mapping[str, str], holds: Mapping[str, bool], note: str = ""
    ) -> ClaimCheck:
        panel = self.settings.panels[name]
        kind = case if case in self.settings.mixings else ""
        return ClaimCheck(f"{name}  {panel.title}, {f'A {case}' if kind else case}", numbers, holds, kind, note)

    def _one_by_one(self, line: ClaimCheck, name: str, held: Mapping[str, Mapping[str, bool]]) -> list[ClaimCheck]:
        """A line for each benchmark; held : what is true against it."""
        return [
            replace(line, setting=f"{line.setting}, against {self._label(name, other)}", holds=holds)
            for other, holds in held.items()
        ]

    def _note(self, at: Point) -> str:
        share = at.residualising
        return f"here RCA is residualising ({share:.0%} of the draws)" if share > 0.5 else ""

    def _residualising_at(self, name: str, case: str) -> str:
        where = residualising(self.curves, name, case)
        return f"here RCA is residualising at N = {', '.join(f'{x:g}' for x in where)}" if where else ""

    def _curve(self, name: str, case: str, method: str) -> Curve:
        return self.curves[name, case, method]

    def _cases(self, panels: Sequence[str]) -> list[tuple[str, str]]:
        """(panel, case) that were measured, in the order of the settings."""
        out = []
        for name in panels:
            measured = list(dict.fromkeys(key[1] for key in self.curves if key[0] == name))
            known = self.settings.panels[name].cases
            out += [(name, case) for case in known if case in measured]
            out += [(name, case) for case in sorted(measured) if case not in known]
        return out

    def _label(self, name: str, method: str) -> str:
        return method_label(self.settings, self.settings.panels[name], method)

    def _means(self, name: str, at: Point) -> dict[str, str]:
        return {self._label(name, m): f"{at.mean(m):.2g}" for m in self.settings.panels[name].methods if m in at.values}
