"""Column groups and doors."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import richcomponents as rc
from richcomponents.data.align import as_table
from richcomponents.data.rows import join_views
from richcomponents.data.table import as_matrix, resolve_views

NAMES = ["t1", "t2", "c1", "c2", "age"]


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        (2, {"U": [0, 1], "V": [2, 3, 4]}),
        (np.int64(1), {"U": [0], "V": [1, 2, 3, 4]}),
        ({"a": ["c1", "t1"], "b": "age"}, {"a": [2, 0], "b": [4]}),
        ({"a": slice(0, 2), "b": [-1]}, {"a": [0, 1], "b": [4]}),
        ({"a": slice("t2", "c2")}, {"a": [1, 2, 3]}),
        ({"a": np.array([True, False, False, True, False])}, {"a": [0, 3]}),
        ({"a": range(2), "b": 4}, {"a": [0, 1], "b": [4]}),
    ],
)
def test_ways_to_name_columns(views, expected):
    resolved = resolve_views(views, 5, NAMES)
    assert {name: columns.tolist() for name, columns in resolved.columns.items()} == expected


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (0, "leave a view empty"),
        (5, "between 1 and 4"),
        ({}, "views is empty"),
        ({"a": []}, "view 'a' is empty"),
        ({"a": [0, 1], "b": [1]}, "'t2' is in views 'a' and 'b'"),
        ({"a": [0, 0]}, "'t1' is in view 'a' twice"),
        ({"a": [9]}, "columns 0..4"),
        ({"a": ["t11"]}, "did you mean 't1'"),
        ({"a": ["zzz"]}, "the first are"),
        ({"a": [True, False]}, "a mask needs 5 entries"),
        ({"a": slice("t1", "c2", 2)}, "without numbers or steps"),
        ({"a": slice("t1", 3)}, "without numbers or steps"),
        ({1: ["t1"], "1": ["t2"]}, "two views are called '1'"),
    ],
)
def test_mistakes_are_named(views, message):
    with pytest.raises(rc.DataError, match=message):
        resolve_views(views, 5, NAMES)


def test_names_without_named_columns_say_set_output():
    with pytest.raises(rc.DataError, match=r"set_output\(transform='pandas'\)"):
        resolve_views({"a": ["t1"]}, 5)


def test_other_types_and_repeated_names():
    with pytest.raises(TypeError, match="must be an int or a dict"):
        resolve_views("U", 5, NAMES)
    with pytest.raises(rc.DataError, match="'a' appears twice"):
        resolve_views(1, 2, ["a", "a"])
    with pytest.raises(KeyError, match="there is no view 'W'"):
        resolve_views(2, 5)["W"]


def test_matrices_are_c_ordered_float64(rng):
    X = rng.normal(size=(6, 3))
    for given in (np.asfortranarray(X), pd.DataFrame(X), pl.DataFrame(X), X.tolist(), sparse.csr_matrix(X)):
        matrix = as_matrix(given)
        assert matrix.dtype == np.float64
        assert matrix.flags.c_contiguous
        np.testing.assert_array_equal(matrix, X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), r"two-dimensional.*reshape\(-1, 1\)"),
        (np.zeros((2, 2, 2)), "two-dimensional"),
        (np.array([["a"], ["b"]]), "real numbers"),
        (np.array([[1j]]), "real numbers"),
        (pd.DataFrame({"x": [1.0], "sex": ["f"]}), "column 'sex' is not numeric"),
        (pl.DataFrame({"x": [1.0], "sex": ["f"]}), "column 'sex' is not numeric"),
        (np.array([[2**60]]), r"2\*\*53"),
    ],
)
def test_what_is_not_a_table(X, message):
    with pytest.raises(rc.DataError, match=message):
        as_matrix(X)


def test_missing_values_name_view_column_and_row():
    X = pd.DataFrame(np.ones((4, 3)), columns=["a", "b", "c"])
    X.loc[2, "c"] = np.nan
    with pytest.raises(rc.DataError, match=r"column 'c' of view 'V' holds a missing value \(NaN\) in row 2"):
        as_table(X, 2)
    with pytest.raises(rc.DataError, match="'c'"):
        rc.cumulant(X, 2)


def frames():
    index = [f"s{i}" for i in range(4)]
    return pd.DataFrame(np.eye(4)[:, :2], index, ["a", "b"]), pd.DataFrame(np.eye(4)[:, 1:], index, ["c", "d", "e"])


def test_join_keeps_names_and_samples():
    rna, protein = frames()
    table = join_views({"rna": rna, "protein": protein})
    assert table.views.feature_names == ("a", "b", "c", "d", "e")
    assert table.views["protein"].tolist() == [2, 3, 4]
    assert table.index == ("s0", "s1", "s2", "s3")
    np.testing.assert_array_equal(table.values, np.hstack([rna, protein]))
    assert join_views([rna, protein]).views.names == ("U", "V")
    assert join_views([pl.DataFrame(rna), pl.DataFrame(protein)]).index is None


def test_join_tells_equal_column_names_apart_by_view():
    one, _ = frames()
    assert join_views({"x": one, "y": one}).views.feature_names == ("x:a", "x:b", "y:a", "y:b")


def test_mudata_like_objects():
    rna, protein = frames()
    modality = lambda f: SimpleNamespace(X=sparse.csr_matrix(f.to_numpy()), obs_names=f.index, var_names=f.columns)  # noqa: E731
    table = join_views(SimpleNamespace(mod={"rna": modality(rna), "protein": modality(protein)}))
    assert table.views.names == ("rna", "protein")
    assert table.views.feature_names == ("a", "b", "c", "d", "e")
    assert table.index == ("s0", "s1", "s2", "s3")


def test_samples_must_line_up():
    rna, protein = frames()
    turned = join_views({"rna": rna, "protein": protein.iloc[::-1]})
    np.testing.assert_array_equal(turned.values, join_views({"rna": rna, "protein": protein}).values)
    with pytest.raises(rc.DataError, match=r"different samples \(1 only in 'rna', 0 only in 'protein', e.g. 's3'\)"):
        join_views({"rna": rna, "protein": protein.iloc[:3]})
    with pytest.raises(rc.DataError, match="'U' has 4, 'V' has 3"):
        join_views([rna.to_numpy(), protein.to_numpy()[:3]])
    doubled = protein.set_axis(["s0", "s0", "s1", "s2"])
    with pytest.raises(rc.DataError, match="two rows labelled 's0'"):
        join_views({"rna": rna, "protein": doubled})
    shuffled = protein.reset_index(drop=True).sample(frac=1, random_state=0)
    with pytest.raises(rc.DataError, match="different order"):
        join_views({"rna": rna.reset_index(drop=True), "protein": shuffled})
    with pytest.warns(UserWarning, match="'protein' carries no sample labels"):
        join_views({"rna": rna, "protein": protein.to_numpy()})
    with pytest.raises(rc.DataError, match="view 'protein': column 'z' is not numeric"):
        join_views({"rna": rna, "protein": protein.assign(z="no")})


def test_repeated_column_names_are_an_error():
    with pytest.raises(rc.DataError, match="unique"):
        as_table(pd.DataFrame(np.zeros((3, 2)), columns=["a", "a"]))


def test_columns_of_no_view_may_hold_anything():
    X = np.ones((4, 3))
    X[1, 2] = np.nan
    assert as_table(X, {"a": [0], "b": [1]}).values.shape == (4, 3)
