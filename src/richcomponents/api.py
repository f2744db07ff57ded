"""The public names, in one place; `richcomponents` hands them out when they are first used."""

from richcomponents import baselines, datasets, paper
from richcomponents.algebra import cumulants_to_moments, moments_to_cumulants
from richcomponents.components import Component
from richcomponents.cumulants import Cumulants, cross_cumulant, cumulant, projected_cumulant
from richcomponents.data.align import as_table, join_views
from richcomponents.effects.model import ExposureEffects
from richcomponents.errors import (
    CapacityError,
    ConstantColumnWarning,
    CountsWarning,
    DataError,
    MissingValueWarning,
    PrecisionWarning,
    SampleSizeWarning,
    SpecificationWarning,
    StateFileError,
    WeakIdentificationWarning,
)
from richcomponents.learning.ising import grid_edges
from richcomponents.learning.likelihood import fit_likelihood
from richcomponents.models import (
    RCA,
    ComponentGaussianMixture,
    ComponentGLM,
    ComponentHMM,
    ComponentIsing,
    ComponentLDA,
    ComponentLikelihood,
    ComponentLogisticRegression,
    ComponentPCA,
    ComponentRegression,
    ContrastiveRCA,
)
from richcomponents.moments import Accumulator, Moments, open_source
from richcomponents.report import write_report
from richcomponents.storage import load

__all__ = [
    "RCA",
    "Accumulator",
    "CapacityError",
    "Component",
    "ComponentGLM",
    "ComponentGaussianMixture",
    "ComponentHMM",
    "ComponentIsing",
    "ComponentLDA",
    "ComponentLikelihood",
    "ComponentLogisticRegression",
    "ComponentPCA",
    "ComponentRegression",
    "ConstantColumnWarning",
    "ContrastiveRCA",
    "CountsWarning",
    "Cumulants",
    "DataError",
    "ExposureEffects",
    "MissingValueWarning",
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
    "paper",
    "projected_cumulant",
    "write_report",
]
