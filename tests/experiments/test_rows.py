"""Rows: resumable, the same whatever happens on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from richcomponents.experiments.rows import HEADER, Row, read_rows, run_jobs
from richcomponents.experiments.settings import Job


def job(repeat: int, xs: tuple[float, ...] = (1.0, 2.0)) -> Job:
    return Job("p", "case", xs, repeat, 10 + repeat, ("one", "two"))


JOBS = [job(repeat) for repeat in range(6)]


def measure(job: Job) -> list[Row]:
    """Values that need every digit."""
    return [
        Row(job.panel, job.case, x, m, job.repeat, job.seed, (job.seed + x) / 7)
        for x in job.xs[::-1]
        for m in job.methods
    ]


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
        calls.append(job.repeat)
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
    assert (tmp_path / "rows.csv").read_text() == HEADER + "\n"


def test_any_name_of_a_file_comes_back(tmp_path):
    names = ["plain", '"a" b', 'a "b"', "a, b", "two\nlines", "a\u2028b", "Ünï"]
    jobs = [Job("p", name, (1.0,), 0, 1, ("one",)) for name in names]
    rows = run_jobs(jobs, measure, tmp_path / "rows.csv")
    assert {row.case for row in rows} == set(names)
    assert read_rows(tmp_path / "rows.csv") == rows
    run_jobs(jobs, broken, tmp_path / "rows.csv")  # nothing is left to do


def test_rows_of_other_jobs_are_kept_and_values_come_back_exactly(tmp_path):
    path = tmp_path / "rows.csv"
    run_jobs(JOBS[:2], measure, path)
    rows = run_jobs(JOBS[3:5], measure, path)
    assert {row.repeat for row in rows} == {0, 1, 3, 4}
    assert read_rows(path) == rows == sorted(rows, key=lambda row: row.key)
    assert all(row.value == (row.seed + row.x) / 7 for row in rows)
