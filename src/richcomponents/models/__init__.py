"""In: tables, files, streams, states. Out: fitted scikit-learn estimators: __init__ stores, fit orchestrates, functions of the
other rooms compute."""

from richcomponents.models.base import ComponentLearner
from richcomponents.models.contrastive import ContrastiveRCA
from richcomponents.models.general import RCA
from richcomponents.models.glm import ComponentGLM
from richcomponents.models.ising import ComponentIsing
from richcomponents.models.latent import ComponentGaussianMixture, ComponentHMM, ComponentLDA
from richcomponents.models.likelihood import ComponentLikelihood
from richcomponents.models.logistic import ComponentLogisticRegression
from richcomponents.models.pca import ComponentPCA, subspace_distance
from richcomponents.models.regression import ComponentRegression

__all__ = [
    "RCA",
    "ComponentGLM",
    "ComponentGaussianMixture",
    "ComponentHMM",
    "ComponentIsing",
    "ComponentLDA",
    "ComponentLearner",
    "ComponentLikelihood",
    "ComponentLogisticRegression",
    "ComponentPCA",
    "ComponentRegression",
    "ContrastiveRCA",
    "subspace_distance",
]
