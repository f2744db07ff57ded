"""Rows: resumable, the same whatever happens on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from richcomponents import DataError
from rows import Job, Row, by_case, read_rows, run_jobs, settings_of


def job(repeat: int, xs: tuple[float, ...] = (1.0, 2.0)) -> Job:
    return {"panel": "p", "case": "case", "x": xs, "method": ("one", "two"), "repeat": repeat, "seed": 10 + repeat}


JOBS = [job(repeat) for repeat in range(6)]


def measure(job: Job) -> list[Row]:
    """Values that need every digit."""
    return [{**row, "value": (row["seed"] + row["x"]) / 7} for row in settings_of(job)[::-1]]


class Killed(BaseException):
    pass


def killed_after(count: int):
    done = []

    def measured(job: Job) -> list[Row]:
        if len(done) == count:
            raise Killed
        done.append(job)
        return measure(job)

    return measured


@pytest.fixture
def unbroken(tmp_path: Path) -> bytes:
    run_jobs(JOBS, measure, tmp_path / "unbroken.csv")
    return (tmp_path / "unbroken.csv").read_bytes()


@pytest.mark.parametrize("tear", [0, 1, 7, 25, 60])
def test_a_killed_run_continues_to_the_same_bytes(tmp_path, unbroken, tear):
    path = tmp_path / "rows.csv"
    with pytest.raises(Killed):
        run_jobs(JOBS[::-1], killed_after(3), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - tear])
    calls = []

    def counted(job: Job) -> list[Row]:
        calls.append(job["repeat"])
        return measure(job)

    run_jobs(JOBS, counted, path)
    assert path.read_bytes() == unbroken
    assert len(calls) == (3 if tear == 0 else 4)  # only the torn draw is done again


def test_a_line_broken_in_the_middle_is_done_again(tmp_path, unbroken):
    path = tmp_path / "rows.csv"
    run_jobs(JOBS, measure, path)
    lines = path.read_text().splitlines(keepends=True)
    lines[4] = "p,case,1,on\x00e,0\n"
    path.write_text("".join(lines))
    run_jobs(JOBS, measure, path)
    assert path.read_bytes() == unbroken


def test_the_number_of_processes_changes_nothing(tmp_path, unbroken):
    run_jobs(JOBS, measure, tmp_path / "two.csv", processes=2)
    assert (tmp_path / "two.csv").read_bytes() == unbroken


def broken(job: Job) -> list[Row]:
    raise ZeroDivisionError


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_names_the_draw(tmp_path, processes):
    with pytest.raises(ZeroDivisionError) as caught:
        run_jobs(JOBS[:2], broken, tmp_path / "rows.csv", processes=processes)
    assert caught.value.__notes__[-1] in {f"in {job}" for job in JOBS[:2]}
    assert (tmp_path / "rows.csv").read_text() == "panel,case,x,method,repeat,seed\n"


def test_any_name_of_a_file_comes_back(tmp_path):
    names = [
        "plain",
        '"a" b',
        'a "b"',
        "a, b",
        "two\nlines",
        "a\u2028b",
        "Ünï",
        "7",
        "null",
        '"7"',
        "NaN",
        "[1]",
        "true",
    ]
    jobs = [{**job(0), "case": name} for name in names]
    rows = run_jobs(jobs, measure, tmp_path / "rows.csv")
    assert {row["case"] for row in rows} == set(names)
    assert read_rows(tmp_path / "rows.csv") == rows
    run_jobs(jobs, broken, tmp_path / "rows.csv")  # nothing is left to do


def test_rows_of_other_jobs_are_kept_and_values_come_back_exactly(tmp_path):
    path = tmp_path / "rows.csv"
    run_jobs(JOBS[:2], measure, path)
    rows = run_jobs(JOBS[3:5], measure, path)
    assert {row["repeat"] for row in rows} == {0, 1, 3, 4}
    assert read_rows(path) == rows == sorted(rows, key=lambda row: tuple(row.values()))
    assert all(row["value"] == (row["seed"] + row["x"]) / 7 for row in rows)


def mixed(job: Job) -> list[Row]:
    """What is measured differs from job to job, and is no plain number."""
    more = {"covered": [True, None], "law": "skewed"} if "d" in job else {"errors": {"A": 0.1}}
    return [{**job, **more}]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_rows_of_different_columns_share_a_file(tmp_path, stop):
    jobs = [{"label": "a", "seed": 1}, {"label": "b", "d": 3, "seed": 1}, {"label": "a", "seed": 2}]
    whole = run_jobs(jobs, mixed, tmp_path / "whole.csv")
    run_jobs([*jobs[:stop], {"d": 4, "label": "c", "seed": 1}], mixed, tmp_path / "rows.csv")
    rows = run_jobs(jobs, mixed, tmp_path / "rows.csv")
    assert [row for row in rows if row["label"] != "c"] == whole
    assert {"label": "b", "d": 3, "seed": 1, "covered": [True, None], "law": "skewed"} in rows


def test_a_changed_setting_is_not_mixed(tmp_path):
    """Another value is another job; a file of other columns is refused and left as it is."""
    path = tmp_path / "rows.csv"
    for d in (3, 4):
        run_jobs([{"label": "a", "d": d, "seed": seed} for seed in range(2)], mixed, path)
    rows = read_rows(path)
    assert len(rows) == 4
    assert [len(held) for _, held in by_case(rows, [{"label": "a", "d": 4}, {"label": "b"}])] == [2]
    before = path.read_bytes()
    with pytest.raises(DataError, match="other settings"):
        run_jobs([{"label": "a", "d": 3, "n": 10, "seed": 0}], mixed, path)
    assert path.read_bytes() == before


def test_rows_must_be_those_of_the_job(tmp_path):
    with pytest.raises(ValueError, match="not those of its settings"):
        run_jobs(JOBS[:1], lambda job: measure(job)[1:], tmp_path / "rows.csv")


def test_an_empty_text_is_a_setting_like_others(tmp_path):
    jobs = [{"own": own, "seed": 1} for own in ("mild", "")]
    rows = run_jobs(jobs, lambda job: [{**job, "value": 1.0}], tmp_path / "rows.csv")
    assert [row["own"] for row in rows] == ["", "mild"]
