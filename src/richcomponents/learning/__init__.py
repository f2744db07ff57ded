"""Comes in: a component's cumulants, or samples. Goes out: parameters of a model of it, by one meta-algorithm and two solvers.
Pure functions, no estimators."""
