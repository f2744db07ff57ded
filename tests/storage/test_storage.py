"""Saved models: everything observable of a loaded model equals the original, bit for bit; bad files are refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import warnings
import zipfile

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

import richcomponents as rc
from richcomponents.datasets import make_contrastive
from richcomponents.storage import Storable, storable


@pytest.fixture(scope="module")
def data():
    return make_contrastive(1000, d=3, S2="skewed", random_state=1)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def again(tmp_path):
    """Save, load by the single door, and by the class."""

    def trip(model):
        model.save(tmp_path / "model.npz")
        assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]  # no temporary left behind
        assert type(type(model).load(tmp_path / "model.npz")) is type(model)
        return rc.load(tmp_path / "model.npz")

    return trip


def order_of(array):
    """Axes from the slowest to the fastest in memory."""
    return sorted(range(array.ndim), key=lambda axis: 0 if array.flags.c_contiguous else -abs(array.strides[axis]))


def same(one, two):
    """Equal in bits: NaN equals NaN, and the type and memory order count."""
    assert type(one) is type(two)
    if isinstance(one, np.ndarray):
        assert one.dtype == two.dtype
        assert order_of(one) == order_of(two)
        np.testing.assert_array_equal(one, two)
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            same(one[key], two[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            same(a, b)
    elif isinstance(one, float):
        np.testing.assert_equal(two, one)
    elif hasattr(one, "__dataclass_fields__"):
        same(*[{k: getattr(x, k) for k, f in x.__dataclass_fields__.items() if f.compare} for x in (one, two)])
    elif isinstance(one, rc.Moments):
        assert one == two
        assert one.dependent == two.dependent
    elif isinstance(one, (Storable, rc.components.CumulantSource)):
        same(*[{k: v for k, v in vars(x).items() if k not in ("_low", "_high", "_stream")} for x in (one, two)])
    else:
        assert one == two


CONTRASTIVE = {
    "efficient": {},
    "rank": {"rank": 1},
    "paper": {"method": "paper"},
    "known": {"A": "that of the data"},
    "order five": {"order": 5},
    "mean": {"mean": {"S1": np.zeros(3)}},
    "views": {"views": {"tests": slice(0, 3), "controls": range(3, 6)}},
    "covariates": {"views": {"tests": [0, 1], "controls": np.array([3, 4])}, "covariates": [2, 5]},
}


@pytest.mark.parametrize("options", CONTRASTIVE.values(), ids=CONTRASTIVE)
def test_everything_observable_of_contrastive_rca_survives(data, again, options):
    options = options | ({"A": data.A} if "A" in options else {})
    model = rc.ContrastiveRCA(**{"views": 3, "n_blocks": 10, **options}).fit(data.X)
    loaded = again(model)
    same(loaded, model)
    for name, component in model.components_.items():
        for order in (1, 2, 3, 4, *([5] if model.order == 5 else [])):
            same(loaded.components_[name].cumulant(order), component.cumulant(order))
        same(loaded.transform(data.X, name, return_std=True), model.transform(data.X, name, return_std=True))
    same(loaded.diagnostics_, model.diagnostics_)
    same(loaded.confidence_interval("A"), model.confidence_interval("A"))
    same(loaded.confidence_interval(component="S1"), model.confidence_interval(component="S1"))
    same(loaded.calibrate(data.X, data.y), model.calibrate(data.X, data.y))
    assert loaded.score(data.X) == model.score(data.X)
    assert loaded.summary() == model.summary()
    same(loaded, model)  # what was computed on the way is the same too
    same(again(model), model)  # and can be saved


LEARNERS = {
    "pca": rc.ComponentPCA(2),
    "regression": rc.ComponentRegression(),
    "lasso": rc.ComponentRegression(0.01, 1.0),
    "both parts": rc.ComponentRegression(shared=True),
    "mixture": rc.ComponentGaussianMixture(2, n_init=1),
    "mixture, auto": rc.ComponentGaussianMixture(n_init=1),
    "logistic": rc.ComponentLogisticRegression(),
    "ising": rc.ComponentIsing(),
}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_everything_observable_of_the_learners_survives(data, again, learner):
    y = np.where(data.y > data.y.mean(), "high", "low") if hasattr(learner, "predict_proba") else data.y
    X = data.X * 3**0.5  # S1 has variance one, as spins have
    model = clone(learner).set_params(rca=rc.ContrastiveRCA(views=3)).fit(X, y)
    loaded = again(model)
    same(loaded, model)
    assert loaded.rca_.components_["S1"] is loaded.component_  # shared parts stay shared
    for method in ("predict", "predict_proba", "transform", "decision_function", "score_samples"):
        if hasattr(model, method):
            same(getattr(loaded, method)(data.X), getattr(model, method)(data.X))
    assert loaded.summary() == model.summary()
    for copied in (pickle.loads(pickle.dumps(loaded)), loaded):
        same(copied, model)
    assert clone(loaded).get_params().keys() == model.get_params().keys()


def test_every_estimator_of_the_library_can_be_saved(again):
    for name in rc.__all__:
        thing = getattr(rc, name)
        if isinstance(thing, type) and issubclass(thing, BaseEstimator):
            assert issubclass(thing, Storable), name
            same(again(thing()), thing())


def test_components_survive(data, again, rng):
    samples = rc.Component.of_samples(rng.exponential(size=(300, 2)))
    for component in (rc.ContrastiveRCA(views=3).fit(data.X).components_["S3"], samples):
        loaded = again(component)
        theta = np.ones(len(component.mean))
        same(loaded, component)
        same(loaded.standard_error(3, theta), component.standard_error(3, theta))
        same(loaded.projected_moment(theta, 4), component.projected_moment(theta, 4))
        assert not loaded.mean.flags.writeable


def test_learners_of_clean_samples_survive(again, rng):
    spins = rng.choice([-1.0, 1.0], size=(200, 3))
    model = rc.ComponentIsing().fit_clean(spins)
    same(again(model), model)


def test_a_stream_continues_where_it_was(data, again):
    model = rc.ContrastiveRCA(views=3).partial_fit(data.X[:700])
    loaded = again(model)
    same(loaded.partial_fit(data.X[700:]), model.partial_fit(data.X[700:]))


def test_moments_come_in_by_the_same_door(data, tmp_path):
    state = rc.Moments.of(data.X)
    state.save(tmp_path / "state.npz")
    assert rc.load(tmp_path / "state.npz") == state
    with pytest.raises(rc.StateFileError, match="holds a Moments, not a ContrastiveRCA"):
        rc.ContrastiveRCA.load(tmp_path / "state.npz")


def test_data_frames_keep_their_names(data, again):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data.X, columns=[f"gène {i}" for i in range(6)])
    model = rc.ContrastiveRCA(views={"U": ["gène 0", "gène 1"], "V": ["gène 3", "gène 5"]}).fit(frame)
    loaded = again(model)
    same(loaded, model)
    same(loaded.transform(frame), model.transform(frame))
    assert loaded.get_feature_names_out().tolist() == ["gène 0", "gène 1"]


def test_files_are_equal_when_models_are(data, tmp_path):
    for name in ("one", "two"):
        rc.ContrastiveRCA(views=3).fit(data.X).save(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "one") as one, zipfile.ZipFile(tmp_path / "two") as two:
        assert {n: one.read(n) for n in one.namelist()} == {n: two.read(n) for n in two.namelist()}


class Doubled(rc.ContrastiveRCA):
    """A user's own estimator."""


def test_subclasses_of_users_can_be_saved(data, again):
    assert isinstance(again(Doubled(views=3).fit(data.X)), Doubled)


def test_what_cannot_be_saved_says_where(tmp_path, data):
    model = rc.ContrastiveRCA(views=3).fit(data.X)
    model.A = lambda: None
    with pytest.raises(TypeError, match=r"ContrastiveRCA\.A is a function"):
        model.save(tmp_path / "model.npz")
    model.A = np.array([{}])
    with pytest.raises(TypeError, match=r"ContrastiveRCA\.A is an array of object"):
        model.save(tmp_path / "model.npz")
    model.A = []
    model.A.append(model.A)
    with pytest.raises(ValueError, match=r"ContrastiveRCA\.A\[0\] holds itself"):
        model.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TypeError, match="only classes and functions"):
        storable(3)


def test_arrays_of_every_kind_survive(again):
    values = [
        np.float32(1.5),
        np.array(2.0),
        np.arange(6).reshape(2, 3).T,
        np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0),
        np.zeros((0, 3)),
        np.array(["a", "bc"]),
        np.array(["a", "bc"], dtype=object),
        np.array([True, False]),
        np.int64(3),
        float("nan"),
        -float("inf"),
        -0.0,
        10**40,
        (),
        [None, ("x",), ["y", ""]],
        {(1, 2): {3: "z"}},
        np.arange(4, dtype=">i4"),
    ]
    loaded = again(rc.ContrastiveRCA(views=values)).views
    for one, two in zip(values[:-1], loaded[:-1], strict=True):
        same(one, two)
    np.testing.assert_array_equal(values[-1], loaded[-1])  # byte order is the file's


# ---- bad files


def rewrite(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(members["header.json"])
    change(head, members)
    members["header.json"] = json.dumps(head).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def row_of(head, cls):
    return next(row for row in head["rows"] if row.get("class") == cls)


def first(head):
    """What the header declares of the first array."""
    return next(iter(head["arrays"].values()))


def named(head):
    """The member of the archive that is the first array."""
    return f"{next(iter(head['arrays']))}.npy"


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def longer(content, n):
    """An .npy file that says that it has the shape (n,)."""
    head, values = content.split(b"\n", 1)
    begin, end = head.index(b"'shape'"), head.rindex(b"}")
    changed = head[:begin] + b"'shape': (%d,), " % n + head[end:]
    return changed.rstrip().ljust(len(head)) + b"\n" + values


def doubled(n):
    """Items of tuples, each of which holds the one before twice; numbers count from the first tuple."""
    return [[1, 2], *([i, i] for i in range(n - 1))]


def with_key(rows, tuples):
    """The rows, these tuples (the first one holds numbers, the others tuples), and a dict whose key is the last."""
    first = len(rows)
    items = [tuples[0], *([{"row": first + i} for i in held] for held in tuples[1:])]
    last = {"row": first + len(items) - 1}
    return [*rows, *({"kind": "tuple", "items": held} for held in items), {"kind": "dict", "items": [[last, 1]]}]


BAD = {
    "newer": (lambda h, m: h.update(version=7), "format version 7, this library reads 4: update"),
    "older": (lambda h, m: h.update(version=3), "an older edition of richcomponents.*make it again"),
    "older model": (
        lambda h, m: h.update(format="richcomponents.Model", version=2),
        "an older edition of richcomponents.*fit once more",
    ),
    "other format": (lambda h, m: h.update(format="x"), "does not hold"),
    "unknown class": (
        lambda h, m: row_of(h, "Canonical").update({"class": "os.system"}),
        "there is no object 'os.system'",
    ),
    "unknown function": (lambda h, m: h["rows"].append({"kind": "function", "name": "eval"}), "there is no function"),
    "unknown kind": (lambda h, m: h["rows"].append({"kind": "pickle"}), "there is no pickle"),
    "unknown field": (lambda h, m: row_of(h, "Canonical")["fields"].update(new=1), "no part 'new' in this version"),
    "missing field": (lambda h, m: row_of(h, "Canonical")["fields"].pop("n"), "part 'n' of Canonical is missing"),
    "wrong type": (lambda h, m: row_of(h, "Canonical")["fields"].update(n="500"), "Canonical.n should be"),
    "missing parameter": (lambda h, m: row_of(h, "ContrastiveRCA")["fields"].pop("A"), "parameter 'A'"),
    "method": (lambda h, m: row_of(h, "ContrastiveRCA")["fields"].update(fit=1), "fitted attribute 'fit'"),
    "dunder": (lambda h, m: row_of(h, "ContrastiveRCA")["fields"].update(__x__=1), "fitted attribute '__x__'"),
    "missing array": (lambda h, m: m.pop(named(h)), "is None, it should be"),
    "undeclared array": (lambda h, m: h["arrays"].pop(named(h)[:-4]), "it should be None"),
    "other type": (lambda h, m: first(h).update(dtype="|O"), "it should be"),
    "object array": (lambda h, m: m.update({named(h): npy(np.array([{}]), allow_pickle=True)}), "Python objects"),
    "huge": (lambda h, m: m.update({named(h): longer(m[named(h)], 2**40)}), "bytes of values instead of"),
    "negative shape": (lambda h, m: m.update({named(h): longer(m[named(h)], -1)}), "bytes of values instead of"),
    "dates": (lambda h, m: m.update({named(h): npy(np.zeros(3, "M8[s]"))}), "it should be"),
    "forward reference": (
        lambda h, m: h["rows"].insert(0, {"kind": "list", "items": [{"row": 5}]}),
        "not before it",
    ),
    "negative reference": (lambda h, m: h.update(root=-1), "not the number of a row"),
    "no rows": (lambda h, m: h.pop("rows"), "does not describe an object"),
    "many blocks": (lambda h, m: row_of(h, "Layout")["fields"].update(n_blocks=10**9), "too large"),
    "doubling key": (lambda h, m: h.update(rows=with_key(h["rows"], doubled(60))), "more parts"),
    "list as key": (
        lambda h, m: h["rows"].extend(
            [{"kind": "list", "items": []}, {"kind": "dict", "items": [[{"row": len(h["rows"])}, 1]]}]
        ),
        "a list cannot be the key",
    ),
    "other state": (lambda h, m: row_of(h, "Layout")["fields"].update(n_columns=40), "columns"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_damaged_and_hostile_models_are_refused(data, tmp_path, change, message):
    path = tmp_path / "model.npz"
    rc.ContrastiveRCA(views=3).fit(data.X).save(path)
    rewrite(path, change)
    with pytest.raises(rc.StateFileError, match=message):
        rc.load(path)


# ---- small files that describe large things


def parameter(head, rows):
    """Put these rows (their numbers count from the first of them) behind the others; the last is the root's parameter views."""
    first = len(head["rows"])
    for row in rows:
        row["items"] = [
            {"row": first + item["row"]} if isinstance(item, dict) else item for item in row.get("items", [])
        ]
    root = head["rows"][head["root"]]
    views = {"row": first + len(rows) - 1}
    head["rows"] += [*rows, {**root, "fields": {**root["fields"], "views": views}}]
    head["root"] = len(head["rows"]) - 1


def held(what, times):
    return [what, {"kind": "list", "items": [{"row": 0}] * times}]


def with_array(head, members, array, kind, times):
    members["big.npy"] = npy(array)
    head["arrays"]["big"] = {"shape": list(array.shape), "dtype": array.dtype.str}
    parameter(head, held({"kind": kind, "array": "big", "as": "list"}, times))


def letters(count):
    return np.frombuffer(json.dumps(["a"] * count).encode(), dtype=np.uint8)


ENDLESS = {
    "doubled lists": lambda h, m: parameter(
        h, [{"kind": "list", "items": items} for items in row_numbers(doubled(60))]
    ),
    "doubled tuples": lambda h, m: parameter(
        h, [{"kind": "tuple", "items": items} for items in row_numbers(doubled(25))]
    ),
    "deep lists": lambda h, m: parameter(
        h, [{"kind": "list", "items": [{"row": i - 1}] if i else [1]} for i in range(5000)]
    ),
    "a text, often": lambda h, m: with_array(h, m, letters(100_000), "text", 100_000),
    "a long word, often": lambda h, m: parameter(h, held({"kind": "list", "items": ["x" * 10_000]}, 100_000)),
    "an array, often": lambda h, m: with_array(h, m, np.zeros((30, 30)), "array", 100_000),
    "an array of many axes": lambda h, m: with_array(h, m, np.zeros((7,) * 8, dtype=np.uint8), "array", 1),
    "an array of wide words": lambda h, m: with_array(h, m, np.array(["x"] * 900, dtype="<U3000"), "array", 100),
}


def row_numbers(items):
    return [held if i == 0 else [{"row": number} for number in held] for i, held in enumerate(items)]


@pytest.mark.parametrize("change", ENDLESS.values(), ids=ENDLESS)
def test_models_that_could_not_be_printed_are_refused(data, tmp_path, change):
    path = tmp_path / "model.npz"
    rc.ContrastiveRCA(views=3).fit(data.X).save(path)
    rewrite(path, change)
    with pytest.raises(rc.StateFileError, match="more parts"):
        rc.load(path)


def test_models_that_could_not_be_printed_are_not_saved(tmp_path):
    nested = [1]
    for _ in range(50):
        nested = [nested, nested]
    with pytest.raises(ValueError, match="too many"):
        rc.ContrastiveRCA(views=nested).save(tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == []


def test_wide_models_are_saved(tmp_path):
    names = [f"chr{i % 22}-{10_000 * i}-{10_000 * i + 500}" for i in range(100_000)]
    model = rc.ContrastiveRCA(views={"U": names[:50_000], "V": names[50_000:]})
    model.save(tmp_path / "model.npz")
    assert rc.load(tmp_path / "model.npz").views == model.views


LOADERS = {
    "load": rc.load,
    "Moments": rc.Moments.load,
    "ContrastiveRCA": rc.ContrastiveRCA.load,
    "Component": rc.Component.load,
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_only_files_are_read(tmp_path, load):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path, "/dev/zero", "/dev/null"):
        with pytest.raises(rc.StateFileError, match="not a regular file"):
            load(path)


def test_a_long_list_of_members_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(50):
            archive.writestr(f"{i:0>60000}", b"")
        archive.writestr("x" * 65_000, b"")
    good = path.read_bytes()
    path.write_bytes(good[:-10] + (2**30).to_bytes(4, "little") + good[-6:])
    with pytest.raises(rc.StateFileError, match="list of members"):
        rc.load(path)
    path.write_bytes(b"")
    with pytest.raises(rc.StateFileError, match="cut off"):
        rc.load(path)
    with pytest.raises(FileNotFoundError):
        rc.load(tmp_path / "nothing.npz")


def test_the_cap_is_kept(data, tmp_path):
    path = tmp_path / "model.npz"
    rc.ContrastiveRCA(views=3).fit(data.X).save(path)
    with pytest.raises(rc.StateFileError, match="more than the limit 1000"):
        rc.load(path, max_bytes=1000)


def test_a_header_that_is_saved_can_be_loaded(data, tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    model = rc.ContrastiveRCA(views=3).fit(data.X)
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        size = len(json.dumps(json.loads(archive.read("header.json"))))
    monkeypatch.setattr("richcomponents.archive._HEADER_LIMIT", size)
    model.save(path)
    assert (rc.load(path).A_ == model.A_).all()
    monkeypatch.setattr("richcomponents.archive._HEADER_LIMIT", size - 1)
    with pytest.raises(ValueError, match="too many small objects"):
        model.save(path)


def test_a_stream_of_many_small_blocks_can_be_loaded(rng, tmp_path):
    model = rc.ContrastiveRCA(views=1).partial_fit(rng.exponential(size=(100, 2)))
    for rows in rng.exponential(size=(1245, 20, 2)):  # without fitting anew each time
        model._stream.update(rows)
    model.save(tmp_path / "model.npz")
    again = rc.load(tmp_path / "model.npz")
    assert again._stream.moments() == model._stream.moments()
    assert max(map(len, again._stream._fragments.values())) < 32


FORGED_STREAMS = {
    "a block that is not there": {"fragments": {(99, 0): {0: np.zeros((5, 2))}}},
    "a negative leaf": {"fragments": {(0, -1): {0: np.zeros((5, 2))}}},
    "more columns than there are": {"fragments": {(0, 0): {0: np.zeros((5, 3))}}},
    "rows that are not finite": {"fragments": {(0, 0): {0: np.full((5, 2), np.nan)}}},
    "rows seen backwards": {"seen": (0, -1)},
    "rows seen without end": {"seen": (0,)},
    "a range from above": {"low": np.full(2, np.inf)},
}


@pytest.mark.parametrize("forged", FORGED_STREAMS.values(), ids=FORGED_STREAMS)
def test_forged_streams_are_refused(rng, tmp_path, forged):
    model, path = rc.ContrastiveRCA(views=1).partial_fit(rng.exponential(size=(100, 2))), tmp_path / "model.npz"
    vars(model._stream).update({f"_{name}": value for name, value in forged.items()})
    model.save(path)
    with pytest.raises(rc.StateFileError, match="the parts of the accumulator do not fit together"):
        rc.load(path)


def test_a_folder_that_is_not_there_is_named(data, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere to write model.npz to"):
        rc.ContrastiveRCA(views=3).save(tmp_path / "nowhere" / "model.npz")


class Tagged(rc.ContrastiveRCA):
    tag_ = "none"


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    model = Tagged()
    model.tag_ = "mine"
    with pytest.raises(TypeError, match=r"Tagged.tag_ belongs to the class"):
        model.save(tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == []


def test_types_that_are_aliases_by_name_are_looked_into():
    """From Python 3.12 on, NDArray[...] of numpy is the name of a type, whose value says what it is."""
    from types import GenericAlias, SimpleNamespace

    from richcomponents.storage import _fits

    alias = SimpleNamespace(__value__={(np.int64,): np.ndarray[tuple[int, ...], np.dtype[np.int64]]})
    hint = GenericAlias(alias, (np.int64,))
    assert _fits(np.zeros(3, dtype=np.int64), hint)
    assert not _fits(np.zeros(3), hint)
    assert not _fits([0], hint)
