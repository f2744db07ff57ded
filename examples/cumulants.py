"""Unbiased cumulants, one pass over the rows, any chunking.

python examples/cumulants.py
"""

import numpy as np

import richcomponents as rc

rng = np.random.default_rng(0)
shared = rng.exponential(size=(100_000, 3)) - 1
U = shared + rng.normal(size=(100_000, 3))
V = shared @ rng.normal(size=(3, 3)) + rng.normal(size=(100_000, 3))

# Noise that belongs to one view vanishes from the cross-cumulant; the shared part stays.
print("k3(U, U, U)[0, 0, 0] =", rc.cumulant(U, order=3)[0, 0, 0].round(2), "(the shared part's own is 2)")
print("k4(V, U, U, U) has shape", rc.cross_cumulant(V, U, U, U).shape)

# The same from a stream: only sums are kept, and the bits do not depend on the pieces.
stream = rc.Accumulator(order=4, shift=np.zeros(6))
for start in range(0, 100_000, 7_000):
    stream.update(np.hstack([U, V])[start : start + 7_000])
state = stream.moments()
print(state)
print("k4(V, V, U, U) from the state:", rc.Cumulants(state).tensor([3, 4, 5], [3, 4, 5], [0, 1, 2], [0, 1, 2]).shape)
