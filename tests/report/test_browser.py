"""The report in a real browser: its script runs, nothing fails, nothing is fetched, nothing hangs over the edge."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import warnings
from base64 import b64encode

import numpy as np
import pandas as pd
import pytest

import richcomponents as rc

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HACK = "document.documentElement.dataset.hacked = 'yes'"
NAMES = [f"<script>{HACK}</script>", f'<img src=x onerror="{HACK}">', "$gene$", "a" * 60]

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium is installed: the report was not opened in a browser"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    data = rc.datasets.make_contrastive(1500, d=4, S2="skewed", random_state=3)
    frame = pd.DataFrame(data.X, columns=[*NAMES, "v1", "v2", "v3", "v4"])
    model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=4)).fit(frame, data.y)
    path = tmp_path_factory.mktemp("report") / "page.html"
    return rc.write_report(path, model, frame, data.y, title="A report"), model


def opened(path, profile, *flags):
    """The page's elements after its script ran, and what the browser complained about."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}",
        "--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", *flags, "--dump-dom", f"file://{path}",
    ]  # fmt: skip
    environment = {**os.environ, "HOME": str(profile)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, complaints


def with_markup(path, folder, markup, text=None):
    """A copy of the page with something more at its end."""
    copy = folder / "copy.html"
    text = text or path.read_text(encoding="utf-8")
    copy.write_text(text.replace("</main>", f"{markup}</main>"), encoding="utf-8")
    return copy


def with_script(path, folder, script):
    """A copy of the page with one more script behind its own, which the policy knows."""
    known = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = path.read_text(encoding="utf-8").replace("script-src ", f"script-src 'sha256-{known}' ")
    return with_markup(path, folder, "", text.replace("</body>", f"<script>{script}</script></body>"))


@pytest.mark.parametrize("flags", [[], ["--blink-settings=preferredColorScheme=0"], ["--window-size=400,800"]])
def test_it_renders_without_a_complaint(page, tmp_path, flags):
    dom, complaints = opened(page[0], tmp_path, *flags)
    assert 'data-ready="true"' in dom
    assert complaints == []
    assert "data-hacked" not in dom


INJECTED = {
    "script": f"<script>{HACK}</script>",
    "image": f'<img src="data:," onerror="{HACK}">',
    "svg": f'<svg onload="{HACK}"></svg>',
    "details": f'<details open ontoggle="{HACK}">x</details>',
    "focus": f'<input autofocus onfocus="{HACK}">',
    "animation": f'<p style="animation: x 1ms" onanimationend="{HACK}">x</p><style>@keyframes x {{}}</style>',
    "frame": f'<iframe srcdoc="<script>parent.{HACK}</script>"></iframe>',
    "address": f'<iframe src="javascript:parent.{HACK}"></iframe>',
    "module": f'<script type="module">{HACK}</script>',
    "base": '<base href="http://example.invalid/">',
}


@pytest.mark.parametrize("markup", INJECTED.values(), ids=INJECTED)
def test_what_is_injected_does_not_run(page, tmp_path, markup):
    """Even where escaping failed, the policy of the page lets only its own two blocks work."""
    dom, complaints = opened(with_markup(page[0], tmp_path, markup), tmp_path)
    assert "data-hacked" not in dom
    assert 'data-ready="true"' in dom
    assert any("Content Security Policy" in line for line in complaints)


@pytest.mark.parametrize("kind", ["script", "image", "svg", "details", "focus", "animation", "frame", "module"])
def test_it_would_run_without_the_policy(page, tmp_path, kind):
    bare = re.sub(r"<meta http-equiv[^>]*>", "", page[0].read_text(encoding="utf-8"))
    dom, _ = opened(with_markup(page[0], tmp_path, INJECTED[kind], bare), tmp_path)
    assert "data-hacked" in dom


def test_styles_apply(page, tmp_path):
    """The policy blocks style attributes: what pictures had as such must still colour them."""
    seen = "const path = document.querySelector('figure svg path[class]'); "
    seen += "document.documentElement.dataset.fills = new Set([...document.querySelectorAll('figure svg path')]"
    seen += ".map(path => getComputedStyle(path).fill)).size; document.documentElement.dataset.width = "
    seen += "Math.round(document.querySelector('figure svg').getBoundingClientRect().width)"
    dom, complaints = opened(with_script(page[0], tmp_path, seen), tmp_path, "--window-size=1200,900")
    assert complaints == []
    assert int(re.search(r'data-fills="(\d+)"', dom).group(1)) >= 5
    assert re.search(r'data-width="598"', dom)


def test_the_marker_would_tell_of_an_error(page, tmp_path):
    broken = with_script(page[0], tmp_path, "throw new Error('seen')")
    _, complaints = opened(broken, tmp_path)
    assert any("seen" in line for line in complaints)


def test_outside_things_are_refused(page, tmp_path):
    asking = with_script(page[0], tmp_path, "fetch('http://example.invalid/x').catch(() => {})")
    _, complaints = opened(asking, tmp_path)
    assert any("Content Security Policy" in line for line in complaints)


def test_a_click_sorts(page, tmp_path):
    path, model = page
    click = "document.querySelectorAll('table.sortable')[0].querySelectorAll('.sort')[3].click()"
    dom, complaints = opened(with_script(path, tmp_path, click), tmp_path)
    assert complaints == []
    table = dom[dom.index('<table class="sortable') : dom.index("</table>")]
    body = table[table.index("<tbody>") :]
    shown = [float(row.split('data-value="')[3].split('"')[0]) for row in body.split("<tr")[1:]]
    np.testing.assert_allclose(shown, np.sort(model.coef_))


@pytest.mark.parametrize("width", [360, 420, 800, 1200])
def test_nothing_hangs_over_the_edge(page, tmp_path, width):
    assert over_the_edge(page[0], tmp_path, width) == 0


def over_the_edge(path, folder, width):
    """By how many pixels the page is wider than a frame of this width."""
    return measured(path, folder, width, "document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_names_are_not_broken_on_a_phone(long, tmp_path):
    """A name of two short words stands in two lines at most, however narrow the table is."""
    lines = "new Set([...range.getClientRects()].map((box) => box.top)).size"
    names = (
        "[...document.querySelectorAll('table.sortable td')].filter((cell) => /^column \\d+$/.test(cell.textContent))"
    )
    most = (
        f"Math.max(...{names}.map((cell) => {{ const range = document.createRange(); range.selectNodeContents(cell); "
    )
    assert 1 <= measured(long, tmp_path, 360, f"{most} return {lines}; }}))") <= 2


def measured(path, folder, width, number):
    """An integer of the page (JavaScript) in a frame of this width (a window has at least 500)."""
    with_script(path, folder, f"parent.postMessage({number}, '*')")
    frame = folder / "frame.html"
    listen = "addEventListener('message', (event) => { document.documentElement.dataset.over = event.data; })"
    frame.write_text(
        f'<!DOCTYPE html><script>{listen}</script><iframe src="copy.html" width="{width}" height="900"></iframe>'
    )
    dom, complaints = opened(frame, folder, "--window-size=1400,1000")
    assert complaints == []
    return int(re.search(r'data-over="(-?\d+)"', dom).group(1))


# ---- on paper


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A page with a table longer than a sheet, and something folded."""
    names = [f"column {i}" for i in range(60)]
    sets, ranks = [("a",), ("b",), ("c",), ("a", "b", "c")], {("a", "b", "c"): 1}
    found = rc.datasets.make_views(1000, 3, 20, sets=sets, ranks=ranks, random_state=3)
    frame = pd.DataFrame(found.X, columns=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = rc.RCA(views=found.views, sets=sets, rank=ranks).fit(frame)
    return rc.write_report(tmp_path_factory.mktemp("long") / "page.html", model, frame)


def printed(path, folder, paper):
    """Texts of the printed pages, with what stands where: [(text, words beyond the margin)]."""
    text = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text(encoding="utf-8"))
    (folder / "copy.html").write_text(text.replace("@page {", f"@page {{ size: {paper};"), encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--no-pdf-header-footer",
        "--virtual-time-budget=5000", f"--print-to-pdf={folder / 'page.pdf'}", f"file://{folder / 'copy.html'}",
    ]  # fmt: skip
    subprocess.run(command, capture_output=True, timeout=120, check=True, env={**os.environ, "HOME": str(folder)})
    boxes = subprocess.run(
        ["pdftotext", "-bbox", folder / "page.pdf", "-"], capture_output=True, text=True, check=True
    ).stdout
    sheets = []
    for sheet in boxes.split("<page ")[1:]:
        width = float(re.search(r'width="([\d.]+)"', sheet).group(1))
        words = re.findall(r'xMin="([-\d.]+)".*?xMax="([-\d.]+)".*?>(.*?)</word>', sheet)
        outside = [word for left, right, word in words if float(left) < 20 or float(right) > width - 20]
        sheets.append((" ".join(word for _, _, word in words), outside))
    return sheets


@pytest.mark.skipif(
    shutil.which("pdftotext") is None, reason="no pdftotext is installed: the printed page was not read"
)
@pytest.mark.parametrize("paper", ["A4", "letter"])
def test_the_printed_page_is_whole(long, tmp_path, paper):
    sheets = printed(long, tmp_path, paper)
    everything = " ".join(text for text, _ in sheets)
    assert [outside for _, outside in sheets if outside] == []  # nothing is cut at the edge
    for part in (
        "What tells these parts apart",
        "seen by cross-cumulants of",
        "Words used on this page",
        "A group of columns,",
    ):
        assert part in everything  # nothing is folded
    for i in range(60):  # nor kept back: the table of all columns shows 25 of them on a screen
        assert f"column {i}" in everything
    of_table = [text for text, _ in sheets if text.count("column") > 12 and "skewness" in text]
    assert len(of_table) >= 2  # and its head is there on every sheet that it runs over
    assert "search" not in everything
    assert "save as CSV" not in everything


def test_the_reader_chooses_the_colours(page, tmp_path):
    script = """
    const all = document.documentElement.dataset, paper = () => getComputedStyle(document.body).backgroundColor;
    all.before = paper(); document.getElementById("theme").click(); all.after = paper();
    """
    dom, complaints = opened(with_script(page[0], tmp_path, script), tmp_path)
    assert complaints == []
    told = dict(re.findall(r'data-(\w+)="([^"]*)"', dom[: dom.index("<head>")]))
    assert {told["before"], told["after"]} == {"rgb(255, 255, 255)", "rgb(20, 23, 27)"}


def test_one_search_for_all_tables(long, tmp_path):
    script = """
    const all = document.documentElement.dataset, input = document.getElementById("everywhere");
    input.value = "COLUMN 7"; input.dispatchEvent(new Event("input"));
    all.matches = document.getElementById("matches").textContent;
    all.seen = [...document.querySelectorAll(".searched tbody tr")].filter((row) => row.offsetParent).length;
    """
    dom, complaints = opened(with_script(long, tmp_path, script), tmp_path)
    assert complaints == []
    told = dict(re.findall(r'data-(\w+)="([^"]*)"', dom[: dom.index("<head>")]))
    assert re.fullmatch(r"\d+ rows in \d+ tables", told["matches"])
    assert int(told["seen"]) == int(told["matches"].split()[0]) > 0


def test_every_table_is_saved(page, long, tmp_path):
    for path in (page[0], long):
        text = path.read_text(encoding="utf-8")
        assert text.count("<table") == text.count('class="save"') > 2
    script = """
    const all = document.documentElement.dataset, files = [];
    URL.createObjectURL = () => "#";
    HTMLAnchorElement.prototype.click = function () { files.push(this.download); };
    for (const button of document.querySelectorAll(".save")) button.click();
    all.files = files.join(" ");
    """
    dom, complaints = opened(with_script(page[0], tmp_path, script), tmp_path)
    assert complaints == []
    files = re.search(r'data-files="([^"]*)"', dom).group(1).split()
    assert len(set(files)) == len(files)
    assert {"coefficients.csv", "variances.csv", "data.csv", "checks.csv"} <= set(files)
