"""Which columns are which view is said, not guessed; a number takes no column that is no data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::richcomponents.WeakIdentificationWarning")


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(1200, d=3, S2="skewed", random_state=2)


@pytest.fixture(scope="module")
def frame(data):
    return pd.DataFrame(data.X, columns=["t1", "t2", "t3", "c1", "c2", "c3"])


def test_a_table_without_views_is_refused_with_the_three_ways(data):
    ways = r"number k.*\"tests\": \[...\].*fit_views\(\[U, V\]\)"
    state = rc.Moments.of(data.X, 4)
    for fit in (
        lambda: rc.ContrastiveRCA().fit(data.X),
        lambda: rc.ContrastiveRCA().partial_fit(data.X),
        lambda: rc.ContrastiveRCA().fit(iter([data.X])),
        lambda: rc.ContrastiveRCA().fit_moments(state),
        lambda: rc.RCA().fit(data.X),
        lambda: rc.RCA().fit_moments(state),
        lambda: rc.as_table(data.X),
        lambda: rc.ComponentPCA(rca=rc.ContrastiveRCA()).fit(data.X),
    ):
        with pytest.raises(rc.DataError, match=ways):
            fit()
    for learner in (rc.ComponentPCA(), rc.ComponentRegression(), rc.ComponentLogisticRegression()):
        with pytest.raises(rc.DataError, match=r"rca=ContrastiveRCA\(views=...\)"):
            learner.fit(data.X, data.y > 0)
    with pytest.raises(rc.DataError, match=r"rca=ContrastiveRCA\(views=...\)"):
        rc.baselines.naive(rc.ComponentPCA(), data.X)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_a_second_table_is_not_taken_for_an_outcome(data, kind):
    U, V = kind(data.U), kind(data.V)
    rca = rc.ContrastiveRCA(views=1)
    for model in (rc.ContrastiveRCA(), rca, rc.RCA(views=1), rc.ComponentPCA(rca=rca), rc.ComponentIsing(rca=rca)):
        with pytest.raises(rc.DataError, match=r"fit_views\(\[U, V\]\)"):
            model.fit(U, V)
    np.testing.assert_array_equal(rc.ContrastiveRCA().fit([U, V]).A_, rc.ContrastiveRCA(views=3).fit(data.X).A_)
    one_column = rc.ContrastiveRCA(views=3).fit(data.X, data.y[:, None])  # an outcome, as scikit-learn may pass it
    np.testing.assert_array_equal(one_column.A_, rc.ContrastiveRCA(views=3).fit(data.X).A_)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("y", None, "an outcome, by its name"),
        ("Outcome", None, "an outcome"),
        ("sample_id", None, "sample labels or an index, by its name"),
        ("Unnamed: 0", None, "an index, by its name"),
        ("anything", np.arange(1200.0), "an index: it counts the rows"),
        ("anything", np.arange(5.0, 1205.0), "an index: it counts the rows"),
    ],
)
@pytest.mark.parametrize("place", [0, 6])
def test_a_number_takes_no_column_that_is_no_data(data, frame, name, values, reason, place, tmp_path):
    column = np.random.default_rng(0).normal(size=1200) if values is None else values
    table = frame.copy()
    table.insert(place, name, column)
    table.to_parquet(tmp_path / "t.parquet", index=False)
    table.to_csv(tmp_path / "t.csv", index=False)
    message = f"views=3 would take column '{name}' as data: it looks like .*{reason}"
    for X in (table, tmp_path / "t.parquet", tmp_path / "t.csv", iter([table])):
        if not hasattr(X, "__next__") or values is None:  # a stream is not looked into before it is read
            with pytest.raises(rc.DataError, match=message):
                rc.ContrastiveRCA(views=3).fit(X)
    for model in (rc.RCA(views=3), rc.ComponentPCA(rca=rc.ContrastiveRCA(views=3))):
        with pytest.raises(rc.DataError, match=message):
            model.fit(table)
    named = {"U": ["t1", "t2", "t3"], "V": ["c1", "c2", "c3"]}
    plain = rc.ContrastiveRCA(views=3).fit(frame)
    np.testing.assert_array_equal(rc.ContrastiveRCA(views=named).fit(table).A_, plain.A_)
    taken = rc.ContrastiveRCA(views=3, covariates=[name]).fit(table)  # named as something else
    assert [taken.views_.feature_names[c] for c in taken.views_["V"]] == ["c1", "c2", "c3"]


def test_the_summary_lists_the_columns_that_were_taken(frame):
    text = rc.ContrastiveRCA(views=3).fit(frame).summary()
    assert "U is U (3 columns): t1, t2, t3" in text
    assert "V is V (3 columns): c1, c2, c3" in text


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    return out, err


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_a_number_on_the_command_line_reads_what_simulate_wrote(tmp_path, capsys, kind):
    file = tmp_path / f"table.{kind}"
    run(capsys, "simulate", "--out", file, "-n", 800, "-d", 3)
    by_number, note = run(capsys, "diagnose", file, "--views", 3)
    assert "U is U_0, U_1, U_2; V is V_0, V_1, V_2. Left out: 'y'" in note
    by_name, _ = run(capsys, "diagnose", file, "--views", "U=U_*", "--views", "V=V_*")
    assert by_number == by_name


def test_files_made_by_pandas_and_anndata_keep_their_labels_out_of_the_views(data, frame, tmp_path, capsys):
    frame.to_csv(tmp_path / "one.csv")  # with its index
    _, note = run(capsys, "diagnose", tmp_path / "one.csv", "--views", 3)
    assert "U is t1, t2, t3; V is c1, c2, c3. Left out: '' (sample labels or an index, by its name)" in note
    for view in ("t", "c"):
        frame.filter(like=view).to_csv(tmp_path / f"{view}.csv")
    out, note = run(capsys, "diagnose", tmp_path / "t.csv", tmp_path / "c.csv")
    assert "3 columns, V has 3" in out
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame({"depth": np.sqrt(np.arange(1200)), "batch": "b"}, index=[f"s{i}" for i in range(1200)])
    for name, part in {"both": frame, "rna": frame.filter(like="t"), "protein": frame.filter(like="c")}.items():
        var = pd.DataFrame(index=part.columns)
        anndata.AnnData(part.to_numpy(), obs=obs, var=var).write_h5ad(tmp_path / f"{name}.h5ad")
    _, note = run(capsys, "diagnose", tmp_path / "both.h5ad", "--views", 3)
    assert "V is c1, c2, c3. Left out: 'depth' (an annotation of the samples), 'batch' (text)" in note
    out, _ = run(capsys, "diagnose", tmp_path / "rna.h5ad", tmp_path / "protein.h5ad")
    assert "3 columns, V has 3" in out


def test_numbers_for_a_frame_labelled_by_other_numbers_are_refused(data, frame):
    numbered = frame.set_axis(range(1, 7), axis=1)
    chosen = {"t": [1, 2], "c": [4, 5]}
    ambiguous = r"labelled \d.*position \d.*astype\(str\).*to_numpy\(\)"
    for fit in (
        lambda: rc.ContrastiveRCA(views=chosen).fit(numbered),
        lambda: rc.ContrastiveRCA(views=chosen).partial_fit(numbered),
        lambda: rc.ContrastiveRCA(views={"t": slice(1, 3), "c": ["4", "5"]}).fit(numbered),
        lambda: rc.ContrastiveRCA(views={"t": ["1", "2"], "c": ["4", "5"]}, covariates=[3]).fit(numbered),
        lambda: rc.RCA(views={"t": 1, "c": np.array([4, 5])}).fit(numbered),
        lambda: rc.as_table(numbered, chosen),
    ):
        with pytest.raises(rc.DataError, match=ambiguous):
            fit()
    texts = {"t": ["1", "2"], "c": ["4", "5"]}
    meant = rc.ContrastiveRCA(views={"t": [0, 1], "c": [3, 4]}).fit(data.X).A_
    for X, views in (
        (numbered, texts),
        (numbered.set_axis(numbered.columns.astype(str), axis=1), texts),
        (numbered.to_numpy(), {"t": [0, 1], "c": [3, 4]}),
        (frame.set_axis(range(6), axis=1), {"t": [0, 1], "c": [3, 4]}),
    ):
        np.testing.assert_array_equal(rc.ContrastiveRCA(views=views).fit(X).A_, meant)
    halves = [numbered[[1, 2, 3]], numbered[[4, 5, 6]]]
    everything = rc.ContrastiveRCA(views=3).fit(numbered).A_
    np.testing.assert_array_equal(rc.ContrastiveRCA().fit_views(halves).A_, everything)


def test_labels_that_are_text_and_numbers_are_refused_in_words(frame):
    mixed = frame.set_axis(["t1", "t2", "t3", 1, 2, 3], axis=1)
    for model in (rc.ContrastiveRCA(views=3), rc.RCA(views={"t": ["t1", "t2"], "c": [3, 4]})):
        with pytest.raises(rc.DataError, match=r"text \('t1'\).*\(1\).*astype\(str\)"):
            model.fit(mixed)
