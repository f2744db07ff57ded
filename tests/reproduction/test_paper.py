"""The reproduction of the paper, from settings to the page, end to end on tiny settings."""

from __future__ import annotations

import ast
import gzip
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from reproduction.__main__ import main
from reproduction.biomarkers import read_markers, shared_beyond_labs
from reproduction.measure import measure_panels
from reproduction.settings import load_settings

import richcomponents as rc
from richcomponents import DataError
from rows import read_rows, settings_of

TINY = Path(__file__).parent / "tiny.toml"
ROOT = Path(__file__).parent.parent.parent


def measured(out: Path, panels, **options):
    return measure_panels(out, panels, settings_file=TINY, processes=1, **options)[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("paper")
    assert main(["--settings", str(TINY), "--processes", "1", "--out", str(out)]) == 0
    return out


def test_every_row_is_there(finished):
    settings = load_settings(TINY)
    rows = read_rows(finished / "rows.csv")
    jobs = settings.jobs(
        list(settings.panels), "quick", {"biomarkers": [r["case"] for r in rows if r["panel"] == "biomarkers"][:1]}
    )
    values = [row.pop("value") for row in rows]
    assert {tuple(row.items()) for row in rows} == {tuple(row.items()) for job in jobs for row in settings_of(job)}
    assert all(np.isfinite(value) and value >= 0 for value in values)


def test_killed_and_resumed_equals_unbroken(finished, tmp_path):
    """One panel, a torn line, then more panels: the same bytes as in one run of everything."""
    whole = (finished / "rows.csv").read_text().splitlines(keepends=True)
    expected = [line for line in whole if line[:2] in ("a,", "f,", "k,", "pa")]
    measured(tmp_path, ["a"])
    (tmp_path / "rows.csv").write_bytes((tmp_path / "rows.csv").read_bytes()[:-9])
    measured(tmp_path, ["a", "f", "k"])
    assert (tmp_path / "rows.csv").read_text() == "".join(expected)


def test_the_page_holds_everything_and_loads_nothing_else(finished):
    page = (finished / "index.html").read_text()
    shown = set(re.findall(r'(?:src|href)=["\']?([^"\' >]*)', page))
    assert shown == {
        "figures/figure-1.png",
        *(f"figures/panel-{name}.png" for name in ("a", "f", "h", "k", "s3", "kernel", "degree", "biomarkers")),
    }
    assert all((finished / name).stat().st_size > 5000 for name in shown)
    for text in ("Even with just 100 samples", "Claim by variant", "not measured", "settings.toml", "seed"):
        assert text in page
    assert page.index("all panels of Figure 1") < page.index("Claim by claim")


def test_full_continues_quick(finished, tmp_path):
    """The draws of a quick run are the first of a full run."""
    measured(tmp_path, ["a"], full=True)
    full = set((tmp_path / "rows.csv").read_text().splitlines())
    quick = [line for line in (finished / "rows.csv").read_text().splitlines() if line.startswith("a,")]
    assert set(quick) < full


def test_rows_of_other_settings_are_not_mixed(finished, tmp_path):
    measured(tmp_path, ["a"])
    with pytest.raises(DataError, match="other settings"):
        measure_panels(tmp_path, ["a"], processes=1)


def test_what_is_read_is_not_written_over(tmp_path):
    for name, text in (("rows.csv", MARKERS), ("pheno.csv", PHENO)):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=r"rows.csv lies in .* which is written to"):
        measured(tmp_path, ["biomarkers"], data=tmp_path / "rows.csv", pheno=tmp_path / "pheno.csv")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"rows.csv": MARKERS, "pheno.csv": PHENO}


def marker_files(tmp_path: Path, n: int = 80, p: int = 14) -> tuple[Path, Path]:
    """Markers by person, phenotypes in another order."""
    rng = np.random.default_rng(0)
    values, ill = rng.normal(size=(n, p)), rng.integers(2, size=n)
    values[:, 0] += ill
    data, pheno = tmp_path / "markers.csv.gz", tmp_path / "pheno.csv"
    lines = [",".join(["id", *(f"m{j}" for j in range(p))])]
    lines += [",".join([f"P{i}", *(f"{v:.4f}" for v in values[i])]) for i in range(n)]
    data.write_bytes(gzip.compress("\n".join(lines).encode()))
    people = [f"P{i},{i % 7 % 2},{ill[i]},{30 + i}" for i in rng.permutation(n)]
    pheno.write_text("\n".join(["id,sex,disease,age", *people]))
    return data, pheno


def test_markers_are_matched_by_person(tmp_path):
    markers = read_markers(*marker_files(tmp_path), outcome="disease")
    assert markers.values.shape == (80, 14)
    assert np.corrcoef(markers.values[:, 0], markers.y)[0, 1] > 0.3
    np.testing.assert_allclose(markers.values.std(axis=0), 1.0)
    with pytest.raises(DataError, match=r"column named 'cancer'.*sex, disease"):
        read_markers(*marker_files(tmp_path), outcome="cancer")


def test_people_without_phenotype_are_named(tmp_path):
    data, pheno = marker_files(tmp_path)
    pheno.write_text(pheno.read_text().replace("P7,", "Q7,"))
    with pytest.raises(DataError, match=r"1 rows of markers.csv.gz are not in pheno.csv, the first: id = P7"):
        read_markers(data, pheno, outcome="disease")


def numeric_ids(tmp_path: Path) -> tuple[Path, Path]:
    """People by number, written differently in the two files."""
    data, pheno = marker_files(tmp_path)
    plain = tmp_path / "markers.csv"
    plain.write_text(gzip.decompress(data.read_bytes()).decode().replace("P", "10"))
    pheno.write_text(pheno.read_text().replace("P", "0010"))
    return plain, pheno


def test_people_with_numbers_are_matched_by_number(tmp_path):
    named = read_markers(*marker_files(tmp_path), outcome="disease")
    numbered = read_markers(*numeric_ids(tmp_path), outcome="disease")
    np.testing.assert_array_equal(numbered.values, named.values)  # the number is no marker
    np.testing.assert_array_equal(numbered.y, named.y)


def test_the_outcome_is_no_marker(tmp_path):
    table = "\n".join(["id,disease,m0,m1", *(f"P{i},{i % 2},{i % 5},{i % 3}" for i in range(30))])
    (tmp_path / "one.csv").write_text(table)
    markers = read_markers(tmp_path / "one.csv", tmp_path / "one.csv", outcome="disease")
    assert markers.values.shape == (30, 2)


MARKERS = "id,m0,m1\nA,1,2\nB,2,3\nC,4,4\n"
PHENO = "id,disease\nC,1\nA,0\nB,1\n"


@pytest.mark.parametrize(
    ("markers", "pheno", "message"),
    [
        (MARKERS, PHENO.replace("C", "A"), "pheno.csv holds id = A twice"),
        (MARKERS.replace("C", "A"), PHENO, "markers.csv holds id = A twice"),
        ("id,m0\n1,5\n2,6\n3,8\n", "id,disease\n1,1\n2,0\n4,1\n", "1 rows of markers.csv are not in .* id = 3"),
        (MARKERS.replace("4,4", "4,"), PHENO, "marker 'm1' holds 1 missing or infinite values: drop"),
        (MARKERS.replace("4,4", "inf,4"), PHENO, "marker 'm0' holds 1 missing or infinite"),
        (MARKERS.replace("4,4", "<4,4"), PHENO, "id = C: m0 = '<4' is not a number, like 1 of the column's 3 cells"),
        ("id,word\nA,x\nB,y\nC,z\n", PHENO, "no column besides id holds numbers"),
        (MARKERS, PHENO.replace("1", "2"), "must say who is ill, 0 or 1, in a column named 'disease'"),
    ],
)
def test_files_of_markers_are_checked(tmp_path, markers, pheno, message):
    (tmp_path / "markers.csv").write_text(markers)
    (tmp_path / "pheno.csv").write_text(pheno)
    with pytest.raises(DataError, match=message):
        read_markers(tmp_path / "markers.csv", tmp_path / "pheno.csv", outcome="disease")


def test_columns_of_words_are_no_markers(tmp_path):
    (tmp_path / "markers.csv").write_text("id,tissue,m0\nA,x,1\nB,y,2\nC,z,4\n")
    (tmp_path / "pheno.csv").write_text(PHENO)
    markers = read_markers(tmp_path / "markers.csv", tmp_path / "pheno.csv", outcome="disease")
    assert markers.values.shape == (3, 1)
    assert markers.y.tolist() == [0, 1, 1]


def test_biomarkers_of_the_user(tmp_path):
    data, pheno = marker_files(tmp_path)
    rows = measured(tmp_path / "out", ["biomarkers"], data=data, pheno=pheno)
    assert len(rows) == 2 * 2 * 10
    assert len({row["case"] for row in rows}) == 1
    assert rows[0]["case"].startswith("markers ")


def test_a_rank_beyond_the_labs_is_a_warning():
    assert shared_beyond_labs(np.ones(20), 2) is None
    said = shared_beyond_labs(np.full(20, 3.0), 2)
    assert said is not None
    assert "rank is 3.0 on average" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--panel", "z"], "there is no panel 'z'"), (["--panel", "biomarkers", "--data", "missing.csv"], "go together")],
)
def test_command_line_errors_are_one_line(tmp_path, capsys, options, said):
    assert main(["--out", str(tmp_path), *options]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_the_settings_name_all_panels_and_enough_repeats():
    settings = load_settings()
    assert set("abcdefghijk") <= set(settings.panels)
    assert all(panel.repeats["quick"] >= 5 and panel.repeats["full"] >= 20 for panel in settings.panels.values())
    assert tomllib.loads(settings.text)["seed"] == settings.seed
    seeds = [job["seed"] for job in settings.jobs(["a", "k"], "full")]
    assert len(set(seeds)) == len(seeds)


def test_the_library_is_used_as_anybody_would():
    """Public names, and the paper's own formulas."""
    allowed = {f"richcomponents.{name}" for name in rc.__all__} | {
        "richcomponents.datasets",
    }
    for file in (ROOT / "reproduction").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("richcomponents"):
                names = {f"{node.module}.{name.name}" for name in node.names}
                papers = str(node.module).startswith("richcomponents.paper.")
                assert papers or node.module in allowed or names <= allowed, (file.name, names)
