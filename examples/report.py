"""From a fit to a page for colleagues: plots, findings as plain data, and one HTML file.

python examples/report.py [folder]
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import matplotlib

matplotlib.use("Agg")

import richcomponents as rc
from richcomponents.report import Findings

folder = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
data = rc.datasets.make_contrastive(3000, d=6, S2="labs(3)", random_state=4)
model = rc.ComponentRegression(rca=rc.ContrastiveRCA(views=6)).fit(data.X, data.y)

model.rca_.plot().savefig(folder / "overview.png")  # correlations, variances, intervals, A
model.plot().figure.savefig(folder / "coefficients.png")

names = [f"marker {i}" for i in range(6)] + [f"control {i}" for i in range(6)]
found = Findings.of(model, data.X, data.y, names=names, outcome="score", truth=data.beta)
print(found.headline())
shares = sorted(zip(found.variance.shared_share, found.variance.names, strict=True), reverse=True)
print("most shared:", ", ".join(f"{name} ({share:.0%})" for share, name in shares[:3]))

page = rc.write_report(folder / "report.html", model, data.X, data.y, names=names, outcome="score", truth=data.beta)
print(f"{page} has {page.stat().st_size // 1024} KiB and loads nothing")
