"""Data to try things on: an embedded table of real measurements."""

from __future__ import annotations

from richcomponents.views import Table, as_table

__all__ = ["load_biomarkers"]


def load_biomarkers() -> tuple[Table, list[int]]:
    """Ten size and shape measurements of cell nuclei in 569 tissue samples, and their variation.

    From scikit-learn's copy of the Wisconsin breast cancer data. Views: "mean" (ten measurements,
    averaged over the nuclei of a sample) and "variation" (their standard errors). Columns are
    standardised.

    Returns
    -------
    table : Table
    malignant : list of int, 1 for malignant samples
    """
    from sklearn.datasets import load_breast_cancer

    frame, diagnosis = load_breast_cancer(return_X_y=True, as_frame=True)
    chosen = frame.iloc[:, :20]
    chosen = (chosen - chosen.mean()) / chosen.std()
    views = {"mean": list(chosen.columns[:10]), "variation": list(chosen.columns[10:])}
    return as_table(chosen, views), [int(1 - label) for label in diagnosis]
