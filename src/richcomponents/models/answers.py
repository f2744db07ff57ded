"""The headline of two views, and of any number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from richcomponents.notebook import Table
from richcomponents.text import counted, listed

_SURE = {
    "strong": "Identification is strong.",
    "weak": "Identification is weak: the results lean on those of adjusting for the controls.",
    "not checked": "Nothing says how sure that is.",
}


def pair_answer(verdict: str, share: float, view: str) -> str:
    """The headline of two views; share : of the variance of the columns of the first view that is shared, on average."""
    if verdict == "nothing shared":
        return f"No part shared with the controls was found: {view} is taken as it is."
    least = f"At least {share:.0%} of the variance of {view} is shared (average over its columns)."
    if verdict == "not identified":
        return (
            f"{least} How much more cannot be told from these data: the results equal those of adjusting for the "
            "controls."
        )
    if verdict == "contradicted":
        return f"{least} A test contradicts the model: do not rely on more than adjusting for the controls."
    return f"The shared part explains {share:.0%} of {view} (average over its columns). {_SURE[verdict]}"


_ALL_SURE = {
    "strong": " All parts are well told apart.",
    "weak": " Some parts are told apart badly.",
    "contradicted": " But covariances between views contradict these sets and ranks.",
    "not identified": " How much more than that is shared cannot be told from these data.",
    "nothing shared": " Nothing shared was found.",
    "not checked": " Nothing says how sure that is.",
}


def sets_answer(verdict: str, components: Table, views: Sequence[str]) -> str:
    """The headline of any number of views; components : rows with the share of each view's variance that one carries."""

    def carried(row: Mapping[str, Any]) -> dict[str, float]:
        return {view: row[view] for view in views if np.isfinite(row[view])}

    widest = max(components, key=lambda row: len(carried(row)))
    shares = [f"{share:.0%} of {view}" for view, share in carried(widest).items()]
    return (
        f"{counted(components, 'component')} in {counted(views, 'view')}; {widest['component']} explains {listed(shares)}."
        f"{_ALL_SURE.get(verdict, '')}"
    )
