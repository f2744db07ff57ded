"""In: second moments and block cumulants of two views. Out: a PairSolution: the posterior of T, and every answer that follows."""
