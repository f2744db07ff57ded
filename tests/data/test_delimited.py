"""Text tables: no row is lost or invented, whatever is in the columns nobody asked for, and both doors read alike."""

from __future__ import annotations

import csv
import gzip
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import richcomponents as rc
from richcomponents.cli import main
from richcomponents.data.sources import tables
from richcomponents.moments import Moments, open_source

N = 100


@pytest.fixture
def frame(rng):
    return pd.DataFrame(rng.normal(size=(N, 4)), columns=list("abcd")).assign(note="fine")


def _columns(path, names, **options):
    read = open_source(path, **options).read([f"x{name}" if isinstance(name, int) else name for name in names])
    if any(values.dtype.kind == "O" for values in read.values()):
        raise rc.DataError("text")
    return np.column_stack(list(read.values()))


def both(path, columns=("a", "b", "c", "d"), **options):
    """The rows of a file by the door of Python and by that of the command line, which must agree; or both errors."""
    found = []
    for door in (
        lambda: rc.open_source(path, **options).select(columns).array(),
        lambda: _columns(path, columns, **options),
    ):
        try:
            found.append(door())
        except rc.DataError as error:
            found.append(str(error))
    one, two = found
    assert isinstance(one, str) == isinstance(two, str), found
    if not isinstance(one, str):
        np.testing.assert_array_equal(one, two)
    return one


def told(capsys, *arguments):
    """Exit code and standard error of the command line."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code, capsys.readouterr().err


def broken(frame, path, note, row=10):
    """The table as text with one cell of the unused column written as it stands."""
    lines = frame.to_csv(index=False).splitlines()
    lines[row] = lines[row].replace("fine", note)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("note", ['"5 in', '5"', '5 "in"', '"5" in', '""5', '"5""'])
def test_a_stray_quote_is_an_error_that_names_the_line(frame, tmp_path, capsys, note):
    path = tmp_path / "t.csv"
    broken(frame, path, note)
    assert "t.csv, line 11: a quote" in both(path)
    code, said = told(capsys, "fit", path, "--views", "U=a,b", "--views", "V=c,d")
    assert (code, "line 11" in said) == (1, True)
    with pytest.raises(rc.DataError, match="line 11"):
        rc.ContrastiveRCA(views={"U": ["a", "b"], "V": ["c", "d"]}).fit(path)


def test_two_stray_quotes_do_not_swallow_the_rows_between_them(frame, tmp_path):
    path = tmp_path / "t.csv"
    for other in (11, 12, 60):
        broken(frame, path, '"5 in')
        lines = path.read_text().splitlines()
        lines[other] = lines[other].replace("fine", '6 in"')
        path.write_text("\n".join(lines))
        assert f"line 11: a quote is opened that is closed {other - 10} lines below" in both(path)


@pytest.mark.parametrize("note", ['"5 in, or so"', '"he said ""5"" twice"', '"two\nlines"', '""', '"a, b,\nc\r\n"'])
@pytest.mark.parametrize("size", [16, 200, 2**24])
def test_well_formed_quotes_are_read_whatever_the_block(frame, tmp_path, monkeypatch, note, size):
    monkeypatch.setattr(tables, "_BYTES", size)
    path = tmp_path / "t.csv"
    broken(frame, path, note)
    np.testing.assert_array_equal(both(path), frame[list("abcd")])


@pytest.mark.parametrize("line", ["1,2,3,4", "1,2,3,4,x,y", "1"])
def test_ragged_rows_are_errors_that_name_the_line(frame, tmp_path, line):
    path = tmp_path / "t.csv"
    text = frame.to_csv(index=False).splitlines()
    text[50] = line
    path.write_text("\n".join(text))
    assert "t.csv, line 51: " in both(path)


def test_numeric_headers_are_never_rows(rng, tmp_path, capsys):
    X, path = rng.normal(size=(N, 4)), tmp_path / "t.csv"
    for names in (["2019", "2020", "2021", "2022"], ["0", "1", "2", "3"], ["400.5", "401", "1e3", "2e3"]):
        pd.DataFrame(X, columns=names).to_csv(path, index=False)
        assert "column names, or the first row" in both(path, names)
        code, said = told(capsys, "fit", path, "--views", f"U={names[0]},{names[1]}", "--views", f"V={names[2]}")
        assert (code, "--no-header" in said) == (1, True)
        np.testing.assert_array_equal(both(path, names, header=True), X)
        assert rc.open_source(path, header=True).names == tuple(names)
    assert Moments.from_source(rc.open_source(path, header=True)).n == N
    pd.DataFrame(X).to_csv(path)  # an index column without a name, then 0, 1, 2, 3
    np.testing.assert_array_equal(both(path, list("0123"), header=True), X)
    pd.DataFrame(X).to_csv(path, index=False, header=False)
    assert "column names, or the first row" in both(path, [0, 1])
    assert Moments.from_source(rc.open_source(path, header=False)) == Moments.of(X)
    assert open_source(path, header=False).read(["x3"])["x3"].tolist() == X[:, 3].tolist()
    pd.DataFrame(X, columns=["a", "2", "3", "4"]).to_csv(path, index=False)  # one word makes it a header
    np.testing.assert_array_equal(both(path, ["a", "2"]), X[:, :2])


def test_only_the_columns_asked_for_are_converted(frame, tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    broken(frame, path, "x" * 2**20)
    real, made = tables.numbers, []
    monkeypatch.setattr(tables, "numbers", lambda cells: made.append(len(cells)) or real(cells))
    np.testing.assert_array_equal(both(path, ["a", "b"]), frame[["a", "b"]])
    assert made.count(N) == 4
    path.write_bytes(path.read_bytes().replace(b"x" * 2**20, b"caf\xe9"))  # not UTF-8, and nobody's business
    np.testing.assert_array_equal(both(path, ["a", "b"]), frame[["a", "b"]])
    with pytest.raises(rc.DataError, match=r"'note' of t.csv is not text in UTF-8"):
        open_source(path).read(["note"])


@pytest.mark.parametrize(("sign", "ending"), [(",", "csv"), (";", "csv"), ("\t", "csv"), ("\t", "tsv"), (";", "txt")])
def test_separators_marks_line_ends_and_compression(frame, tmp_path, sign, ending):
    for mark, end, packed in ((b"", "\n", False), (b"\xef\xbb\xbf", "\r\n", False), (b"\xef\xbb\xbf", "\n", True)):
        text = mark + frame.to_csv(index=False, sep=sign, lineterminator=end).encode()
        path = tmp_path / f"t.{ending}{'.gz' * packed}"
        path.write_bytes(gzip.compress(text) if packed else text)
        np.testing.assert_array_equal(both(path), frame[list("abcd")])
        path.write_bytes(gzip.compress(text.rstrip()) if packed else text.rstrip())  # without the last line end
        np.testing.assert_array_equal(both(path), frame[list("abcd")])


def test_a_separator_in_a_name(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('"a;1";b;c, cm\n1;2;3\n')
    assert both(path, ["a;1", "c, cm"]).tolist() == [[1, 3]]
    path.write_text("height, cm;weight\n1;2\n3;4\n")
    assert both(path, ["height, cm", "weight"]).tolist() == [[1, 2], [3, 4]]
    path.write_text("a,b;c\n1,2;3\n")
    assert "cannot tell what separates" in both(path, ["a"])


def test_what_else_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    for text, message in (
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b\r1,2\r", "line 1: a carriage return alone"),
        (b"a,b\n1,2\r3,4\n", "line 2: a carriage return alone"),
        (b"a,a\n1,2\n", "two columns 'a'"),
        (b"a\n1\n\n3\n", "line 3: empty"),
        ("a,b\n1,2\n".encode("utf-16"), "not text in UTF-8 (it is UTF-16): save it as CSV in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "(it is UTF-16)"),
        ("a,b\n1,2\n".encode("utf-16-be"), "(it is UTF-16)"),
        (b"PK\3\4\0\0a,b\n1,2\n", "(it is a zip archive or a workbook)"),
        ("\xe4,b\n1,2\n".encode("latin-1"), "not text in UTF-8: save"),
        (b'a,"b\n1,2\n', "line 1: a quote is opened and never closed"),
        (b'a,b\n1,"2\n3,4\n', "line 2: a quote is opened and never closed"),
    ):
        path.write_bytes(text)
        assert message in both(path, ["a"]), text


def test_what_is_packed_is_known_by_its_bytes(tmp_path):
    (tmp_path / "t.csv").write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    assert both(tmp_path / "t.csv", ["b", "a"]).tolist() == [[2, 1], [4, 3]]


def test_a_quote_that_is_never_closed_does_not_take_the_file_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_BYTES", 1000)
    monkeypatch.setattr(tables, "_LONGEST", 10_000)
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 100 + '3,"4\n' + "1,2\n" * 100_000)
    assert "line 102: a quote is opened and never closed" in both(path, ["a"])


cells = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**53), 2**53).map(str),
    st.sampled_from(["", "NA", " 1.5 ", "+2", ".5", "1.", "-0", "1e-320", "nan", "null"]),
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, texts, cells), min_size=1, max_size=30), st.sampled_from([7, 50, 2**20]))
def test_whatever_python_writes_is_read_as_python_reads_it(tmp_path_factory, rows, size):
    buffer = io.StringIO()
    csv.writer(buffer).writerows([("a", "note, or so", "b"), *rows])
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_bytes(buffer.getvalue().encode())
    gone = ("", "NA", "nan", "null")
    wanted = [[np.nan if cell in gone else float(cell) for cell in (row[0], row[2])] for row in rows]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "_BYTES", size)
        found = both(path, ["a", "b"])
    if isinstance(found, str):  # text that looks as if rows were inside it
        assert "with whole rows between" in found
        assert any("\n" in row[1] for row in rows)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("cell", ["9007199254740993", "-9007199254740993", "0009007199254740993", "9" * 5000])
def test_whole_numbers_that_would_be_rounded_are_refused(tmp_path, cell):
    (tmp_path / "t.csv").write_text(f"a,b\n1,2\n{cell},3\n0.5,4\n")
    with pytest.raises(rc.DataError, match=r"column 'a' of t.csv holds .* in line 3, an integer beyond 2\*\*53"):
        Moments.from_source(tmp_path / "t.csv", 2, n_blocks=1)
    assert Moments.from_source(tmp_path / "t.csv", 2, columns=["b"], n_blocks=1).n == 3  # a label, where it is no data


def test_large_decimal_numbers_are_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1e20,1\n9007199254740992,2\n12345678901234567890.5,3\n")
    assert Moments.from_source(tmp_path / "t.csv", 2, n_blocks=1).n == 3


@pytest.mark.parametrize("row", [0, 1])
def test_a_byte_order_mark_is_text_wherever_the_file_does_not_begin(tmp_path, row):
    path, lines = tmp_path / "t.csv", [b"1,2", b"3,4"]
    lines[row] = b"\xef\xbb\xbf" + lines[row]
    path.write_bytes(b"\n".join([b"\xef\xbb\xbfa,b", *lines]))
    with pytest.raises(rc.DataError, match=f"column 'a' holds .* in line {row + 2}"):
        open_source(path).array()
