"""Views by name, pattern, number or file; every refusal names the column and the remedy."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

from richcomponents.data.rows import open_source, select
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


TABLE = table_of("t.csv", COLUMNS)
BOTH = ["tests=T_*", "controls=C_*"]


def test_names_and_patterns_agree():
    by_pattern, by_name = select(TABLE, BOTH), select(TABLE, ["tests=T_1,T_2", "controls=C_1, C_2"])
    assert by_pattern.views == by_name.views == {"tests": ("T_1", "T_2"), "controls": ("C_1", "C_2")}
    assert by_pattern.X.equals(by_name.X)


def test_number_divides_what_is_free():
    chosen = select(TABLE, ["2"], target="y", covariates=["age"], groups="who")
    assert chosen.views == {"U": ("T_1", "T_2"), "V": ("C_1", "C_2")}
    assert chosen.X.column_names == ["T_1", "T_2", "C_1", "C_2", "age"]
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
        (["tests=who", "controls=C_*"], {}, "column 'who' of view 'tests' holds text .'a' in data row 1."),
        (["9"], {}, "--views 9 would leave a view empty"),
        (BOTH, {"target": "z"}, r"t.csv has no column 'z' .the target."),
        (BOTH, {"covariates": ["sex"]}, r"t.csv has no column 'sex' .a covariate."),
        (["tests=T_1,y", "controls=C_*"], {"target": "y"}, "'y' is in a view and also the target"),
    ],
)
def test_refusals(views, options, message):
    with pytest.raises(DataError, match=message):
        select(TABLE, views, **options)


def test_missing_values_are_named_or_dropped():
    columns = dict(COLUMNS)
    columns["C_2"] = np.array([1.0, np.nan, 2.0, np.inf])
    columns["y"] = np.array([np.nan, 1.0, 0.0, 1.0])
    table = table_of("t.csv", columns)
    with pytest.raises(DataError, match=r"column 'C_2' of view 'controls' holds 2 .*data row 2 .*--missing drop"):
        select(table, BOTH)
    kept = select(table, BOTH, target="y", missing="drop")
    assert kept.X.shape == (1, 4)
    assert kept.notes == (
        "3 of 4 rows have missing values and were left out (most of them lack column 'C_2' of view 'controls', 2).",
    )
    columns["T_1"] = np.full(4, np.nan)
    with pytest.raises(DataError, match=r"every row of t.csv has a missing value: drop columns such as column 'T_1'"):
        select(table_of("t.csv", columns), BOTH, missing="drop")


def test_missing_labels_are_missing():
    columns = {**COLUMNS, "who": np.array(["a", None, "b", "b"], dtype=object)}
    with pytest.raises(DataError, match="the groups 'who' holds 1 missing"):
        select(table_of("t.csv", columns), BOTH, groups="who")


def test_groups_are_compared_as_they_are_written(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("T_1,C_1,y\n3,1,0\n1,4,00\n4,1,0\n1,5,1\n")
    assert select(open_source(path), BOTH, groups="y").groups.tolist() == ["0", "00", "0", "1"]
    assert select(TABLE, BOTH, groups="y", covariates=["y"]).groups.tolist() == ["0", "1", "0", "1"]


def test_a_column_without_values_is_named():
    columns = {**COLUMNS, "T_1": np.array([None] * 4, dtype=object)}
    with pytest.raises(DataError, match="column 'T_1' of view 'tests' holds no value at all"):
        select(table_of("t.csv", columns), BOTH)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"target": "y", "covariates": ["y"]}, "'y' is the target and also a covariate"),
        ({"target": "y", "groups": "y"}, "'y' is the target and also the groups"),
        ({"target": "y", "key": "y"}, "'y' is the target and also the labels"),
        ({"covariates": ["y", "y"]}, "'y' is named twice"),
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
    where = re.escape(f"column 'a' of view 'u' holds text ({cell!r} in data row 51): ")
    with pytest.raises(DataError, match=where + f".*{message}"):
        select(open_source(path), ["u=a", "v=b,c"])
    columns = {name: np.ones(3) for name in "bc"}
    written = table_of("t", columns | {"a": np.array([None, "1.5", "2"], dtype=object)})
    with pytest.raises(DataError, match=r"'1.5' in data row 2"):
        select(written, ["u=a", "v=b,c"])
