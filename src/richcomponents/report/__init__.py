"""A fitted model as findings (plain data, for machines) and as one self-contained HTML page (for people)."""

from richcomponents.report.findings import Findings, OutcomeTable, Provenance, gather
from richcomponents.report.page import render, write_report

__all__ = ["Findings", "OutcomeTable", "Provenance", "gather", "render", "write_report"]
