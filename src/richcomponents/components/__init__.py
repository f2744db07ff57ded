"""Comes in: cumulants of the observed columns, and which part lives where (SetSystem). Goes out: Components, hidden parts whose
cumulants are sums of Terms, and covariances that stay factors for wide tables."""

from richcomponents.components.component import Component, CumulantSource, RowSource, Term, Terms
from richcomponents.components.sets import SetSystem

__all__ = ["Component", "CumulantSource", "RowSource", "SetSystem", "Term", "Terms"]
