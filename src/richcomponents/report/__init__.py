"""A fitted model comes in; out go findings (plain data, for machines) and one self-contained HTML page (for people)."""

from richcomponents.report.findings import Findings, Provenance
from richcomponents.report.page import render, write_report

__all__ = ["Findings", "Provenance", "render", "write_report"]
