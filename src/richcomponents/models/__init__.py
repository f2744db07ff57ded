"""The scikit-learn estimators: __init__ stores, fit orchestrates, functions compute."""

from richcomponents.models.contrastive import ContrastiveRCA

__all__ = ["ContrastiveRCA"]
