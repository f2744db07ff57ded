"""The paper's claims, in its own words, next to what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from richcomponents.experiments.panels import Curve, Curves, method_label
from richcomponents.experiments.rows import Settings

CLOSE = 2.0
""""Approaches", "fairly accurate": at most so many times the error on true samples."""
SUBSTANTIAL = 0.75
""""Substantially better": at most so much of the benchmarks' error."""
FASTER = 2.0
""""A rate similar to": at most so many times the steps."""


@dataclass(frozen=True)
class ClaimCheck:
    """One line of evidence: a setting, the numbers, and whether the claim is true of them.

    holds : of RCA as it is by default; paper_holds : of RCA by the paper's formulas, where that was measured.
    """

    setting: str
    numbers: Mapping[str, str]
    holds: bool
    paper_holds: bool | None = None


@dataclass(frozen=True)
class Claim:
    """quote : from the paper, or our own words if `ours`; test : how the words were turned into a test; evidence : one line
    per setting."""

    quote: str
    where: str
    test: str
    evidence: Sequence[ClaimCheck]
    ours: bool = False

    @property
    def verdict(self) -> str:
        """ "agrees", "agrees in k of m settings", "does not agree" or "not measured"."""
        true = sum(line.holds for line in self.evidence)
        if not self.evidence:
            return "not measured"
        if true == len(self.evidence):
            return "agrees"
        return f"agrees in {true} of {len(self.evidence)} settings" if true else "does not agree"


def check_claims(settings: Settings, curves: Curves) -> list[Claim]:
    """Every claim of the paper's section on experiments that its figure and numbers can bear out.

    They are claims about "RCA"; the test is of the default (A unknown). The other ways to A stand beside it. At the end two
    of our own, which the paper's words suggest.
    """
    look = _Reader(settings, curves)
    moments, descents, strengths = "abc", "de", "hij"
    return [
        Claim(
            "Even with just 100 samples, RCA performs significantly better than the naive approach and CCA.",
            "a-c",
            "mean error at N = 100 below that of naive and of CCA (1 and 5 variates)",
            look.lines(moments, 100, look.beats_benchmarks),
        ),
        Claim(
            "With 1000 samples, the accuracy of RCA approaches that of the algorithm using the true samples from S1.",
            "a-c",
            f"mean error at N = 1000 at most {CLOSE:g} times that on true samples",
            look.lines(moments, 1000, lambda at: at("rca") <= CLOSE * at("true")),
        ),
        Claim(
            "Projecting onto the subspace orthogonal to CCA can perform much worse than even the naive algorithm. In the "
            "linear regression setting, for example [...]",
            "b",
            "mean error of CCA (1 or 5 variates) above 1.2 times that of naive at N = 1000",
            look.lines("b", 1000, lambda at: max(at("cca"), at("cca5")) > 1.2 * at("naive")),
        ),
        Claim(
            "RCA also performed substantially better than the two benchmarks (Figure 1 d, e).",
            "d, e",
            f"mean error at N = 1000 at most {SUBSTANTIAL:g} times that of naive and of CCA",
            look.lines(descents, 1000, lambda at: look.beats_benchmarks(at, SUBSTANTIAL)),
        ),
        Claim(
            "In all the cases, the accuracy of RCA improved monotonically with increasing sample size.",
            "a-e",
            "mean error falls from every N to the next",
            look.trends(moments + descents, "rca", lambda curve: bool(np.all(np.diff(curve.mean) < 0))),
        ),
        Claim(
            "This was not the case for the Naive [algorithm], which [was] unable to take advantage of larger data due to "
            "model-misspecification.",
            "a-e",
            "the mean error of naive at the largest N is at least half of that at N = 1000",
            look.trends(
                moments + descents, "naive", lambda curve: bool(curve.mean[-1] > curve.at(1000) / 2), since=1000
            ),
        ),
        Claim(
            "RCA converges to the final state at a rate similar to the true-sample case.",
            "f, g",
            f"the mean error falls, nine tenths of the way in at most {FASTER:g} times the steps of true samples",
            look.rates("fg"),
        ),
        Claim(
            "The residual error of RCA is due to the bias introduced by approximating the sigmoid with low-degree polynomial.",
            "f, g",
            "without the polynomial (the default learner, same draws) at most half of the error after the last step remains",
            look.residues("fg"),
        ),
        Claim(
            "At close to 0, most of the signal of U comes from S1, and all the algorithms are fairly accurate.",
            "h-j",
            f"at the smallest strength, RCA, naive and CCA (1 variate) within {CLOSE:g} times the error on true samples",
            look.lines(
                strengths, None, lambda at: max(at("rca"), at("naive"), at("cca")) <= CLOSE * at("true"), first=True
            ),
        ),
        Claim(
            "As the strength of the perturbation increases, RCA performs significantly better than the benchmarks, "
            "especially in the Ising model.",
            "h-j",
            "at the largest strength the mean error is below that of naive and of CCA, and it has grown less (growth is shown)",
            look.growths(strengths),
        ),
        Claim(
            "Even with 1000 samples, we can obtain reasonable estimates of A in R^(30 x 30).",
            "k",
            "mean squared error of A at N = 1000 below half of that of A = 0, which is 1/3",
            look.mixings(),
        ),
        Claim(
            "Running logistic regression directly on U [gave] a MSE of 0.24 (std 0.03) [...] CCA [...] 0.25 (std 0.02). "
            "Using all the control markers as covariates [...] 0.14 (std 0.03). [RCA:] 0.1 (std 0.03).",
            "biomarkers",
            "the same order at this scale of the lab biases: RCA below covariates, naive and CCA",
            look.biomarkers(),
        ),
        *(
            Claim(
                f"With {n} samples, RCA is better than naive and CCA in each of the five settings.",
                "a-e",
                f"mean error at N = {n} below that of naive and of CCA (1 and 5 variates)",
                look.lines(moments + descents, n, look.beats_benchmarks),
                ours=True,
            )
            for n in (100, 1000)
        ),
    ]


class _Reader:
    """Reads means off the curves; a setting that was not measured gives no line."""

    def __init__(self, settings: Settings, curves: Curves) -> None:
        self.settings, self.curves = settings, curves

    def lines(
        self, panels: str, x: float | None, holds: Callable[[Callable[[str], float]], bool], *, first: bool = False
    ) -> list[ClaimCheck]:
        """At one x (the first, if asked), for each panel and each A."""
        out = []
        for name, case in self._measured(panels):
            panel = self.settings.panels[name]
            here = panel.values[0] if first or x is None else x
            curves = {method: self.curves.get((name, case, method)) for method in panel.methods}
            shown = {m: c.at(here) for m, c in curves.items() if c is not None and here in c.x}
            if len(shown) == len(curves):
                paper = {**shown, "rca": shown["paper"]} if "paper" in shown else None
                judged = None if paper is None else holds(paper.__getitem__)
                out.append(ClaimCheck(self._title(name, case), self._written(shown), holds(shown.__getitem__), judged))
        return out

    def beats_benchmarks(self, at: Callable[[str], float], margin: float = 1.0) -> bool:
        return at("rca") < margin * min(at("naive"), at("cca"), at("cca5"))

    def trends(
        self, panels: str, method: str, holds: Callable[[Curve], bool], *, since: float | None = None
    ) -> list[ClaimCheck]:
        """Of the mean over all x; since : an x that the judgement starts from, so that a line takes it and a larger one."""
        out = []
        for name, case in self._measured(panels):
            curve = self.curves.get((name, case, method))
            if curve is not None and len(curve.x) > 1 and (since is None or since in curve.x[:-1]):
                numbers = {f"N = {x:g}": f"{mean:.2g}" for x, mean in zip(curve.x, curve.mean, strict=True)}
                paper = self.curves.get((name, case, "paper")) if method == "rca" else None
                judged = None if paper is None else holds(paper)
                out.append(ClaimCheck(self._title(name, case), numbers, holds(curve), judged))
        return out

    def growths(self, panels: str) -> list[ClaimCheck]:
        """Growth of the mean error from the first to the last strength."""
        out = []
        for name, case in self._measured(panels):
            methods = self.settings.panels[name].methods
            curves = {m: c for m in methods if (c := self.curves.get((name, case, m))) is not None}
            if len(curves) < len(methods):
                continue
            last = {m: float(c.mean[-1]) for m, c in curves.items()}
            grown = {m: float(c.mean[-1] - c.mean[0]) for m, c in curves.items()}
            best, slowest = (min(values[m] for m in ("naive", "cca", "cca5")) for values in (last, grown))
            better = {m: last[m] < best and grown[m] < slowest for m in methods}
            out.append(ClaimCheck(self._title(name, case), self._written(grown), better["rca"], better.get("paper")))
        return out

    def rates(self, panels: str) -> list[ClaimCheck]:
        """Steps until nine tenths of the way from the first to the last mean error are done; none where it does not fall."""
        out = []
        for name, case in self._measured(panels):
            steps, numbers = {}, {}
            for method in self.settings.panels[name].methods:
                curve = self.curves.get((name, case, method))
                if curve is not None:
                    start, end = curve.mean[0], curve.mean[-1]
                    done = curve.mean <= end + 0.1 * (start - end)
                    falls = bool(end < start)
                    steps[method] = float(curve.x[np.argmax(done)]) if falls else float("inf")
                    how = f"{steps[method]:g} steps" if falls else "no fall"
                    numbers[self._label(name, method)] = f"{how}, to {end:.2g}"
            if "true" in steps and "rca" in steps:
                holds = np.isfinite(steps["rca"]) and steps["rca"] <= FASTER * max(steps["true"], 1.0)
                out.append(ClaimCheck(self._title(name, case), numbers, bool(holds and np.isfinite(steps["true"]))))
        return out

    def residues(self, panels: str) -> list[ClaimCheck]:
        """After the last step."""
        out = []
        for name, case in self._measured(panels):
            curves = {m: self.curves.get((name, case, m)) for m in self.settings.panels[name].methods}
            last = {m: float(c.mean[-1]) for m, c in curves.items() if c is not None}
            if "rca" in last and "default" in last:
                numbers = {self._label(name, m): f"{value:.2g}" for m, value in last.items()}
                out.append(ClaimCheck(self._title(name, case), numbers, last["default"] <= last["rca"] / 2))
        return out

    def mixings(self) -> list[ClaimCheck]:
        out = []
        for _, case in self._measured("k"):
            curves = {m: self.curves.get(("k", case, m)) for m in self.settings.panels["k"].methods}
            shown = {m: c.at(1000) for m, c in curves.items() if c is not None and 1000 in c.x}
            if "rca" in shown:
                judged = shown["paper"] < 1 / 6 if "paper" in shown else None
                out.append(ClaimCheck(case, self._written(shown), shown["rca"] < 1 / 6, judged))
        return out

    def biomarkers(self) -> list[ClaimCheck]:
        """At every scale, with standard deviations; the paper does not tell its scale."""
        out = []
        for name, case in self._measured(["biomarkers"]):
            panel = self.settings.panels[name]
            curves = {m: self.curves.get((name, case, m)) for m in panel.methods}
            for i, x in enumerate(panel.values):
                have = {
                    m: c for m, c in curves.items() if c is not None and len(c.x) == len(panel.values) and m != "rank"
                }
                if not {"rca", "naive", "cca", "covariates"} <= set(have):
                    continue
                numbers = {self._label(name, m): f"{c.mean[i]:.2g} (std {c.sd[i]:.1g})" for m, c in have.items()}
                rest = min(have[m].mean[i] for m in ("naive", "cca", "covariates"))
                out.append(ClaimCheck(f"{case}, scale {x:g}", numbers, bool(have["rca"].mean[i] < rest)))
        return out

    # ---- names

    def _measured(self, panels: Sequence[str]) -> list[tuple[str, str]]:
        """(panel, case), in the order of the settings."""
        measured = {key[:2] for key in self.curves}
        order = {case: i for i, case in enumerate(self.settings.mixings)}
        cases = {
            name: sorted({c for p, c in measured if p == name}, key=lambda c: (order.get(c, 9), c)) for name in panels
        }
        return [(name, case) for name in panels for case in cases[name]]

    def _title(self, name: str, case: str) -> str:
        return f"{name}  {self.settings.panels[name].title}, A {case}"

    def _label(self, name: str, method: str) -> str:
        return method_label(self.settings, self.settings.panels[name], method)

    def _written(self, values: Mapping[str, float]) -> dict[str, str]:
        return {self.settings.methods.get(m, m): f"{v:.2g}" for m, v in values.items()}
