"""Learning a model of a component from its cumulants: pure functions, no estimators."""
