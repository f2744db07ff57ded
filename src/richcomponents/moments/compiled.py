"""The compiled executor of the staircase (optional extra `fast`); same plan, same result to rounding.

Each entry is a dot product over the samples of a tile. Twelve of them at a time (four left, three
right monomials) keep their partial sums in registers; twelve left rows stay in the first-level
cache while the right rows stream past. Nothing is packed and nothing is computed twice.
"""

from __future__ import annotations

from numba import njit

_options = {"fastmath": True, "nogil": True, "cache": True, "error_model": "numpy"}


@njit(**_options)
def add_leaf(rows, shift, weights, x, left2, left3, right2, right3, orders, steps, raw):  # type: ignore[no-untyped-def]
    """Add all rows of a leaf to `raw`, in one call that does not hold the interpreter."""
    tile = x.shape[1]
    for start in range(0, rows.shape[0], tile):
        count = min(tile, rows.shape[0] - start)
        for s in range(count):
            x[0, s] = 1.0
            for i in range(1, x.shape[0]):
                x[i, s] = rows[start + s, i - 1] - shift[i - 1]
        k = min((count + 15) // 16 * 16, tile)  # whole vector steps: no scalar tail
        for s in range(count, k):  # samples that are zero in every coordinate, the constant included, add nothing
            for i in range(x.shape[0]):
                x[i, s] = 0.0
        left = x
        if orders[0] >= 2:
            _multiply(x, x, left2, k, True)
            left = left2
        if orders[0] >= 3:
            _multiply(x, left2, left3, k, True)
            left = left3
        right = x
        if orders[1] >= 2:
            _multiply(x, x, right2, k, False)
            right = right2
        if orders[1] >= 3:
            _multiply(x, right2, right3, k, False)
            right = right3
        if weights.size:  # every product has one left factor; these are rebuilt for the next tile
            for m in range(left.shape[0]):
                for s in range(count):
                    left[m, s] *= weights[start + s]
        _staircase(left, right, steps, raw, k)


@njit(**_options)
def _multiply(x, lower, upper, k, prefixes):  # type: ignore[no-untyped-def]
    """upper = x_j times the monomials of `lower` whose last index is at most j (prefixes), or whose first is at least j."""
    m = x.shape[0]
    row = 0
    for j in range(m):
        free = j + 1 if prefixes else m - j
        count = free if lower.shape[0] == m else free * (free + 1) // 2
        first = 0 if prefixes else lower.shape[0] - count
        for i in range(first, first + count):
            for s in range(k):
                upper[row, s] = x[j, s] * lower[i, s]
            row += 1


@njit(**_options)
def _staircase(left, right, steps, raw, k):  # type: ignore[no-untyped-def]
    for step in range(steps.shape[0]):
        low, high, first, begin = steps[step]
        width = right.shape[0] - first
        out = raw[begin : begin + (high - low) * width].reshape(high - low, width)
        for panel in range(low, high, 12):
            stop = min(high, panel + 12)
            _dots(left[panel:stop], right[first:], out[panel - low : stop - low], k)


@njit(**_options)
def _dots(left, right, out, k):  # type: ignore[no-untyped-def]
    """out[m, n] += sum_s left[m, s] right[n, s]."""
    rows, columns = left.shape[0], right.shape[0]
    rows4, columns3 = rows // 4 * 4, columns // 3 * 3
    for n in range(0, columns3, 3):
        r0, r1, r2 = right[n], right[n + 1], right[n + 2]
        for m in range(0, rows4, 4):
            l0, l1, l2, l3 = left[m], left[m + 1], left[m + 2], left[m + 3]
            a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = 0.0
            for s in range(k):
                x0, x1, x2 = r0[s], r1[s], r2[s]
                y = l0[s]
                a0 += y * x0
                a1 += y * x1
                a2 += y * x2
                y = l1[s]
                b0 += y * x0
                b1 += y * x1
                b2 += y * x2
                y = l2[s]
                c0 += y * x0
                c1 += y * x1
                c2 += y * x2
                y = l3[s]
                d0 += y * x0
                d1 += y * x1
                d2 += y * x2
            out[m, n] += a0
            out[m, n + 1] += a1
            out[m, n + 2] += a2
            out[m + 1, n] += b0
            out[m + 1, n + 1] += b1
            out[m + 1, n + 2] += b2
            out[m + 2, n] += c0
            out[m + 2, n + 1] += c1
            out[m + 2, n + 2] += c2
            out[m + 3, n] += d0
            out[m + 3, n + 1] += d1
            out[m + 3, n + 2] += d2
        for m in range(rows4, rows):
            a0 = a1 = a2 = 0.0
            for s in range(k):
                y = left[m, s]
                a0 += y * r0[s]
                a1 += y * r1[s]
                a2 += y * r2[s]
            out[m, n] += a0
            out[m, n + 1] += a1
            out[m, n + 2] += a2
    for n in range(columns3, columns):
        for m in range(rows):
            a0 = 0.0
            for s in range(k):
                a0 += left[m, s] * right[n, s]
            out[m, n] += a0
