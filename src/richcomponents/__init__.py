"""Rich Component Analysis: models of one hidden component of several views of the same samples."""

from richcomponents import baselines, datasets
from richcomponents.algebra import cumulants_to_moments, moments_to_cumulants
from richcomponents.components import Component
from richcomponents.cumulants import Cumulants, cross_cumulant, cumulant, projected_cumulant
from richcomponents.errors import (
    CapacityError,
    ConstantColumnWarning,
    DataError,
    PrecisionWarning,
    SampleSizeWarning,
    SpecificationWarning,
    StateFileError,
    WeakIdentificationWarning,
)
from richcomponents.learning.ising import grid_edges
from richcomponents.learning.likelihood import fit_likelihood
from richcomponents.models import (
    ComponentGaussianMixture,
    ComponentIsing,
    ComponentLogisticRegression,
    ComponentPCA,
    ComponentRegression,
    ContrastiveRCA,
)
from richcomponents.moments import Accumulator, Moments, open_source
from richcomponents.storage import load
from richcomponents.views import as_table, join_views

__version__ = "0.1.0"

__all__ = [
    "Accumulator",
    "CapacityError",
    "Component",
    "ComponentGaussianMixture",
    "ComponentIsing",
    "ComponentLogisticRegression",
    "ComponentPCA",
    "ComponentRegression",
    "ConstantColumnWarning",
    "ContrastiveRCA",
    "Cumulants",
    "DataError",
    "Moments",
    "PrecisionWarning",
    "SampleSizeWarning",
    "SpecificationWarning",
    "StateFileError",
    "WeakIdentificationWarning",
    "as_table",
    "baselines",
    "cross_cumulant",
    "cumulant",
    "cumulants_to_moments",
    "datasets",
    "fit_likelihood",
    "grid_edges",
    "join_views",
    "load",
    "moments_to_cumulants",
    "open_source",
    "projected_cumulant",
]
