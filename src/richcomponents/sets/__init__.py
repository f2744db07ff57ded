"""In: Data (moments of the columns of any number of views) and a set system. Out: a SetSolution, by way of evidence (white
coordinates, block cumulants), discover (which sets) and refine (a sequential start, then the joint fit of the model)."""
