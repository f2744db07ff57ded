"""Views by name, pattern, number or file; every refusal names the column and the remedy."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import richcomponents as rc
from richcomponents.data.design import select
from richcomponents.data.rows import open_source
from richcomponents.data.sources.memory import FrameSource
from richcomponents.errors import DataError

COLUMNS = {
    **{name: np.array([3.0, 1.0, 4.0, 1.5]) + i for i, name in enumerate(["T_1", "T_2", "C_1", "C_2", "age"])},
    "y": np.array([0.0, 1.0, 0.0, 1.0]),
    "who": np.array(["a", "a", "b", "b"], dtype=object),
}


def table_of(title, columns, views=None):
    source = FrameSource(pa.table(columns))
    source.title, source.views = title, views or {}
    return open_source(source)


def fit(chosen, covariates=(), missing="error"):
    """What the command line does with them: values are looked at by the door of all models."""
    views = {name: list(columns) for name, columns in chosen.views.items()}
    model = rc.ContrastiveRCA(views, covariates=list(covariates), missing=missing)
    return model.fit(chosen.X, groups=chosen.groups)


TABLE = table_of("t.csv", COLUMNS)
BOTH = ["tests=T_*", "controls=C_*"]


def test_names_and_patterns_agree():
    by_pattern, by_name = select(TABLE, BOTH), select(TABLE, ["tests=T_1,T_2", "controls=C_1, C_2"])
    assert by_pattern.views == by_name.views == {"tests": ("T_1", "T_2"), "controls": ("C_1", "C_2")}
    assert by_pattern.X.equals(by_name.X)


def test_number_divides_what_is_free():
    chosen = select(TABLE, ["2"], target="y", covariates=["age"], groups="who")
    assert chosen.views == {"U": ("T_1", "T_2"), "V": ("C_1", "C_2")}
    assert chosen.X.column_names == ["T_1", "T_2", "C_1", "C_2", "age", "y"]
    assert chosen.groups.tolist() == ["a", "a", "b", "b"]
    assert chosen.notes == ("--views 2: U is T_1, T_2; V is C_1, C_2.",)


def test_a_number_takes_no_outcome_labels_index_or_text():
    odd = {"sample_id": np.array([7.0, 9.0, 2.0, 1.0]), "n": np.arange(1.0, 5.0)}
    table = table_of("t.csv", {**odd, **COLUMNS})
    chosen = select(table, ["2"], covariates=["age"])
    assert chosen.views == {"U": ("T_1", "T_2"), "V": ("C_1", "C_2")}
    (note,) = chosen.notes
    for said in ("'who' (text)", "'sample_id' (sample labels", "'y' (an outcome", "'n' (an index: it counts the rows)"):
        assert said in note
    assert "V is C_1, C_2" in note
    named = select(table, ["U=T_1,n", "V=C_*,y,sample_id"])  # named is named
    assert named.views == {"U": ("T_1", "n"), "V": ("C_1", "C_2", "y", "sample_id")}
    with pytest.raises(DataError, match=r"4 columns to divide. Left out: .*'y' .an outcome"):
        select(table, ["4"], covariates=["age"])


def test_annotations_of_samples_are_no_columns_of_a_view():
    table = table_of("cells.h5ad", COLUMNS, {"X": ("T_1", "T_2", "C_1")})
    chosen = select(table, ["2"])
    assert chosen.views == {"U": ("T_1", "T_2"), "V": ("C_1",)}
    assert "'age' (an annotation of the samples)" in chosen.notes[0]


def test_views_of_the_file_need_no_option():
    table = table_of("two", COLUMNS, {"one": ("T_1", "y"), "two": ("C_1",), "three": ("C_2",)})
    assert select(table, ["one", "two"], target="y").views == {"one": ("T_1",), "two": ("C_1",)}
    with pytest.raises(DataError, match="It holds the views one, two, three: name two"):
        select(table)


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        ([], {}, "say which columns of t.csv are the tests"),
        (["tests=T_*"], {}, "--views names only tests"),
        (["tests=T_*", "tests=C_*"], {}, "two views are called 'tests'"),
        (["tests=T_1", "controls=T_*"], {}, "'T_1' is in views 'tests' and 'controls'"),
        (["tests=X_*", "controls=C_*"], {}, r"view 'tests': no column of t.csv fits 'X_\*'"),
        (["tests=T_3", "controls=C_*"], {}, "view 'tests' names column 'T_3', which is not in t.csv; did you mean"),
        (["tests", "controls=C_*"], {}, "--views tests names no columns"),
        (["9"], {}, "--views 9 would leave a view empty"),
        (BOTH, {"target": "z"}, r"t.csv has no column 'z' .the target."),
        (BOTH, {"covariates": ["sex"]}, r"t.csv has no column 'sex' .a covariate."),
        (["tests=T_1,y", "controls=C_*"], {"target": "y"}, "'y' is in a view and also the target"),
    ],
)
def test_refusals(views, options, message):
    with pytest.raises(DataError, match=message):
        select(TABLE, views, **options)


def test_missing_values_are_named_or_dropped(rng):
    columns = {name: rng.normal(size=100) for name in ("T_1", "T_2", "C_1", "C_2", "y")}
    columns["C_2"][[1, 3]], columns["y"][0] = (np.nan, np.inf), np.nan
    chosen = select(table_of("t.csv", columns), BOTH, target="y")
    assert len(chosen.X) == 100
    assert len(chosen.y) == 99
    with pytest.raises(DataError, match=r"column 'C_2' of view 'controls' holds .*row 1 .*--missing drop"):
        fit(chosen)
    told = r"2 of 100 rows .* were left out; 98 are kept. Most of them lack column 'C_2' of view 'controls' \(2\)"
    with pytest.warns(rc.MissingValueWarning, match=told):
        fit(chosen, missing="drop")
    columns["T_1"] = np.full(100, np.nan)
    with pytest.raises(DataError, match=r"all 100 rows have .*Leave out columns such as column 'T_1' of view 'tests'"):
        fit(select(table_of("t.csv", columns), BOTH), missing="drop")


def test_missing_labels_are_missing():
    columns = {**COLUMNS, "who": np.array(["a", None, "b", "b"], dtype=object)}
    with pytest.raises(DataError, match="groups holds 1 missing"):
        fit(select(table_of("t.csv", columns), BOTH, groups="who"))


def test_groups_are_compared_as_they_are_written(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("T_1,C_1,y\n3,1,0\n1,4,00\n4,1,0\n1,5,1\n")
    assert select(open_source(path), BOTH, groups="y").groups.tolist() == ["0", "00", "0", "1"]
    assert select(TABLE, BOTH, groups="y", covariates=["y"]).groups.tolist() == ["0", "1", "0", "1"]


def test_columns_without_values_and_texts_are_named():
    columns = {**COLUMNS, "T_1": np.array([None] * 4, dtype=object)}
    with pytest.raises(DataError, match=r"column 'T_1' of view 'tests' is not numeric .*drop it"):
        fit(select(table_of("t.csv", columns), BOTH))
    with pytest.raises(DataError, match=r"column 'who' of view 'tests' is not numeric .*'a' in row 0: leave it out"):
        fit(select(TABLE, ["tests=who", "controls=C_*"]))


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"target": "y", "covariates": ["y"]}, "'y' is the target and also a covariate"),
        ({"target": "y", "groups": "y"}, "'y' is the target and also the groups"),
        ({"target": "y", "key": "y"}, "'y' is the target and also the labels"),
    ],
)
def test_an_outcome_has_one_role(roles, message):
    columns = {name: np.arange(4.0) for name in ("a", "b", "c", "y")}
    table = table_of("four.csv", columns, {})
    with pytest.raises(DataError, match=message):
        select(table, ["tests=a,b", "controls=c"], **roles)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("<LOD", "leave it out, or encode it"),
        ("1,5", "a decimal comma. Write"),
        ("1.234,5", "a decimal comma. Write"),
        ("1,234.5", "a thousands separator. Write"),
        ("1,234", "a decimal comma or a thousands separator. Write"),
    ],
)
def test_the_cell_that_is_no_number_is_shown(tmp_path, rng, cell, message):
    rows = [[f"{value:.3f}" for value in row] for row in rng.normal(size=(100, 3))]
    rows[3][0], rows[50][0], rows[70][0] = "NA", f'"{cell}"', "-"
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "".join(",".join(row) + "\n" for row in rows))
    where = re.escape(f"{cell!r} in row 50: ")
    with pytest.raises(DataError, match=f"column 'a' of view 'u' is not numeric .*{where}.*{message}"):
        fit(select(open_source(path), ["u=a", "v=b,c"]))
    if cell != "<LOD":
        with pytest.raises(DataError, match=f"the covariate 'a' holds text .*{message}"):
            fit(select(open_source(path), ["u=b", "v=c"], covariates=["a"]), ["a"], "drop")
