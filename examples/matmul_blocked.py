"""A matrix multiply in tiles: 1x1024 times 1024x1024, shifted and clipped to [0, 127].

The schedule of VTA's published tutorial, with its seven counters. `matmul_blocked.py [--json]`
"""

import json
import sys

import numpy as np
from tvm import s_tir, te, tirx

import vta_byoc as vta
import vta_byoc.schedule as vs

cfg = vta.VTAConfig.preset("sim")
B, K, SIZE, TILE = cfg.batch, cfg.block, 1024 // cfg.block, 256 // cfg.block

# What is computed, on tensors in blocks of BATCH x BLOCK and BLOCK x BLOCK.
data = te.placeholder((1, SIZE, B, K), "int8", name="data")
weight = te.placeholder((SIZE, SIZE, K, K), "int8", name="weight")
rc, rk = te.reduce_axis((0, SIZE), "rc"), te.reduce_axis((0, K), "rk")


def product(n, o, b, k):
    left, right = data[n, rc, b, rk].astype("int32"), weight[o, rc, k, rk].astype("int32")
    return te.sum(left * right, axis=[rc, rk])


acc = te.compute((1, SIZE, B, K), product, name="acc")
shifted = te.compute(acc.shape, lambda *i: acc(*i) >> tirx.const(8, "int32"), name="shifted")
floored = te.compute(acc.shape, lambda *i: tirx.Max(shifted(*i), 0), name="floored")
capped = te.compute(acc.shape, lambda *i: tirx.Min(floored(*i), 127), name="capped")
out = te.compute(acc.shape, lambda *i: capped(*i).astype("int8"), name="out")
definition = te.create_prim_func([data, weight, out])


def schedule():
    sch = s_tir.Schedule(definition)
    load = sch.cache_read("acc", 0, vs.INP)  # operands and accumulators into SRAM
    fetch = sch.cache_read("acc", 1, vs.WGT)
    sch.set_scope("acc", 0, vs.ACC)
    for name in ("shifted", "floored", "capped"):
        sch.compute_inline(name)

    n, o, b, k = sch.get_loops("out")  # tiles of 256 outputs
    outer, inner = sch.split(o, [None, TILE])
    sch.reorder(outer, n, inner, b, k)
    sch.compute_at("acc", outer, preserve_unit_loops=True)
    *spatial, reduction, lane = sch.get_loops("acc")[1:]
    part, inside = sch.split(reduction, [None, TILE])  # of 256 inputs at a time
    sch.reorder(part, inside, *spatial, lane)
    sch.compute_at(load, part)
    sch.compute_at(fetch, part)
    start = sch.decompose_reduction("acc", part)

    for block in (load, fetch, "out"):
        vs.dma_copy(sch, block)
    for block in (start, "acc_update"):
        vs.gemm(sch, block)
    vs.alu(sch, "out")
    return sch


x, w = vs.random_inputs(definition)
options = {"constants": {"weight": w}, "slots": 1, "micro_ops": "published"}
kernel = vs.kernel(schedule(), config=cfg, name="matmul", **options)
assert np.array_equal(kernel(x), vs.reference(definition, x, w))
counters = json.dumps({"counters": list(kernel.counters.values())})
print(counters if "--json" in sys.argv else vs.explain(kernel.func, cfg, definition=definition))
