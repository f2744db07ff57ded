"""Figures and the page, from made-up rows: whatever the user's files and panels are called."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from reproduction.page import write_page
from reproduction.panels import curves_of, panel_figure
from reproduction.settings import load_settings

from rows import Row, settings_of

SETTINGS = load_settings()


def rows_of(name: str, case: str) -> list[Row]:
    panel = SETTINGS.panels["biomarkers"]
    settings = {"panel": name, "case": case, "x": panel.values, "method": panel.methods, "repeat": 0}
    return [{**row, "value": 1.0} for row in settings_of(settings)]


def test_names_of_files_are_not_mathematics():
    figure = panel_figure(SETTINGS, curves_of(rows_of("biomarkers", "price $x_{$ 1a2b")), "biomarkers")
    figure.draw_without_rendering()
    assert "price $x_{$ 1a2b" in {axis.get_title() for axis in figure.axes}


def test_names_of_panels_are_escaped(tmp_path):
    name = "x><script>alert(1)<"
    panel = replace(SETTINGS.panels["biomarkers"], name=name)
    settings = replace(SETTINGS, panels={name: panel})
    page = write_page(tmp_path / "index.html", settings, rows_of(name, "<i>mine</i>"), []).read_text()
    assert "<script>" not in page
    assert "<i>" not in page


def test_names_of_designs_side_by_side_do_not_overlap():
    panel = SETTINGS.panels["s3"]
    job = {"panel": "s3", "case": panel.cases, "x": panel.values, "method": panel.methods, "repeat": 0}
    figure = panel_figure(SETTINGS, curves_of([{**row, "value": 1.0} for row in settings_of(job)]), "s3")
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) == len(panel.cases) == 15
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
