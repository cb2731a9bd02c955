"""Products of a few rows and a large matrix for each client, as a Triton program for a GPU.

A layer reads all of a client's weights for the few examples of a mini-batch, so that memory decides
how long that takes::

    y[r, n] = Σ_k a[r, k] · b[k, n]      r: example; b: a client's weights, transposed or not

What comes behind a product costs nothing before ``y`` is written, and a launch each after it: a
bias is added, negative numbers become 0, or all do where another tensor is not above 0.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def thin_product(
    a_ptr,
    b_ptr,
    bias_ptr,
    mask_ptr,
    y_ptr,
    ROWS: tl.constexpr,
    TERMS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BIASED: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    RECTIFIED: tl.constexpr,
    MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """``TRANSPOSED``: terms of ``b`` lie side by side in memory, and not columns.

    ``BIAS_STEP``: numbers from one client's bias to the next, 0 where all have the same. NaNs stay
    NaNs, as no comparison with them is true.
    """
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    r = tl.arange(0, BLOCK_R)
    k = tl.arange(0, BLOCK_K)
    a_ptr += client * ROWS * TERMS
    b_ptr += client * TERMS * COLUMNS
    row = tl.minimum(r, ROWS - 1) * TERMS
    column = n if COLUMNS % BLOCK_N == 0 else tl.minimum(n, COLUMNS - 1)
    total = tl.zeros((BLOCK_N, BLOCK_R), dtype=tl.float32)
    for start in range(0, TERMS, BLOCK_K):
        term = start + k
        if TERMS % BLOCK_K == 0:
            a = tl.load(a_ptr + row[:, None] + term[None, :])
            if TRANSPOSED:
                b = tl.load(b_ptr + (column * TERMS)[:, None] + term[None, :])
            else:
                b = tl.trans(tl.load(b_ptr + (term * COLUMNS)[:, None] + column[None, :]))
        else:
            real = term < TERMS
            a = tl.load(a_ptr + row[:, None] + term[None, :], mask=real[None, :], other=0.0)
            if TRANSPOSED:
                at = (column * TERMS)[:, None] + term[None, :]
                b = tl.load(b_ptr + at, mask=real[None, :], other=0.0)
            else:
                at = (term * COLUMNS)[:, None] + column[None, :]
                b = tl.trans(tl.load(b_ptr + at, mask=real[:, None], other=0.0))
        total = tl.dot(b, tl.trans(a), total, input_precision=PRECISION)
    y = tl.trans(total)
    if BIASED:
        y += tl.load(bias_ptr + client * BIAS_STEP + column)[None, :]
    if RECTIFIED:
        y = tl.where(y < 0.0, 0.0, y)
    at = (r * COLUMNS)[:, None] + n[None, :]
    kept = (r < ROWS)[:, None] & (n < COLUMNS)[None, :]
    if MASKED:
        positive = tl.load(mask_ptr + client * ROWS * COLUMNS + at, mask=kept, other=1.0)
        y = tl.where(positive <= 0.0, 0.0, y)
    y_ptr += client * ROWS * COLUMNS
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=kept)
