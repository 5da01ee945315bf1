"""A 3x3 convolution in NHWC with a bias under a schedule of one's own: the accumulators of a tile
stay in SRAM until bias, shift and clip are done. `nhwc_bias.py [--json]`
"""

import json
import sys

import numpy as np
from tvm import s_tir, te, tirx

import vta_byoc as vta
import vta_byoc.schedule as vs

cfg = vta.VTAConfig.preset("sim")
SIZE, CI, CO, K = 28, 64, 128, cfg.block

# What is computed. A pixel's 16 channels are one element of SRAM; weights are blocks of 16x16.
data = te.placeholder((1, SIZE, SIZE, CI), "int8", name="data")
weight = te.placeholder((3, 3, CO // K, CI // K, K, K), "int8", name="weight")
bias = te.placeholder((CO,), "int32", name="bias")


def padded(n, h, w, c):
    inside = tirx.all(h >= 1, h <= SIZE, w >= 1, w <= SIZE)
    return tirx.if_then_else(inside, data[n, h - 1, w - 1, c], tirx.const(0, "int8"))


inp = te.compute((1, SIZE + 2, SIZE + 2, CI), padded, name="inp")
axes = [te.reduce_axis((0, s), n) for n, s in (("i", 3), ("j", 3), ("rc", CI // K), ("rk", K))]


def product(n, h, w, c):
    i, j, rc, rk = axes
    left, right = inp[n, h + i, w + j, rc * K + rk], weight[i, j, c // K, rc, c % K, rk]
    return te.sum(left.astype("int32") * right.astype("int32"), axis=axes)


conv = te.compute((1, SIZE, SIZE, CO), product, name="conv")
biased = te.compute(conv.shape, lambda n, h, w, c: conv[n, h, w, c] + bias[c], name="biased")
scaled = te.compute(conv.shape, lambda *i: biased(*i) >> tirx.const(8, "int32"), name="scaled")
clip = te.compute(conv.shape, lambda *i: tirx.Max(tirx.Min(scaled(*i), 127), -128), name="clip")
out = te.compute(conv.shape, lambda *i: clip(*i).astype("int8"), name="out")
definition = te.create_prim_func([data, weight, bias, out])


def schedule():
    sch = s_tir.Schedule(definition)
    sch.set_scope("inp", 0, vs.INP)
    sch.set_scope("conv", 0, vs.ACC)  # the accumulators
    fetch, add = sch.cache_read("conv", 1, vs.WGT), sch.cache_read("biased", 1, vs.ACC)
    for name in ("biased", "scaled", "clip"):
        sch.compute_inline(name)

    n, h, w, c = sch.get_loops("out")  # a tile: 4 rows, 32 channels
    rows, h = sch.split(h, [None, 4])
    channels, c, lane = sch.split(c, [None, 2, K])
    sch.reorder(n, channels, rows, c, h, w, lane)
    sch.compute_at("conv", rows)
    h, w, c, *taps, rc, rk = sch.get_loops("conv")[3:]
    c, lane = sch.split(c, [None, K])
    sch.reorder(rc, *taps, c, h, w, lane, rk)  # the reduction's tiles outside of the tile's pixels
    for block, loop in (("inp", rc), (fetch, rc), (add, channels)):
        sch.compute_at(block, loop)
    start = sch.decompose_reduction("conv", rc)

    for block in ("inp", fetch, add, "out"):
        vs.dma_copy(sch, block)
    for block in (start, "conv_update"):
        vs.gemm(sch, block)
    vs.alu(sch, "out")
    return sch


x, w, b = vs.random_inputs(definition)
kernel = vs.kernel(schedule(), config=cfg, name="conv", constants={"weight": w, "bias": b})
assert np.array_equal(kernel(x), vs.reference(definition, x, w, b))
counters = json.dumps({"counters": list(kernel.counters.values())})
print(counters if "--json" in sys.argv else vs.explain(kernel.func, cfg, definition=definition))
