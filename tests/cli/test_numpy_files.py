"""Arrays of others, given to the command line and to Python: no code in them, no bombs, no advice to unpickle."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

import richcomponents as rc
from richcomponents.cli import main


def run(capsys, *arguments):
    try:
        main(list(map(str, arguments)))
        code = 0
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def claims(shape, values=b"", kind="<f8"):
    """An .npy file whose header claims more than there is."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + values


def archive(path, members, way=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", way, compresslevel=9) as out:
        for name, content in members.items():
            out.writestr(name, content)


def long_header():
    """numpy answers this one with the advice to set allow_pickle."""
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }".ljust(20_000) + "\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text.encode() + bytes(16)


OBJECTS = npy(np.array([[{}, 1.0]] * 5, dtype=object), allow_pickle=True)
BAD = {
    "objects.npy": (OBJECTS, "holds Python objects, which are never read"),
    "opcodes.npy": (b"\x80\x04N.", "does not begin like an array"),
    "empty.npy": (b"", "does not begin like an array"),
    "header.npy": (long_header(), "does not begin like an array"),
    "huge.npy": (claims((2**40, 4)), "instead of 35184372088832"),
    "short.npy": (claims((10, 4), bytes(24)), "24 bytes of values instead of 320"),
    "long.npy": (claims((10, 4), bytes(3200)), "3200 bytes of values instead of 320"),
    "negative.npy": (claims((-1, 4), bytes(32)), "bytes of values instead of"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("packed", [False, True])
def test_bad_arrays(capsys, tmp_path, name, packed):
    content, message = BAD[name]
    path = tmp_path / (name.replace("npy", "npz") if packed else name)
    if packed:
        archive(path, {"U.npy": npy(np.zeros((5, 2))), "V.npy": content})
    else:
        path.write_bytes(content)
    code, out, err = run(capsys, "fit", path, "--views", "2")
    assert (code, out) == (1, "")
    assert message in err
    assert len(err) < 300
    assert not any(word in err.lower() for word in ("pickle", "trust", "traceback"))


@pytest.mark.parametrize("name", BAD)
def test_bad_arrays_in_python(tmp_path, name):
    path, (content, message) = tmp_path / name, BAD[name]
    path.write_bytes(content)
    with pytest.raises(rc.DataError, match=f"cannot read {name}: .*{message}") as told:
        rc.Moments.of(path)
    assert "pickle" not in str(told.value)


def test_a_bomb_is_refused_before_it_is_unpacked(capsys, tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    zeros = claims((2**20, 40), bytes(2**20 * 40 * 8))
    archive(path, {"U.npy": zeros}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size * 900 < len(zeros)
    monkeypatch.setattr(zipfile.ZipExtFile, "read", None)  # nothing of it is read
    code, out, err = run(capsys, "fit", path, "--views", "2")
    assert (code, out) == (1, "")
    assert f"would unpack to {len(zeros)} bytes" in err


def test_members_that_share_their_bytes_count_each(capsys, tmp_path):
    """One packed member under a hundred names: every one is unpacked anew."""
    path = tmp_path / "overlap.npz"
    archive(path, {"x.npy": claims((2**12, 2**8), bytes(2**23))}, zipfile.ZIP_DEFLATED)
    raw = path.read_bytes()
    start, end = raw.index(b"PK\1\2"), raw.index(b"PK\5\6")
    entry, names = raw[start:end], 100
    entries = b"".join(entry.replace(b"x.npy", f"{i:0>5}".encode()) for i in range(names))
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, names, names, len(entries), start, 0)
    path.write_bytes(raw[:start] + entries + tail)
    code, out, err = run(capsys, "fit", path, "--views", "2")
    assert (code, out) == (1, "")
    assert f"would unpack to {names * (2**23 + 128)} bytes" in err


def test_a_member_longer_than_the_directory_says(capsys, tmp_path):
    """The directory is believed, and the member is not read beyond it."""
    path = tmp_path / "lying.npz"
    values = np.random.default_rng(0).normal(size=(1000, 4))
    archive(path, {"U.npy": npy(values)}, zipfile.ZIP_DEFLATED)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\1\2") + 24
    assert struct.unpack_from("<I", raw, at)[0] == len(npy(values))
    struct.pack_into("<I", raw, at, 200)
    path.write_bytes(raw)
    code, out, err = run(capsys, "fit", path, "--views", "2")
    assert (code, out) == (1, "")
    assert "cannot read lying.npz" in err


def test_packed_tables_are_read_as_before(capsys, tmp_path):
    data = rc.datasets.make_contrastive(400, d=3, S2="skewed", random_state=0)
    sparse = np.where(data.U > 1.5, np.round(data.U), 0.0)
    found = {}
    for name, save in (("packed", np.savez_compressed), ("plain", np.savez)):
        save(tmp_path / f"{name}.npz", U=np.asfortranarray(sparse), V=data.V.astype(np.float32), y=data.y > 0)
        code, out, err = run(capsys, "fit", tmp_path / f"{name}.npz", "--target", "y", "--json")
        assert code == 0, err
        found[name] = out[: out.index('"provenance"')]
    assert found["packed"] == found["plain"]
