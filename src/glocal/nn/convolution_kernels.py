"""Convolutions of many clients, each with its own kernels, as Triton programs for a GPU.

One program computes a tile of one client's result, and reads pixels from where they are: no patches
are copied (*implicit* im2col)::

    y[f, p]  = Σ_q w[f, q] · x[q, p]      the output; the gradient of images is one, too
    dw[f, q] = Σ_p dy[f, p] · x[q, p]     the gradient of kernels

f: filter, p: place in the images of a mini-batch, q: channel and place in the kernel.

Of *many* channels and filters, channels lie side by side in memory: tiles of them are factors that
tensor cores multiply. With *few*, columns of images lie side by side, each thread has all filters
of a tile at some places, and multiplies in single precision.

Images come with their padding, so that nothing is asked about edges. What a tile has behind the
last place or filter is computed from the last one and not written, or multiplied by zero. Sums over
places are cut into parts, which are added up in one order: two runs agree to the bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ("examples", "in_h", "in_w", "out_h", "out_w")
"""What a program takes as it comes, so that layers of other sizes need none of their own."""

PARTS = ("clients", "parts", "of_part")


@triton.jit(do_not_specialize=SIZES)
def output_of_many(
    x_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    examples,
    in_h,
    in_w,
    out_h,
    out_w,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """The output of many channels, with these last.

    x [clients, examples, rows, columns, channels], w [clients, filters, rows, columns, channels]
    → y [clients, examples, rows, columns, filters].
    """
    client = tl.program_id(2).to(tl.int64)
    of_image = out_h * out_w
    places = examples * of_image
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    c = tl.arange(0, BLOCK_C)
    DEPTH: tl.constexpr = KH * KW * CHANNELS
    x_ptr += client * examples * in_h * in_w * CHANNELS
    w_ptr += client * FILTERS * DEPTH
    y_ptr += client * places * FILTERS
    there = tl.minimum(p, places - 1)
    place = there % of_image
    source = (there // of_image) * in_h * in_w
    source += (place // out_w) * STRIDE_H * in_w + (place % out_w) * STRIDE_W
    of_x = x_ptr + (source * CHANNELS)[:, None] + c[None, :]
    of_w = w_ptr + (tl.minimum(f, FILTERS - 1) * DEPTH)[:, None] + c[None, :]
    BLOCKS: tl.constexpr = (CHANNELS + BLOCK_C - 1) // BLOCK_C
    total = tl.zeros((BLOCK_P, BLOCK_F), dtype=tl.float32)
    for k in range(KH * KW * BLOCKS):
        tap = k // BLOCKS
        first = (k % BLOCKS) * BLOCK_C
        pixel = ((tap // KW) * DILATION_H * in_w + (tap % KW) * DILATION_W) * CHANNELS + first
        if CHANNELS % BLOCK_C == 0:
            pixels = tl.load(of_x + pixel)
            weights = tl.load(of_w + tap * CHANNELS + first)
        else:
            real = (first + c < CHANNELS)[None, :]
            pixels = tl.load(of_x + pixel, mask=real, other=0.0)
            weights = tl.load(of_w + tap * CHANNELS + first, mask=real, other=0.0)
        total = tl.dot(pixels, tl.trans(weights), total, input_precision=PRECISION)
    if HAS_BIAS:
        bias = tl.load(bias_ptr + client * FILTERS + f, mask=f < FILTERS, other=0.0)
        total += bias[None, :].to(tl.float32)
    to = (p * FILTERS)[:, None] + f[None, :]
    kept = (p < places)[:, None] & (f < FILTERS)[None, :]
    tl.store(y_ptr + to, total.to(y_ptr.dtype.element_ty), mask=kept)


@triton.jit(do_not_specialize=[*SIZES, *PARTS])
def kernels_of_many(
    x_ptr,
    dy_ptr,
    dw_ptr,
    examples,
    in_h,
    in_w,
    out_h,
    out_w,
    clients,
    parts,
    of_part,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """The gradient of kernels, of a part of the places in each part.

    x and dy as above → dw [parts, clients, filters, rows, columns, channels].
    """
    part = tl.program_id(2) % parts
    client = (tl.program_id(2) // parts).to(tl.int64)
    DEPTH: tl.constexpr = KH * KW * CHANNELS
    q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    of_image = out_h * out_w
    places = examples * of_image
    x_ptr += client * examples * in_h * in_w * CHANNELS
    dy_ptr += client * places * FILTERS
    dw_ptr += (part * clients + client) * FILTERS * DEPTH
    there = tl.where(q < DEPTH, q, DEPTH - 8 + q % 8)
    tap = there // CHANNELS
    pixel = ((tap // KW) * DILATION_H * in_w + (tap % KW) * DILATION_W) * CHANNELS
    pixel += there % CHANNELS
    # Channels come in eights; the compiler does not see it through the divisions.
    pixel = tl.multiple_of(tl.max_contiguous(pixel, 8), 8)
    filter_at = tl.where(f < FILTERS, f, FILTERS - 8 + f % 8)
    filter_at = tl.multiple_of(tl.max_contiguous(filter_at, 8), 8)
    total = tl.zeros((BLOCK_F, BLOCK_Q), dtype=tl.float32)
    last = tl.minimum(places, (part + 1) * of_part)
    for start in range(part * of_part, last, BLOCK_P):
        p = start + tl.arange(0, BLOCK_P)
        at = tl.minimum(p, last - 1)
        place = at % of_image
        source = (at // of_image) * in_h * in_w
        source += (place // out_w) * STRIDE_H * in_w + (place % out_w) * STRIDE_W
        pixels = tl.load(x_ptr + ((source * CHANNELS)[:, None] + pixel[None, :]))
        gradient = tl.load(
            dy_ptr + ((at * FILTERS)[:, None] + filter_at[None, :]),
            mask=(p < last)[:, None],
            other=0.0,
        )
        total = tl.dot(tl.trans(gradient), pixels, total, input_precision=PRECISION)
    to = (f * DEPTH)[:, None] + q[None, :]
    kept = (f < FILTERS)[:, None] & (q < DEPTH)[None, :]
    tl.store(dw_ptr + to, total.to(dw_ptr.dtype.element_ty), mask=kept)


@triton.jit(do_not_specialize=[*SIZES, "channels", "filters"])
def output_of_few(
    x_ptr,
    w_ptr,
    bias_ptr,
    y_ptr,
    examples,
    in_h,
    in_w,
    out_h,
    out_w,
    channels,
    filters,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ROOM: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """The output of few channels, with columns last.

    x [clients, examples, channels, rows, columns], w [clients, channels, rows, columns, filters and
    room] → y [clients, examples, filters, rows, columns].
    """
    client = tl.program_id(2).to(tl.int64)
    of_image = out_h * out_w
    places = examples * of_image
    image = in_h * in_w
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    there = tl.minimum(p, places - 1)
    example = there // of_image
    place = there % of_image
    source = example * channels * image
    source += (place // out_w) * STRIDE_H * in_w + (place % out_w) * STRIDE_W
    of_x = x_ptr + client * examples * channels * image + source
    of_w = w_ptr + client * channels * (KH * KW * ROOM) + f
    y_ptr += client * filters * places
    total = tl.zeros((BLOCK_F, BLOCK_P), dtype=tl.float32)
    for _ in range(channels):
        for tap in tl.static_range(KH * KW):
            pixel = (tap // KW) * DILATION_H * in_w + (tap % KW) * DILATION_W
            pixels = tl.load(of_x + pixel).to(tl.float32)
            weights = tl.load(of_w + tap * ROOM).to(tl.float32)
            total += weights[:, None] * pixels[None, :]
        of_x += image
        of_w += KH * KW * ROOM
    if HAS_BIAS:
        bias = tl.load(bias_ptr + client * filters + f, mask=f < filters, other=0.0)
        total += bias[:, None].to(tl.float32)
    to = (example * filters * of_image + place)[None, :] + f[:, None] * of_image
    kept = (f < filters)[:, None] & (p < places)[None, :]
    tl.store(y_ptr + to, total.to(y_ptr.dtype.element_ty), mask=kept)


@triton.jit(do_not_specialize=[*SIZES, *PARTS, "channels", "filters"])
def kernels_of_few(
    x_ptr,
    dy_ptr,
    dw_ptr,
    examples,
    in_h,
    in_w,
    out_h,
    out_w,
    clients,
    parts,
    of_part,
    channels,
    filters,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_P: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """The gradient of kernels: x and dy as above → dw [parts, clients, filters, channels, …].

    A part is some places of ``of_part`` examples. Each thread has one place, and adds up the
    examples; all threads' sums are added up at the end.
    """
    part = tl.program_id(2) % parts
    client = (tl.program_id(2) // parts).to(tl.int64)
    of_image = out_h * out_w
    blocks = tl.cdiv(of_image, BLOCK_P)
    depth = channels * KH * KW
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    q = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    p = (part % blocks) * BLOCK_P + tl.arange(0, BLOCK_P)
    first = (part // blocks) * of_part
    last = tl.minimum(examples, first + of_part)
    to_next_x = channels * in_h * in_w
    to_next_dy = filters * of_image
    x_ptr += (client * examples + first) * to_next_x
    dy_ptr += (client * examples + first) * to_next_dy
    dw_ptr += (part * clients + client) * filters * depth
    there = tl.minimum(q, depth - 1)
    tap = there % (KH * KW)
    pixel = (there // (KH * KW)) * in_h * in_w
    pixel += (tap // KW) * DILATION_H * in_w + (tap % KW) * DILATION_W
    place = tl.minimum(p, of_image - 1)
    source = (place // out_w) * STRIDE_H * in_w + (place % out_w) * STRIDE_W
    of_x = x_ptr + (source[None, None, :] + pixel[None, :, None])
    of_dy = dy_ptr + (place[None, None, :] + (tl.minimum(f, filters - 1) * of_image)[:, None, None])
    real = (p < of_image)[None, None, :]
    total = tl.zeros((BLOCK_F, BLOCK_Q, BLOCK_P), dtype=tl.float32)
    for _ in tl.range(first, last, loop_unroll_factor=AT_ONCE):
        pixels = tl.load(of_x)
        gradient = tl.load(of_dy, mask=real, other=0.0)
        total += gradient.to(tl.float32) * pixels.to(tl.float32)
        of_x += to_next_x
        of_dy += to_next_dy
    summed = tl.sum(total, 2)
    kept = (f < filters)[:, None] & (q < depth)[None, :]
    to = f[:, None] * depth + q[None, :]
    tl.store(dw_ptr + to, summed.to(dw_ptr.dtype.element_ty), mask=kept)
