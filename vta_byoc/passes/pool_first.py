"""Maxima of windows before elementwise operators that the producer's tiles cannot take.

A function that never falls where its operand rises gives the largest value of a window for the
largest operand: `max(f(x))` is `f(max(x))`, bit for bit.  In this order the pool is fused into the
producer of `f`, which then has fewer vectors to work on.  Where `f` can be fused too, all three
share tiles, and the order is changed there (`vta_byoc.strategies.fused`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

import tvm
from tvm import relax

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import FunctionWriter, straight_bindings, substituted, users_of
from vta_byoc.ir.chains import INT8_LOW
from vta_byoc.ir.names import POOLED
from vta_byoc.partitioning.composite import RESULT_ATTR, SOURCE_ATTR, composites
from vta_byoc.partitioning.packed_forms import packed_function
from vta_byoc.partitioning.placement import placements, with_placements
from vta_byoc.partitioning.region import called_composite, computation_in
from vta_byoc.strategies.fused.consumer import FusedConsumer, check_pool, fused_plan, pools_first
from vta_byoc.strategies.te.int8_function import is_rising
from vta_byoc.strategies.te.kernel import SCHEDULE_ATTR
from vta_byoc.strategy import Computation
from vta_byoc.tuning.schedules import Schedules, chosen_for
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import ElementwiseWorkload, PoolWorkload, Workload


def with_pools_first(
    mod: tvm.IRModule,
    config: VTAConfig,
    stays: Collection[str] = (),
    schedules: Schedules | None = None,
) -> tvm.IRModule:
    """Exchange pools of maxima and the elementwise operators before them, where that is exact.

    A result that a pinned schedule computes stays, too.

    Args:
        mod: packed composites.
        config: the machine.
        stays: names of results that are not exchanged.
        schedules: overrule those that strategies choose by estimate.
    """
    if not is_on("pool_first"):
        return mod
    return _Exchanger(mod, config, frozenset(stays), schedules).run()


@dataclass(frozen=True)
class _Layer:
    """A call of a packed composite."""

    binding: relax.VarBinding
    function: relax.Function
    computation: Computation

    @property
    def result(self) -> str:
        """The name of its result."""
        return str(self.function.attrs[RESULT_ATTR])


class _Exchanger:
    def __init__(
        self,
        mod: tvm.IRModule,
        config: VTAConfig,
        named: frozenset[str],
        schedules: Schedules | None,
    ):
        self._mod, self._config, self._named, self._schedules = mod, config, named, schedules
        self._groups, self._users = composites(mod), users_of(mod["main"])
        self._layers: dict[relax.Var, _Layer] = {}
        self._builder = relax.BlockBuilder(mod)
        self._spared: dict[str, float] = {}

    def run(self) -> tvm.IRModule:
        """The module with all pairs exchanged."""
        main = self._mod["main"]
        pairs: dict[relax.Var, tuple[_Layer, _Layer]] = {}
        for binding in straight_bindings(main):
            layer = self._layer(binding)
            if layer is None:
                continue
            self._layers[binding.var] = layer
            before = self._layers.get(binding.value.args[0])
            if before is not None and self._exchanges(before, layer):
                pairs[binding.var] = (before, layer)
        if not pairs:
            return self._mod
        gone = {before.binding.var for before, _ in pairs.values()}
        writer, env = FunctionWriter(self._builder), dict[relax.Var, relax.Expr]()
        for binding in straight_bindings(main):
            if binding.var in gone:
                continue
            if binding.var in pairs:
                env[binding.var] = self._exchanged(*pairs[binding.var], writer, env)
            else:
                value = substituted(binding.value, env)
                env[binding.var] = writer.emit(value, str(binding.var.name))
        changed = writer.finish(main, substituted(main.body.body, env))
        return self._finished(changed)

    def _layer(self, binding: relax.VarBinding) -> _Layer | None:
        function = called_composite(binding, self._groups)
        if function is None:
            return None
        return _Layer(binding, function, computation_in(function, self._mod))

    def _exchanges(self, before: _Layer, pool: _Layer) -> bool:
        """Whether `pool` is to come before the elementwise operator whose result it reads."""
        work, windows = before.computation.work, pool.computation.work
        if not isinstance(work, ElementwiseWorkload) or not isinstance(windows, PoolWorkload):
            return False
        if before.computation.is_pinned or pool.computation.is_pinned:
            return False
        if self._named & {before.result, pool.result} or not pools_first(windows):
            return False
        if len(self._users.get(before.binding.var, [])) != 1 or not is_rising(work):
            return False
        producer = self._layers.get(before.binding.value.args[0])
        if producer is None or not self._takes_pool(producer, windows):
            return False
        try:
            fused_plan(FusedConsumer(work), self._config)
        except VTAError:
            return True
        return False

    def _takes_pool(self, producer: _Layer, windows: PoolWorkload) -> bool:
        """Whether the pool could be fused into what comes before both."""
        try:
            check_pool(windows)
        except VTAError:
            return False
        alone = len(self._users.get(producer.binding.var, [])) == 1
        return alone and producer.computation.strategy.fuses_pools

    def _exchanged(
        self,
        before: _Layer,
        pool: _Layer,
        writer: FunctionWriter,
        env: dict[relax.Var, relax.Expr],
    ) -> relax.Var:
        """Emit the pool on the operand, then the operator on what that leaves."""
        windows, work = pool.computation.work, before.computation.work
        assert isinstance(windows, PoolWorkload) and isinstance(work, ElementwiseWorkload)
        small = dataclasses.replace(work, height=windows.out_shape[2], width=windows.out_shape[3])
        calls: list[tuple[_Layer, Workload, str]] = [
            (pool, dataclasses.replace(windows, low=INT8_LOW), f"{pool.result}{POOLED}"),
            (before, small, pool.result),
        ]
        data = substituted(before.binding.value.args[0], env)
        for layer, changed, name in calls:
            computation = dataclasses.replace(layer.computation, work=changed, chosen=None)
            names = [name, str(layer.function.attrs[SOURCE_ATTR])]
            computation = chosen_for(self._schedules, names, computation, self._config)
            args = [data, *layer.binding.value.args[1:]]
            function = self._composite(layer.function, computation, args, name)
            data = writer.emit(relax.Call(function, args), name)
            source, config = str(layer.function.attrs[SOURCE_ATTR]), self._config
            spared = layer.computation.estimate(config) - computation.estimate(config)
            self._spared[source] = self._spared.get(source, 0.0) + spared
        return data

    def _composite(
        self,
        function: relax.Function,
        computation: Computation,
        args: list[relax.Expr],
        result: str,
    ) -> tvm.ir.GlobalVar:
        """`function` with another computation and result."""
        config, chosen = self._config, computation.chosen
        assert chosen is not None
        schedule = computation.schedule(config)
        kind = str(function.attrs["Composite"]).replace(".", "_")
        compute = computation.strategy.compute(schedule, config)
        prim = self._builder.add_func(compute, f"{kind}_compute")
        out = relax.TensorType(packed_shape(computation.work.out_shape, config), "int8")
        made = packed_function(prim, args, out, self._builder).with_attrs(dict(function.attrs))
        made = made.with_attrs({RESULT_ATTR: result, SCHEDULE_ATTR: chosen.to_text()})
        return self._builder.add_func(made, kind)

    def _finished(self, main: relax.Function) -> tvm.IRModule:
        """The module without the composites that are gone, and its record with fewer cycles."""
        result = self._builder.get()
        result.update_func(result.get_global_var("main"), main)
        for key, value in (self._mod.attrs or {}).items():
            result = result.with_attr(key, value)
        records = [
            dataclasses.replace(r, cycles=max(0, math.ceil(r.cycles - self._spared[r.name])))
            if r.name in self._spared
            else r
            for r in placements(self._mod)
        ]
        result = relax.transform.Normalize()(with_placements(result, records))
        return relax.transform.DeadCodeElimination(["main"])(result)
