"""Hidden components of several views: which part of the data is whose, and how sure we are."""

from richcomponents.components.component import Component, CumulantSource, Recipe, Term
from richcomponents.components.row_source import RowSource
from richcomponents.components.sets import SetSystem

__all__ = ["Component", "CumulantSource", "Recipe", "RowSource", "SetSystem", "Term"]
