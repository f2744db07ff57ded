"""Every figure that RCA (any number of views, any set system) is held to, on data with known truth.

    python benchmarks/general.py run SECTION ... [--draws 10] [--seed 700000] [--out DIR]    # measure what is missing
    python benchmarks/general.py show [--out DIR]                                            # print the tables

Sections: exact (population cumulants of finite distributions), accuracy (N = 10^5), common (N = 10^4), large (N = 10^6:
slow), four (all 15 subsets of four views, order five), states (how far a fit to a state is from one to rows), discovery
(15 systems, ranks), wide (discovery of 500, 300 and 60 columns), labs (automatic ranks), coverage, protection (of regression on
components, by the simple method), speed (k = 5 views of d = 10, 8 components,
N = 10^5: measured by every run). Errors are relative (Frobenius), medians over draws.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections import defaultdict
from typing import Any
from unittest.mock import patch

import numpy as np

import richcomponents as rc
from richcomponents.components.sets import SetSystem, Subset
from richcomponents.cumulants import Cumulants
from richcomponents.cumulants.estimate import Estimate
from richcomponents.datasets import MultiView, make_views
from richcomponents.moments import Moments
from richcomponents.paper.general import cumulant_of_component, linear_of_cumulants
from richcomponents.sets.problem import SetProblem
from rows import Job, Row, by_case
from sections import RESULTS, Measured, Options, drawn, main

SYSTEMS = {
    "all 7": "abc ab ac bc a b c",
    "all 7, symmetric common": "bc abc ab ac a b c",  # kinds are dealt out in turn: the second is uniform
    "common": "abc a b c",
    "common + pair": "abc ab a b c",
    "two pairs": "ab bc a b c",
    "one pair": "ac a b c",
    "nothing shared": "a b c",
}
EXACT = {
    "k=3, all 7": "abc ab ac bc a b c",
    "k=4, chain": "abcd abc ab a b c d",
    "k=4, star": "ab ac ad a b c d",
    "k=4, random": "abd bcd ac a b c d",
}
LABS = {"abc": "labs"}
DISCOVERIES: dict[str, dict[str, Any]] = {
    "all 7": {"sets": "abc ab ac bc a b c"},
    "common": {"sets": "abc a b c"},
    "common + pair": {"sets": "abc ab a b c"},
    "common + two pairs": {"sets": "abc ac bc a b c"},
    "two pairs": {"sets": "ab bc a b c"},
    "three pairs": {"sets": "ab ac bc a b c"},
    "nothing shared": {"sets": "a b c"},
    "two labs": {"sets": "abc a b c", "d": 4, "ranks": {"abc": 1}, "kinds": LABS},
    "three labs": {"sets": "abc a b c", "d": 4, "ranks": {"abc": 2}, "kinds": LABS},
    "rank 1 + pair of 1": {"sets": "abc ab a b c", "d": 4, "ranks": {"abc": 1, "ab": 1}},
    "rank 2 + pair of 1": {"sets": "abc bc a b c", "d": 4, "ranks": {"abc": 2, "bc": 1}},
    "pairs of 1 and 2": {"sets": "ab bc a b c", "d": 4, "ranks": {"ab": 1, "bc": 2}},
    "widths 5, 3, 2": {"sets": "abc ab a b c", "widths": {"a": 5, "b": 3, "c": 2}, "ranks": {"abc": 1, "ab": 2}},
    "ill-conditioned": {"sets": "abc ac a b c", "ranks": {"abc": 2}, "spread": (0.1, 1.5)},
    "groups": {"sets": "abc a b c", "d": 4, "ranks": {"abc": 1}, "kinds": LABS, "groups": 4},
}
MODELS = ("common", "common + pair", "two pairs", "one pair", "all 7")
FIVE = "abcde ab cd a b c d e"
SECTIONS = (
    "exact",
    "common",
    "accuracy",
    "states",
    "discovery",
    "labs",
    "coverage",
    "protection",
    "four",
    "wide",
    "speed",
    "large",
)


def sets(words: str) -> list[Subset]:
    return [tuple(word) for word in words.split()]


def cases(section: str) -> list[Job]:
    """Label, its sets, and n (of exact distributions: d)."""
    labels = {
        "exact": [(label, d) for label in EXACT for d in (1, 2, 3)],
        "accuracy": [("all 7", 100_000), ("all 7, symmetric common", 100_000), ("all 7", 10_000)],
        "common": [("common", 10_000)],
        "large": [("all 7", 1_000_000)],
        "discovery": [(label, n) for n in (500, 2_000, 10_000) for label in DISCOVERIES],
        "labs": [(label, 2_000) for label in ("two labs", "three labs")],
        "four": [("k=4, d=1", 200_000), ("k=4, d=2", 200_000), ("k=4, d=1", 2_000_000), ("k=4, d=2", 2_000_000)],
        "wide": [(f"x {scale}", 200) for scale in (2, 3, 4, 5, 6)],
        "speed": [("k=5, d=10", 100_000)],
        "coverage": [(label, n) for n in (5_000, 50_000) for label in MODELS],
        "protection": [(label, n) for n in (500, 2_000, 10_000) for label in MODELS],
        "states": [("common", 10_000), ("all 7", 10_000), ("all 7", 100_000)],
    }[section]
    other = {"speed": FIVE, "wide": "abc a b c", "four": " ".join("".join(q) for q in SetSystem.all("abcd"))}
    words = {**{label: case["sets"] for label, case in DISCOVERIES.items()}, **SYSTEMS, **EXACT}
    return [{"label": label, "sets": other.get(section) or words[label], "n": n} for label, n in labels]


def jobs(section: str, options: Options) -> list[Job]:
    draws = {"exact": 3, "speed": 1}.get(section, options.draws)
    fewer = 3 * draws // 8 if section == "coverage" else draws  # of the large samples, which take longer
    every = drawn(cases(section), draws, options.seed)
    return [job for job in every if job["n"] <= 5_000 or job["seed"] < options.seed + fewer]


def measure(job: Job) -> Row:
    section, words, n, seed = job["section"], job["sets"], job["n"], job["seed"]
    if section == "exact":
        return exact_errors(SetSystem.of(sets(words), sorted(set(words) - {" "})), n, seed)
    row: Row = {}
    if section == "speed":
        data = make_views(n, 5, 10, sets=sets(words), kinds=("exponential", "discrete", "uniform"), random_state=seed)
        model = rc.RCA(views=data.views, sets=data.sets)
        start, used = time.perf_counter(), time.process_time()
        model.fit(data.X)
        row["seconds"], row["cpu"] = time.perf_counter() - start, time.process_time() - used
        row["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return row | {"efficient": errors(model, data)}
    if section == "wide":
        data = wide_labs(n, float(job["label"].split()[1]), seed)
        return discovered(data, None)
    if (
        section == "four"
    ):  # skewed: cumulants of order five, which tell sets of four views apart, vanish of symmetric parts
        width = int(job["label"][-1])
        data = make_views(n, 4, width, sets=sets(words), kinds=("exponential", "discrete"), random_state=seed)
        return {
            m: errors(rc.RCA(views=data.views, order=5, method=m).fit(data.X), data) for m in ("efficient", "paper")
        }
    if section in ("discovery", "labs"):
        data, groups = low_rank(job["label"], n, seed)
        return discovered(data, groups) if section == "discovery" else ranks_and_errors(data)
    data = make_views(n, 3, 3, sets=sets(words), random_state=seed)
    if section in ("coverage", "protection"):
        data = make_views(n, 3, 2, sets=sets(words), random_state=seed)
        model = rc.RCA(views=data.views, sets=data.sets).fit(data.X)
        return (coverage if section == "coverage" else protection)(model, data, seed)
    if section == "states":
        return of_states(data)
    for method in ("efficient", "paper"):
        model = rc.RCA(views=data.views, sets=data.sets, method=method).fit(data.X)
        row[method] = errors(model, data)
    return row


def low_rank(label: str, n: int, seed: int) -> tuple[MultiView, np.ndarray | None]:
    """Three views of a system of DISCOVERIES; with groups, rows of a group have the same common part."""
    case, members = DISCOVERIES[label], sets(DISCOVERIES[label]["sets"])
    dealt = {q: ("exponential", "uniform", "discrete")[i % 3] for i, q in enumerate(members)}
    kinds = dealt | {tuple(q): kind for q, kind in case.get("kinds", {}).items()}
    ranks = {tuple(q): rank for q, rank in case.get("ranks", {}).items()}
    widths, spread = case.get("widths", 3), case.get("spread", (0.6, 1.4))
    data = make_views(
        n, widths, case.get("d", 3), sets=members, kinds=kinds, ranks=ranks, spread=spread, random_state=seed
    )
    if "groups" not in case:
        return data, None
    groups = np.arange(n) // case["groups"]
    common = tuple("abc")
    again = data.components[common][groups * case["groups"]] - data.components[common]
    for view in common:
        data.X[:, data.views[view]] += again @ data.transforms[view, common].T
    return data, groups


def wide_labs(n: int, scale: float, seed: int) -> MultiView:
    """Views of 500, 300 and 60 columns whose common part is which of two labs a sample comes from."""
    members = sets("abc a b c")
    kinds = dict(zip(members, ("labs", "gaussian", "uniform", "gaussian"), strict=True))
    return make_views(
        n,
        {"a": 500, "b": 300, "c": 60},
        sets=members,
        kinds=kinds,
        ranks={members[0]: 1},
        scales={members[0]: scale},
        random_state=seed,
    )


def discovered(data: MultiView, groups: np.ndarray | None) -> Row:
    """Which sets and ranks are found; large : each component carries a fifth of the variance of a view at least."""
    used = time.process_time()
    problem = settled(rc.RCA(views=data.views, discover=True), data.X, groups)
    used = time.process_time() - used
    kept, truth = set(problem.system), set(data.sets)
    total = {view: float(data.view(view).var(axis=0).sum()) for view in data.views}
    shares = [
        float(np.sum(data.transforms[view, q] @ data.covariances[q] * data.transforms[view, q])) / total[view]
        for q in truth
        if len(q) > 1
        for view in q
    ]
    found = {q: problem.structure.ranks.get(q) for q in truth if len(q) > 1}
    ranks = found == {q: data.mixing[q].shape[1] for q in found}
    return {
        "exact": kept == truth,
        "false": len(kept - truth),
        "missed": len(truth - kept),
        "ranks": ranks,
        "large": min(shares, default=1.0) >= 0.2,
        "kept": " ".join(sorted("".join(q) for q in kept if len(q) > 1)),
        "cpu": used,
    }


class Settled(Exception):
    """Carries a problem whose set system and ranks are settled."""


def settled(model: rc.RCA, X: np.ndarray, groups: np.ndarray | None) -> SetProblem:
    """What a fit would solve: the joint fit that follows does not change it, and takes longer."""

    def stop(problem: SetProblem) -> None:
        raise Settled(problem)

    with patch.object(SetProblem, "solve", stop), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(X, groups=groups)
        except Settled as reached:
            (problem,) = reached.args
            assert isinstance(problem, SetProblem)
            return problem
    raise AssertionError("nothing was to be solved")


def ranks_and_errors(data: MultiView) -> Row:
    """The automatic rank, and A on the directions that are there beside A at the given rank."""
    common = tuple("abc")
    rank = data.mixing[common].shape[1]
    auto = rc.RCA(views=data.views, sets=data.sets).fit(data.X)
    given = rc.RCA(views=data.views, sets=data.sets, rank={common: rank}).fit(data.X)
    loads = {view: data.transforms[view, common] @ data.mixing[common] for view in "bc"}
    wrong = [
        float(np.mean([relative(m.transforms_[v, common] @ data.mixing[common], loads[v]) for v in "bc"]))
        for m in (auto, given)
    ]
    return {"right": auto.ranks_[common] == rank, "auto": wrong[0], "given": wrong[1]}


def coverage(model: rc.RCA, data: MultiView, seed: int) -> dict[str, list[int]]:
    """Entries inside their 95% intervals and entries at all, of A, covariances and coefficients of an outcome on each component
    (half of its variance is noise): where the component is told, and where it is not ("open": an identified set)."""
    rng = np.random.default_rng(seed)
    out: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def count(what: str, q: Subset, found: Estimate, truth: np.ndarray) -> None:
        low, high = found.interval(0.95)
        held = out[what + ("" if found.identified is None else " open")]
        held[0] += int(np.sum((low <= truth) & (truth <= high)))
        held[1] += int(truth.size)

    for (view, q), A in data.transforms.items():
        if view != q[0]:
            count("A", q, model.confidence_interval("A", q, view), A)
    for q, K in data.covariances.items():
        count("Cov", q, model.confidence_interval("covariance", q), K)
        beta = rng.normal(size=len(K))
        y = data.components[q] @ beta + rng.normal(size=len(data.X)) * np.sqrt(beta @ K @ beta)
        outcome = model.outcome(data.X, y)
        count("coef", q, model.calibrate(outcome, component=q).estimate(outcome), beta)
    return dict(out)


def protection(model: rc.RCA, data: MultiView, seed: int) -> dict[str, Any]:
    """{component: squared errors of the coefficients of an outcome on it (half of its variance is noise), by the learner and by
    the simple method, and the component's verdict}."""
    rng = np.random.default_rng(seed)
    out = {}
    for q, K in data.covariances.items():
        beta = rng.normal(size=len(K))
        y = data.components[q] @ beta + rng.normal(size=len(data.X)) * np.sqrt(beta @ K @ beta)
        found = model.calibrate(model.outcome(data.X, y), component=q)
        errors = [float(np.sum((coef - beta) ** 2)) for coef in (found.coef, found.residualised)]
        out["".join(q)] = [*errors, model.component_verdicts_[q]]
    return out


def of_states(data: MultiView) -> dict[str, float]:
    """A from a state beside A from rows: how far from each other, and from the truth; medians, and the largest difference."""
    model = rc.RCA(views=data.views, sets=data.sets)
    rows, state = model.fit(data.X).transforms_, model.fit_moments(Moments.of(data.X, 4)).transforms_
    shared = {key: A for key, A in data.transforms.items() if key[0] != key[1][0]}
    apart = [relative(state[key], rows[key]) for key in shared]
    wrong = {
        name: float(np.median([relative(found[key], A) for key, A in shared.items()]))
        for name, found in (("rows", rows), ("state", state))
    }
    return {"apart": float(np.median(apart)), "most": max(apart), **wrong}


def relative(estimate: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(estimate - truth) / np.linalg.norm(truth))


def errors(model: rc.RCA, data: MultiView) -> dict[str, float]:
    """Medians over transformations and components of one draw, by the number of views; what the paper's rule sets to zero is
    off by all of it."""
    parts = defaultdict(list)
    found = {**{key: np.zeros_like(A) for key, A in data.transforms.items()}, **model.transforms_}
    covariances = {q: np.asarray(component.covariance) for q, component in model.components_.items()}
    for (view, q), A in data.transforms.items():
        if view != q[0]:
            parts[f"A {len(q)}"].append(relative(found[view, q], A))
    for q, C in data.covariances.items():
        parts[f"Cov {len(q)}"].append(relative(covariances.get(q, np.zeros_like(C)), C))
        parts["Cov"].append(parts[f"Cov {len(q)}"][-1])
    return {key: float(np.median(values)) for key, values in parts.items()}


def exact_errors(system: SetSystem, d: int, seed: int) -> dict[str, float]:
    """Largest relative error of A and of cumulants of orders L to 5, from the joint support of finite components."""
    rng = np.random.default_rng(seed)
    columns = {view: np.arange(i * d, (i + 1) * d) for i, view in enumerate(system.views)}
    rows, truth, points = np.zeros((1, d * len(columns))), {}, {}
    for q in system:
        size = (max(d + 1, 3), d)
        points[q] = rng.normal(size=size) + 0.5 * rng.exponential(size=size)
        wide = np.zeros((size[0], rows.shape[1]))
        for view in q:
            left, right = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
            truth[view, q] = np.eye(d) if view == q[0] else (left * rng.uniform(0.7, 1.3, d)) @ right
            wide[:, columns[view]] = points[q] @ truth[view, q].T
        rows = (rows[:, None] + wide[None]).reshape(-1, rows.shape[1])
    cumulants = Cumulants(Moments.of(rows, 5, n_blocks=1), unbiased=False)
    gauge = {q: q[0] for q in system}
    linear = linear_of_cumulants(cumulants, columns, system, order=system.L + 1, gauge=gauge)
    worst = {"A": max(relative(linear.transforms[key], A) for key, A in truth.items())}
    for t in range(system.L, 6):
        worst[f"k{t}"] = max(
            relative(
                cumulant_of_component(cumulants, columns, linear, q, t),
                rc.cumulant(points[q], t, unbiased=False),
            )
            for q in system
        )
    return worst


def show(rows: Measured, options: Options) -> None:
    measured = {section: list(by_case(rows(section), cases(section))) for section in SECTIONS}
    for case, held in measured["exact"]:
        keys = sorted(key for key in held[0] if key == "A" or (key[0] == "k" and key[1:].isdigit()))
        cells = "  ".join(f"{k} {max(r[k] for r in held):.0e}" for k in keys)
        print(f"EXACT {case['label']:>12} d={case['n']}: {cells}")
    for case, held in measured["common"] + measured["accuracy"] + measured["four"] + measured["large"]:
        for method in ("efficient", "paper"):
            keys = [k for k in held[0][method] if k != "Cov 1"]
            cells = "  ".join(f"{k} {np.median([r[method][k] for r in held]):.4f}" for k in keys)
            print(f"{case['label']:>23} N={case['n']:>7} {len(held):>3} draws {method:>9}: {cells}")
    for case, held in measured["states"]:
        apart, rows_wrong, state_wrong = (np.median([r[what] for r in held]) for what in ("apart", "rows", "state"))
        print(
            f"STATES {case['label']:>7} N={case['n']:>6} {len(held):>3} draws: A of a state and of rows {apart:.3f} apart, "
            f"at most {max(r['most'] for r in held):.3f}; errors {rows_wrong:.3f} (rows) {state_wrong:.3f} (state)"
        )
    for case, held in measured["discovery"] + measured["wide"]:
        right, wrong = np.mean([r["exact"] for r in held]), np.mean([r["false"] > 0 for r in held])
        missed = np.mean([r["missed"] > 0 for r in held])
        ranks, large = np.mean([r["ranks"] for r in held]), [r["exact"] for r in held if r["large"]]
        print(
            f"DISCOVERY {case['label']:>18} N={case['n']:>6} {len(held):>3} draws: exact {right:.3f}  false {wrong:.3f}"
            f"  missed {missed:.3f}  ranks {ranks:.3f}; all of a fifth: {len(large)} draws, exact {np.mean(large or 0):.3f}; "
            f"{np.median([r['cpu'] for r in held]):.2f} s"
        )
    every = [row for _, held in measured["discovery"] for row in held]
    if every:
        print(f"DISCOVERY false inclusion {np.mean([r['false'] > 0 for r in every]):.4f} of {len(every)} draws")
        for n in sorted({r["n"] for r in every}):
            some = [r for r in every if r["n"] == n]
            large = [r["exact"] for r in some if r["large"]]
            print(
                f"DISCOVERY N={n}: false {np.mean([r['false'] > 0 for r in some]):.4f} of {len(some)}, exact "
                f"{np.mean([r['exact'] for r in some]):.3f}; all of a fifth: exact {np.mean(large or 0):.3f} of {len(large)}"
            )
    for case, held in measured["labs"]:
        right, auto, given = (
            np.mean([r["right"] for r in held]),
            *(np.median([r[w] for r in held]) for w in ("auto", "given")),
        )
        print(
            f"LABS {case['label']} N={case['n']} {len(held)} draws: rank {right:.3f}, A {auto:.4f}, at given rank {given:.4f}"
        )
    for case, held in measured["coverage"]:
        shares = []
        for what in ("A", "Cov", "coef", "A open", "Cov open", "coef open"):
            inside, entries = np.sum([r.get(what, [0, 0]) for r in held], axis=0)
            shares.append(f"{what} {inside / entries:.3f} of {entries}" if entries else f"{what} -")
        print(f"COVERAGE {case['label']:>14} N={case['n']:>6} {len(held):>3} draws: " + "  ".join(shares))
    show_protection(measured["protection"])
    for case, held in measured["speed"]:
        for row in held:
            print(
                f"SPEED {case['label']} N={case['n']}: {row['seconds']:.1f} s elapsed, {row['cpu']:.1f} s of processor, "
                f"{row['gigabytes']:.2f} GiB; errors " + "  ".join(f"{k} {v:.3f}" for k, v in row["efficient"].items())
            )


def show_protection(measured: list[tuple[Job, list[Row]]]) -> None:
    """Errors over those of the simple method: of medians, and the worst draw; by sample size, number of views and
    verdict."""
    pooled = defaultdict(list)
    for case, held in measured:
        for row in held:
            for q, found in row.items():
                if isinstance(found, list):
                    ours, simple, verdict = found
                    for key in ((len(q), "all"), (len(q), verdict)):
                        pooled[case["n"], *key].append((ours, simple, ours / simple))
    for (n, views, verdict), found in sorted(pooled.items()):
        ours, simple, ratios = np.transpose(found)
        print(
            f"PROTECTION N={n:>6} components of {views} views, {verdict:>19}: {len(found):>4} fits, "
            f"median {np.median(ours) / np.median(simple):.2f} of the simple method's, in half of all {np.median(ratios):.2f}, "
            f"above 1.5 {np.mean(ratios > 1.5):.3f}, worst {ratios.max():.1f}"
        )


if __name__ == "__main__":
    main(__doc__, SECTIONS, jobs, measure, show, draws=10, seed=700_000, out=RESULTS / "general", anew=("speed",))
