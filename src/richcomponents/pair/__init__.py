"""In: second moments and block cumulants of two views. Out: PairSolution, the posterior of T and every answer that follows."""
