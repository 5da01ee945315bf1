"""A 3x3 convolution, 256 to 256 channels of 14x14, in tiles, with two virtual threads.

The schedule of VTA's published tutorial, with its seven counters. `conv2d_optimisation.py [--json]`
"""

import json
import sys

import numpy as np
from tvm import s_tir, te, tirx

import vta_byoc as vta
import vta_byoc.schedule as vs

cfg = vta.VTAConfig.preset("sim")
B, K, SIZE, THREADS = cfg.batch, cfg.block, 256 // cfg.block, 2

# What is computed, on packed tensors: (N, C/BLOCK, H, W, BATCH, BLOCK).
data = te.placeholder((1, SIZE, 14, 14, B, K), "int8", name="data")
weight = te.placeholder((SIZE, SIZE, 3, 3, K, K), "int8", name="weight")


def padded(n, c, h, w, b, k):
    inside = tirx.all(h >= 1, h < 15, w >= 1, w < 15)
    return tirx.if_then_else(inside, data[n, c, h - 1, w - 1, b, k], tirx.const(0, "int8"))


inp = te.compute((1, SIZE, 16, 16, B, K), padded, name="inp")
axes = [te.reduce_axis((0, s), n) for n, s in (("rc", SIZE), ("i", 3), ("j", 3), ("rk", K))]


def product(n, o, h, w, b, k):
    rc, i, j, rk = axes
    left, right = inp[n, rc, h + i, w + j, b, rk], weight[o, rc, i, j, k, rk]
    return te.sum(left.astype("int32") * right.astype("int32"), axis=axes)


acc = te.compute(data.shape, product, name="acc")
clip = te.compute(
    acc.shape, lambda *i: tirx.Min(tirx.Max(acc(*i) >> tirx.const(8, "int32"), 0), 127), name="clip"
)
out = te.compute(acc.shape, lambda *i: clip(*i).astype("int8"), name="out")
definition = te.create_prim_func([data, weight, out])


def schedule():
    sch = s_tir.Schedule(definition)
    sch.set_scope("inp", 0, vs.INP)  # the padding becomes padding of the LOAD
    fetch = sch.cache_read("acc", 1, vs.WGT)
    sch.set_scope("acc", 0, vs.ACC)
    sch.compute_inline("clip")

    n, o, h, w, b, k = sch.get_loops("out")  # tiles of 7 rows and 128 channels
    outer, thread, inner = sch.split(o, [None, THREADS, 128 // K])
    part, row = sch.split(h, [None, 7])
    sch.reorder(outer, thread, n, part, inner, row, w, b, k)
    sch.bind(thread, "vthread.x")  # one thread loads while the other computes
    sch.compute_at("acc", part, preserve_unit_loops=True)
    n, o, h, *rest, rc, i, j, rk = sch.get_loops("acc")[4:]
    chunk, rc = sch.split(rc, [None, 1])  # of 16 input channels at a time
    sch.reorder(chunk, n, o, h, rc, i, j, *rest, rk)
    sch.compute_at("inp", chunk)
    sch.compute_at(fetch, chunk)
    start = sch.decompose_reduction("acc", chunk)

    for block in ("inp", fetch, "out"):
        vs.dma_copy(sch, block)
    for block in (start, "acc_update"):
        vs.gemm(sch, block)
    vs.alu(sch, "out")
    return sch


x, w = vs.random_inputs(definition)
options = {"constants": {"weight": w}, "slots": 1, "micro_ops": "published"}
kernel = vs.kernel(schedule(), config=cfg, name="conv2d", **options)
assert np.array_equal(kernel(x), vs.reference(definition, x, w))
counters = json.dumps({"counters": list(kernel.counters.values())})
print(counters if "--json" in sys.argv else vs.explain(kernel.func, cfg, definition=definition))
