"""Outputs: whole or absent, over no input and over no other output, through links, with the mode they had."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from pathlib import Path

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.cli import main
from richcomponents.commands import simulate

VIEWS = ["--views", "U=U_*", "--views", "V=V_*"]


@pytest.fixture(scope="module")
def data():
    return rc.datasets.make_contrastive(300, d=2, S2="skewed", random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return rc.ContrastiveRCA(views=2).fit(data.X)


@pytest.fixture
def table(tmp_path, data, monkeypatch):
    """A table of which a column is missing where it counts: an error about it tells that its rows were read."""
    path = tmp_path / "own.csv"
    np.savetxt(path, data.X, delimiter=",", header="U_0,U_1,V_0,x", comments="")
    path.chmod(0o640)
    monkeypatch.chdir(tmp_path)
    return path


def state_of(folder):
    """Names, kinds, modes, link targets and contents of everything in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(mode) else b""
        found[str(path.relative_to(folder))] = (mode, what)
    return found


def run(capsys, *arguments):
    try:
        main(list(map(str, arguments)))
        code = 0
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def aliases(path):
    """Other ways to name a file."""
    folder = path.parent
    (folder / "sub").mkdir()
    (folder / "symbolic").symlink_to(path.name)
    (folder / "twice").symlink_to("symbolic")
    (folder / "hard").hardlink_to(path)
    (folder / "sub" / "up").symlink_to("..")
    names = ["own.csv", path, "./own.csv", "sub/../own.csv", "symbolic", "twice", "hard", "sub/up/own.csv"]
    return list(map(str, names))


@pytest.mark.parametrize("option", ["--report", "--save"])
def test_no_output_is_an_input(capsys, tmp_path, table, option):
    names = aliases(table)
    before = state_of(tmp_path)
    for name in names:
        code, out, err = run(capsys, "fit", table, *VIEWS, option, name)
        assert (code, out) == (1, "")
        assert "would overwrite the input" in err
        assert state_of(tmp_path) == before


def test_no_output_lies_in_a_folder_that_is_read(tmp_path, model):
    (tmp_path / "table.zarr").mkdir()
    with pytest.raises(rc.DataError, match="lies inside the input"):
        rc.write_report(tmp_path / "table.zarr" / "page.html", model, tmp_path / "table.zarr")
    assert list(state_of(tmp_path)) == ["table.zarr"]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("a.csv", "a.csv"),
        ("a.csv", "./a.csv"),
        ("a.csv", "A.CSV"),
        ("é.csv", "e\u0301.csv"),
        ("a.csv", "link.csv"),
        ("link.csv", "a.csv"),
        ("old.csv", "hard.csv"),
    ],
)
def test_no_two_outputs_are_one_file(capsys, tmp_path, table, one, two):
    (tmp_path / "link.csv").symlink_to("a.csv")
    (tmp_path / "old.csv").write_text("old")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "old.csv")
    before = state_of(tmp_path)
    for command in (["fit", table, *VIEWS, "--report", one, "--save", two], ["simulate", "--out", one, "--truth", two]):
        code, out, err = run(capsys, *command)
        assert (code, out) == (1, "")
        assert "two outputs are one file" in err
        assert state_of(tmp_path) == before


# ---- every way to write


WRITERS = {
    "model": lambda path, model, data: model.save(path),
    "component": lambda path, model, data: model.components_["S1"].save(path),
    "moments": lambda path, model, data: rc.Moments.of(data.X, n_blocks=2).save(path),
    "report": lambda path, model, data: rc.write_report(path, model),
    "csv": lambda path, model, data: simulate(path.with_suffix(".csv"), n_samples=10, d=2),
    "npz": lambda path, model, data: simulate(path.with_suffix(".npz"), n_samples=10, d=2),
    "truth": lambda path, model, data: simulate(path.with_suffix(".tsv"), path, n_samples=10, d=2),
}
ENDINGS = {"csv": ".csv", "npz": ".npz"}


@pytest.fixture(params=WRITERS)
def write(request, model, data):
    """Writes to a path, whose ending the writer may ask for."""
    made = WRITERS[request.param]

    def to(path):
        made(path, model, data)

    to.ending = ENDINGS.get(request.param, ".out")
    return to


def _socket(path):
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.getcwd()
        os.chdir(path.parent)  # the address of a socket is short
        listening.bind(path.name)
        os.chdir(folder)


KINDS = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/null"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_are_replaced(tmp_path, write, kind):
    path = tmp_path / f"place{write.ending}"
    KINDS[kind](path)
    (tmp_path / f"link{write.ending}").symlink_to(path.name)
    before = state_of(tmp_path)
    for name in ("place", "link"):
        with pytest.raises(rc.DataError, match=f"cannot write .*it is {kind}"):
            write(tmp_path / f"{name}{write.ending}")
        assert state_of(tmp_path) == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_links_are_written_through(tmp_path, write):
    (tmp_path / "elsewhere").mkdir()
    link, target = tmp_path / f"link{write.ending}", tmp_path / "elsewhere" / "file"
    link.symlink_to("elsewhere/file")
    for _ in range(2):  # to nothing, and to a file
        write(link)
        assert os.readlink(link) == "elsewhere/file"
        assert not target.is_symlink()
        assert target.stat().st_size > 100
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["file"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_modes_stay(tmp_path, write, mode):
    path = tmp_path / f"file{write.ending}"
    write(path)
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_new_files_have_the_users_mode(tmp_path, write, mask):
    before = os.umask(mask)
    try:
        write(tmp_path / f"file{write.ending}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / f"file{write.ending}").stat().st_mode) == 0o666 & ~mask


def test_a_file_under_two_names_is_changed_under_one(tmp_path, write):
    path, other = tmp_path / f"file{write.ending}", tmp_path / "other"
    write(path)
    other.hardlink_to(path)
    old = other.read_bytes()
    write(path)
    assert other.read_bytes() == old
    assert not other.samefile(path)


def test_what_fails_half_way_leaves_what_was_there(tmp_path, model, monkeypatch):
    path = tmp_path / "model.npz"
    model.save(path)
    before = state_of(tmp_path)

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(OSError, match="no space"):
        model.save(path)
    assert state_of(tmp_path) == before


def test_a_limit_of_the_system_names_the_file(capsys, tmp_path, table, monkeypatch):
    def full(_):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = run(capsys, "fit", table, *VIEWS, "--save", tmp_path / "model.npz")
    assert (code, err) == (1, f"error: {tmp_path / 'model.npz'}: File too large\n")


def test_good_outputs_are_written(capsys, tmp_path, data):
    path = tmp_path / "t.csv"
    np.savetxt(path, data.X, delimiter=",", header="U_0,U_1,V_0,V_1", comments="")
    before = path.read_bytes()
    code, _, err = run(capsys, "fit", path, *VIEWS, "--report", tmp_path / "page.html", "--save", tmp_path / "m.npz")
    assert code == 0, err
    assert path.read_bytes() == before
    assert isinstance(rc.load(tmp_path / "m.npz"), rc.ContrastiveRCA)
    assert (tmp_path / "page.html").read_text(encoding="utf-8").endswith("</html>\n")
    code, _, err = run(
        capsys, "simulate", "-n", 20, "-d", 2, "--out", tmp_path / "S.NPZ", "--truth", tmp_path / "t.json"
    )
    assert code == 0, err
    with np.load(tmp_path / "S.NPZ") as made:
        assert made["U"].shape == (20, 2)
    assert np.array(json.loads((tmp_path / "t.json").read_text())["A"]).shape == (2, 2)
    names = {"t.csv", "page.html", "m.npz", "S.NPZ", "t.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
