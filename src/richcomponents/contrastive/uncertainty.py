"""From a fit to what its intervals and tests read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from richcomponents.algebra import Array
from richcomponents.contrastive.canonical import Canonical
from richcomponents.contrastive.energy import SharedEnergy, free_precision
from richcomponents.contrastive.evidence import joint_whitening
from richcomponents.contrastive.fit import SharedPart
from richcomponents.contrastive.identify import TAUS
from richcomponents.contrastive.intervals import Evidence
from richcomponents.contrastive.pair import BlockCovariances, mixture_tau

__all__ = ["interval_evidence", "plain_grams"]


def plain_grams(shared: SharedPart) -> Array:
    """The Gram matrices per order with their last slot in plain (x, y): (2, B, B, 2r, 2r).

    With w = W z the Gram in w is W G W'.
    """
    back = np.linalg.inv(joint_whitening(shared.identified.correlations))
    return np.asarray(back @ shared.grams @ back.T)


def interval_evidence(shared: SharedPart, canonical: Canonical) -> Evidence:
    """The evidence of a fit; `canonical` in the user's units."""
    known, r = shared.identified, shared.identified.rank
    if shared.leading:
        canonical = replace(
            canonical,
            x_from_u=canonical.x_from_u[:r],
            u_from_x=canonical.u_from_x[:, :r],
            y_from_v=canonical.y_from_v[:r],
            v_from_y=canonical.v_from_y[:, :r],
        )
    energy = SharedEnergy(known.correlations)
    tau = mixture_tau(np.array(TAUS), known.tau_weights)
    return Evidence(
        canonical=canonical,
        moments=BlockCovariances.of(shared.state),
        gram=np.tensordot(known.order_weights, plain_grams(shared), 1),
        t=known.t,
        precision=free_precision(energy.trend, tau),
    )
