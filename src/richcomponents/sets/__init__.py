"""In: Data (moments of the columns of any number of views) and a set system. Out: a SetSolution, by way of evidence (white
coordinates, block cumulants, a sequential start), discover (which sets), and the joint fit of the model."""
