"""What the command line opens, Python opens, and the other way round."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc
from richcomponents.cli import main
from richcomponents.data.sources.base import digest

N, TESTS, CONTROLS = 900, ["T_1", "T_2"], ["C_1", "C_2"]
VIEWS = {"tests": TESTS, "controls": CONTROLS}


@pytest.fixture(scope="module")
def frame():
    data = rc.datasets.make_contrastive(N, d=2, S2="skewed", random_state=3)
    return pd.DataFrame(data.X, columns=[*TESTS, *CONTROLS])


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    return json.loads(out)


def write_zarr(frame, place):
    pytest.importorskip("zarr").save(str(place / "t.zarr"), frame.to_numpy())
    return place / "t.zarr", {"tests": ["x0", "x1"], "controls": ["x2", "x3"]}, {"tests": [0, 1], "controls": [2, 3]}


def write_h5mu(frame, place):
    anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
    named = frame.set_index(frame.index.astype(str))
    mudata.MuData({view: anndata.AnnData(named[columns]) for view, columns in VIEWS.items()}).write(place / "t.h5mu")
    return place / "t.h5mu", {}, None


def write_npz(frame, place):
    np.savez(place / "t.npz", tests=frame[TESTS], controls=frame[CONTROLS], y=np.arange(float(N)))
    return place / "t.npz", {}, None


def write_semicolons(frame, place):
    frame.to_csv(place / "t.csv", sep=";", index=False)
    return place / "t.csv", {"tests": ["T_*"], "controls": ["C_*"]}, {"tests": "T_*", "controls": ["C_*"]}


def write_pieces(frame, place):
    for i in range(3):
        frame[i * 300 : (i + 1) * 300].to_csv(place / f"part-{i}.csv", index=False)
    return str(place / "part-*.csv"), VIEWS, VIEWS


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("write", [write_zarr, write_h5mu, write_npz, write_semicolons, write_pieces])
def test_every_table_is_the_same_table_at_both_doors(frame, tmp_path, capsys, write):
    path, there, here = write(frame, tmp_path)
    options = [part for view, columns in there.items() for part in ("--views", f"{view}={','.join(columns)}")]
    A = told(capsys, "fit", path, *options, "--json")["A"]
    rows = rc.open_source(path)
    model = rc.ContrastiveRCA(views=rows.views if here is None else here).fit(path)
    np.testing.assert_allclose(model.A_, A, rtol=1e-12)
    np.testing.assert_allclose(model.A_, rc.ContrastiveRCA(views=2).fit(frame.to_numpy()).A_, rtol=1e-12)


def test_files_side_by_side_are_matched_in_python_too(frame, tmp_path, capsys):
    labelled = frame.assign(sample=[f"s{i:03}" for i in range(N)], who=["a", "b", None] * (N // 3))
    one, two = tmp_path / "tests.csv", tmp_path / "controls.parquet"
    labelled[["sample", *TESTS]].to_csv(one, index=False)
    labelled[["sample", "who", *CONTROLS]].sample(frac=1, random_state=0).to_parquet(two, index=False)
    paths = {"tests": one, "controls": two}
    rows = rc.open_source(paths, id="sample")
    np.testing.assert_array_equal(rows.select([*TESTS, *CONTROLS]).array(), frame)
    assert rows.read(["who", "T_1"])["who"].tolist() == ["a", "b", None] * (N // 3)
    model = rc.ContrastiveRCA(views={"tests": TESTS, "controls": CONTROLS}).fit(rows)
    options = ["--id", "sample", "--views", "tests=T_*", "--views", "controls=C_*"]
    np.testing.assert_allclose(told(capsys, "fit", one, two, *options, "--json")["A"], model.A_, rtol=1e-12)
    with pytest.raises(rc.DataError, match=r"column 'who' of controls.parquet is not numeric"):
        rows.select(["T_1", "who"]).array()
    with pytest.raises(rc.DataError, match="another order"):
        rc.ContrastiveRCA(views=2).fit(paths)


def test_a_column_of_numbers_here_and_words_there_is_words(tmp_path):
    (tmp_path / "a-1.csv").write_text("x,who\n1,007\n")
    (tmp_path / "a-2.csv").write_text("x,who\n2,eve\n")
    read = rc.open_source(str(tmp_path / "a-*.csv")).read(["x", "who"])
    assert (read["x"].tolist(), read["who"].tolist()) == ([1.0, 2.0], ["007", "eve"])


def test_a_folder_has_a_digest(tmp_path):
    (tmp_path / "t.zarr").mkdir()
    (tmp_path / "t.zarr" / "a").write_text("1")
    before = digest(tmp_path / "t.zarr")
    (tmp_path / "t.zarr" / "a").write_text("2")
    assert digest(tmp_path / "t.zarr") != before
