"""The machine code of `few_rows` and `one_query`, made by Numba when first imported and kept here.

    team.run("multiply", sizes, x, weight, product)  # each thread of a team calls it for its part

A job is the addresses of sizes and tensors, all of them contiguous and fp32 unless sizes tell their
strides. Matrices are read in four places at once, a quarter of them apart: a processor fetches
ahead for each, and so reads memory twice as fast as in one place.

Letters: R rows, I inputs, O outputs; N key-value heads of all rows, G queries of each, S positions,
E head dimension.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types

FAST = {"reassoc", "contract", "nsz", "arcp"}
"""Sums in any order; but scores of -inf, which nobody sees, are what they are."""

_rank: Any = types.ExternalFunction("omp_get_thread_num", types.int32())
_team: Any = types.ExternalFunction("omp_get_num_threads", types.int32())


_part = njit(fastmath=FAST, error_model="numpy")
_kernel = cfunc(
    types.void(types.CPointer(types.voidptr)), cache=True, fastmath=FAST, error_model="numpy"
)


@_kernel
def multiply(job: Any) -> None:
    """x W' for this thread's part of the outputs; weights are loaded for two rows at once."""
    sizes: Any = carray(job[0], 3, np.int64)
    rows, outputs, inputs = sizes
    x_RI = carray(job[1], (rows, inputs), np.float32)
    weight_OI = carray(job[2], (outputs, inputs), np.float32)
    product_RO = carray(job[3], (rows, outputs), np.float32)
    first, last = outputs * _rank() // _team(), outputs * (_rank() + 1) // _team()
    quarter = (last - first) // 4
    for o in range(first, first + quarter):
        a_I, b_I = weight_OI[o], weight_OI[o + quarter]
        c_I, d_I = weight_OI[o + 2 * quarter], weight_OI[o + 3 * quarter]
        for r in range(0, rows, 2):
            s = min(r + 1, rows - 1)
            x_I, y_I = x_RI[r], x_RI[s]
            ax = bx = cx = dx = ay = by = cy = dy = np.float32(0)
            for i in range(inputs):
                ax += a_I[i] * x_I[i]
                bx += b_I[i] * x_I[i]
                cx += c_I[i] * x_I[i]
                dx += d_I[i] * x_I[i]
                ay += a_I[i] * y_I[i]
                by += b_I[i] * y_I[i]
                cy += c_I[i] * y_I[i]
                dy += d_I[i] * y_I[i]
            product_RO[r, o], product_RO[r, o + quarter] = ax, bx
            product_RO[r, o + 2 * quarter], product_RO[r, o + 3 * quarter] = cx, dx
            product_RO[s, o], product_RO[s, o + quarter] = ay, by
            product_RO[s, o + 2 * quarter], product_RO[s, o + 3 * quarter] = cy, dy
    for o in range(first + 4 * quarter, last):
        for r in range(rows):
            total = np.float32(0)
            for i in range(inputs):
                total += weight_OI[o, i] * x_RI[r, i]
            product_RO[r, o] = total


@_part
def _score(q_E: Any, k_SE: Any, scores_S: Any) -> None:
    quarter = len(k_SE) // 4
    for s in range(quarter):
        a_E, b_E = k_SE[s], k_SE[s + quarter]
        c_E, d_E = k_SE[s + 2 * quarter], k_SE[s + 3 * quarter]
        a = b = c = d = np.float32(0)
        for e in range(len(q_E)):
            a += a_E[e] * q_E[e]
            b += b_E[e] * q_E[e]
            c += c_E[e] * q_E[e]
            d += d_E[e] * q_E[e]
        scores_S[s] += a
        scores_S[s + quarter] += b
        scores_S[s + 2 * quarter] += c
        scores_S[s + 3 * quarter] += d
    for s in range(4 * quarter, len(k_SE)):
        for e in range(len(q_E)):
            scores_S[s] += k_SE[s, e] * q_E[e]


@_part
def _softmax(scores_S: Any) -> None:
    highest, total = scores_S.max(), np.float32(0)
    for s in range(len(scores_S)):
        scores_S[s] = np.exp(scores_S[s] - highest)
        total += scores_S[s]
    scores_S /= total


@_part
def _mix(shares_S: Any, v_SE: Any, mixed_E: Any) -> None:
    quarter = len(v_SE) // 4
    mixed_E[:] = 0
    for s in range(quarter):
        a_E, b_E = v_SE[s], v_SE[s + quarter]
        c_E, d_E = v_SE[s + 2 * quarter], v_SE[s + 3 * quarter]
        a, b = shares_S[s], shares_S[s + quarter]
        c, d = shares_S[s + 2 * quarter], shares_S[s + 3 * quarter]
        for e in range(len(mixed_E)):
            mixed_E[e] += a * a_E[e] + b * b_E[e] + c * c_E[e] + d * d_E[e]
    for s in range(4 * quarter, len(v_SE)):
        for e in range(len(mixed_E)):
            mixed_E[e] += shares_S[s] * v_SE[s, e]


@_kernel
def attend(job: Any) -> None:
    """softmax(q k' + bias) v for this thread's heads; `scores_NGS` holds the bias at first."""
    sizes: Any = carray(job[0], 6, np.int64)
    heads, group, keys, inner, k_stride, v_stride = sizes
    q_NGE = carray(job[1], (heads, group, inner), np.float32)
    k_NX = carray(job[2], (heads, k_stride), np.float32)
    v_NX = carray(job[3], (heads, v_stride), np.float32)
    scores_NGS = carray(job[4], (heads, group, keys), np.float32)
    mixed_NGE = carray(job[5], (heads, group, inner), np.float32)
    for n in range(heads * _rank() // _team(), heads * (_rank() + 1) // _team()):
        k_SE = k_NX[n, : keys * inner].reshape(keys, inner)
        v_SE = v_NX[n, : keys * inner].reshape(keys, inner)
        for g in range(group):
            _score(q_NGE[n, g], k_SE, scores_NGS[n, g])
            _softmax(scores_NGS[n, g])
            _mix(scores_NGS[n, g], v_SE, mixed_NGE[n, g])
