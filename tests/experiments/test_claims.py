"""Claims from made-up rows: each verdict follows from the numbers."""

from __future__ import annotations

import pytest

from richcomponents.experiments.claims import check_claims
from richcomponents.experiments.panels import curves_of
from richcomponents.experiments.rows import Row, load_settings

SETTINGS = load_settings()
GOOD = {"true": 1.0, "known": 1.5, "rca": 1.8, "paper": 9.0, "covariates": 3.0, "cca": 5.0, "cca5": 6.0, "naive": 4.0}


def claims(rows: list[Row]) -> dict[str, str]:
    return {claim.quote[:30]: claim.verdict for claim in check_claims(SETTINGS, curves_of(rows))}


def panel_rows(name: str, case: str, error) -> list[Row]:
    """error(x, method) in every panel row, two repeats around it."""
    panel = SETTINGS.panels[name]
    return [
        {"panel": name, "case": case, "x": x, "method": method, "value": error(x, method) * (0.9, 1.1)[repeat]}
        for x in panel.values
        for method in panel.methods
        for repeat in (0, 1)
    ]


def by_size(x: float, method: str) -> float:
    """RCA and true samples gain from data, the misspecified methods do not."""
    return GOOD[method] * (100 / x if method in ("true", "known", "rca") else 1.0) / 100


def test_what_was_not_measured_is_not_judged():
    assert set(claims([]).values()) == {"not measured"}


def test_all_agree_when_the_numbers_do():
    rows = [r for name in "abcde" for case in ("good", "unif") for r in panel_rows(name, case, by_size)]
    verdicts = claims(rows)
    assert verdicts["Even with just 100 samples, RC"] == "agrees"
    assert verdicts["With 1000 samples, the accurac"] == "agrees"
    assert verdicts["In all the cases, the accuracy"] == "agrees"
    assert verdicts["This was not the case for the "] == "agrees"
    assert verdicts["RCA also performed substantial"] == "agrees"


@pytest.mark.parametrize(
    ("spoilt", "verdict"), [(("a",), "agrees in 2 of 3 settings"), (("a", "b", "c"), "does not agree")]
)
def test_a_setting_that_disagrees_is_counted(spoilt, verdict):
    def worse(x: float, method: str) -> float:
        return 10.0 if method == "rca" else by_size(x, method)

    rows = [r for name in "abc" for r in panel_rows(name, "good", worse if name in spoilt else by_size)]
    assert claims(rows)["Even with just 100 samples, RC"] == verdict


def test_a_rise_anywhere_is_not_monotone():
    rows = panel_rows(
        "a", "good", lambda x, m: by_size(x, m) * (3 if (x, m) == (3000, "rca") else 1) * (x / 100) ** 0.2
    )
    assert claims(rows)["In all the cases, the accuracy"] == "does not agree"


def test_growth_with_strength_is_compared_with_the_benchmarks():
    rows = panel_rows("h", "good", lambda x, m: 1 + x * {"rca": 0.1}.get(m, 1.0))
    assert claims(rows)["As the strength of the perturb"] == "agrees"


def test_the_papers_formulas_are_judged_beside():
    rows = [r for name in "abc" for r in panel_rows(name, "good", by_size)]
    lines = check_claims(SETTINGS, curves_of(rows))[0].evidence
    assert [(line.holds, line.paper_holds) for line in lines] == [(True, False)] * 3


def test_gradient_steps_and_what_remains_of_the_error():
    ends = {"true": 0.1, "known": 0.5, "rca": 0.5, "exact": 0.2, "default": 0.2}

    def error(x: float, method: str) -> float:
        return ends[method] if method == "default" else ends[method] + 2.0 ** -(x / (20 if method == "rca" else 2))

    rows = [r for name in "fg" for r in panel_rows(name, "good", error)]
    verdicts = claims(rows)
    assert verdicts["RCA converges to the final sta"] == "does not agree"  # ten times the steps
    assert verdicts["The residual error of RCA is d"] == "agrees"


@pytest.mark.parametrize("diverging", ["rca", "true"])
def test_a_rising_error_does_not_converge(diverging):
    def error(x: float, method: str) -> float:
        return 1.0 + x if method == diverging else 0.1 + 2.0 ** -(x / 5)

    rows = panel_rows("f", "good", error)
    assert claims(rows)["RCA converges to the final sta"] == "does not agree"
    (rate,) = (c for c in check_claims(SETTINGS, curves_of(rows)) if c.quote.startswith("RCA converges"))
    assert any(text.startswith("no fall, to") for text in rate.evidence[0].numbers.values())


def test_the_gain_of_naive_is_judged_from_a_thousand_samples_on():
    """It falls until N = 1000 and stays there; N = 1000 is not the middle one of the sizes that were measured."""
    rows = panel_rows("a", "good", lambda x, m: max(1.0, 1000 / x))
    sizes = sorted({r["x"] for r in rows})
    for kept in (sizes, sizes[1:], sizes[2:]):
        assert claims([r for r in rows if r["x"] in kept])["This was not the case for the "] == "agrees"
    assert claims([r for r in rows if r["x"] <= 1000])["This was not the case for the "] == "not measured"
    falling = panel_rows("a", "good", lambda x, m: 1000 / x)
    assert claims(falling)["This was not the case for the "] == "does not agree"


def test_biomarkers_are_judged_scale_by_scale():
    rows = panel_rows("biomarkers", "mine", lambda x, m: 1.0 if m != "rca" else (2.0 if x < 1 else 0.5))
    assert claims(rows)["Running logistic regression di"] == "agrees in 3 of 5 settings"
