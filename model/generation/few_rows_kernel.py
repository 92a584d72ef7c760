"""The machine code of `few_rows`, made by Numba at the first import and kept beside this file.

    team(multiply.address, job, threads, 0)  # GOMP_parallel: so many threads call it at once

Letters: R rows, I inputs, O outputs.
"""

from typing import Any

import numpy as np
from numba import carray, cfunc, types

_rank: Any = types.ExternalFunction("omp_get_thread_num", types.int32())
_team: Any = types.ExternalFunction("omp_get_num_threads", types.int32())


@cfunc(types.void(types.CPointer(types.voidptr)), cache=True, fastmath=True, error_model="numpy")
def multiply(job: Any) -> None:
    """This thread's part of the outputs; a job is the addresses of sizes, rows, weights, product.

    The weights are read in four places at once, a quarter of them apart: a processor fetches ahead
    for each, and so reads memory twice as fast as in one place. Each is loaded for two rows.
    """
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
