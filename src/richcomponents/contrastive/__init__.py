"""In: Data of two views, U = S1 + S2 and V = A S2 + S3. Out: a PairSolution: A, the covariances, predictors and cumulants of
S1, S2 and S3, calibrated coefficients of outcomes, and how sure all of them are."""
