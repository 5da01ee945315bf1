"""Relay modules to Relax: one dataflow function, closures and global functions written in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from vta_byoc.base.boundary import at
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.canonicalize.constants import folded
from vta_byoc.importers.quantized_tensor import Quantization
from vta_byoc.importers.relay import graph
from vta_byoc.importers.relay.operators.entry import Operator, Quantized, Result, Scaled, Site
from vta_byoc.importers.relay.operators.qnn import KEEPS, OF_SCALED
from vta_byoc.importers.relay.operators.table import OPERATORS
from vta_byoc.importers.relay.parameters import Tensors, bound
from vta_byoc.ir.bindings import (
    SEPARATOR,
    FunctionWriter,
    UniqueNames,
    constant_of,
    is_constant,
    sanitized,
)

Shapes = Mapping[str, tuple[int, ...]]
DEEPEST = 100
"""Calls of functions inside of functions; more are recursion."""


@dataclass(frozen=True)
class Imported:
    """A module in Relax, not yet normalized.

    Attributes:
        outputs: the names of its results.
        operators: the operators of Relay in the order of execution, each with its name in Relax.
    """

    mod: tvm.IRModule
    outputs: list[str]
    operators: list[tuple[str, str]]


def import_module(module: graph.Module, what: str, tensors: Tensors, shapes: Shapes) -> Imported:
    """The module in Relax.

    Args:
        module: all functions; `main`, or the first one, is the entry.
        what: the file as errors call it.
        tensors: the values of parameters.
        shapes: of inputs with dimensions that the file leaves open.

    Raises:
        VTAError: operators that are not read, values that are missing, an attribute or operand
            that no version has.
    """
    name = "main" if "main" in module.functions else next(iter(module.functions))
    main = module.functions[name]
    _check_operators(module, main, what)
    values = bound(module, main, tensors, what)
    return _Importer(module, values).run(main, shapes)


def _check_operators(module: graph.Module, main: graph.Function, what: str) -> None:
    """Name everything that has no converter, at once."""
    names = [call.op for call in graph.calls_within(main, module) if isinstance(call.op, str)]
    unknown = Counter(name for name in names if name not in OPERATORS)
    if unknown:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(unknown.items()))
        raise VTAError(
            f"{what} has operators that are not read: {listed}; {len(OPERATORS)} operators are "
            "(docs/relay.md); cut the model before them"
        )


class _Importer:
    """Writes one function. `values` are the tensors that are known, by `id` of the expression."""

    def __init__(self, module: graph.Module, values: Mapping[int, np.ndarray]) -> None:
        self.module = module
        self.values = values
        self.builder = relax.BlockBuilder()
        self.writer = FunctionWriter(self.builder)
        self.names = UniqueNames("_")
        self.params: list[relax.Var] = []
        self.operators: list[tuple[str, str]] = []
        self.known: dict[relax.Expr, Quantization] = {}

    def run(self, main: graph.Function, shapes: Shapes) -> Imported:
        """Write `main`."""
        env: dict[int, Result] = {}
        self._check_shapes(main, shapes)
        for param in main.params:
            env[id(param)] = self._parameter(param, shapes)
        result = _fields(self._body(main, env, 0))
        at("")
        names = [self._output(value, i) for i, value in enumerate(result)]
        value = result[0] if len(result) == 1 else relax.Tuple(result)
        source = relax.Function(self.params, value, ret_ty=relax.ObjectType())
        func = self.writer.finish(source, value).with_attr("global_symbol", "main")
        unique = UniqueNames("_")
        listed = [unique.fresh(name) for name in names]
        mod = relax.transform.Normalize()(tvm.IRModule({"main": func}))
        return Imported(mod, listed, self.operators)

    @staticmethod
    def _output(value: relax.Expr, number: int) -> str:
        is_var = isinstance(value, relax.Var)
        return str(value.name).split(SEPARATOR)[0] if is_var else f"output{number}"

    # ------------------------------------------------------------ parameters
    def _check_shapes(self, main: graph.Function, shapes: Shapes) -> None:
        inputs = [p.name for p in main.params if id(p) not in self.values]
        for name in shapes:
            if name not in inputs:
                raise VTAError(
                    f'shape given for "{name}"; the inputs of the model are {", ".join(inputs)}; '
                    "use one of these names"
                )

    def _parameter(self, param: graph.Param, shapes: Shapes) -> Result:
        """A constant where the value is known, else an input."""
        if id(param) in self.values:
            return constant_of(self.values[id(param)])
        if not isinstance(param.type, graph.TensorType):
            raise VTAError(
                f'input "{param.name}" has no tensor type; inputs are tensors; save the text with '
                "the types of its parameters"
            )
        shape = shapes.get(param.name, param.type.shape)
        if None in shape or len(shape) != len(param.type.shape):
            raise VTAError(
                f'input "{param.name}" has the type {param.type}; every dimension must be known; '
                f"give its shape (shapes= or --shape {param.name}=...)"
            )
        self.names.fresh(sanitized(param.name))
        var = relax.Var(param.name, relax.TensorType(shape, param.type.dtype))
        self.params.append(var)
        return var

    # ------------------------------------------------------------ expressions
    def _body(self, function: graph.Function, env: dict[int, Result], depth: int) -> Result:
        """The result of a function on the parameters that `env` knows."""
        if depth > DEEPEST:
            raise VTAError(
                f"functions call each other {DEEPEST} deep; recursion is not taken; unroll the "
                "module first"
            )
        for expr in graph.as_written(function.body):
            if id(expr) not in env and not isinstance(expr, graph.Function | graph.GlobalName):
                env[id(expr)] = self._expression(expr, env, depth)
        return env[id(function.body)]

    def _expression(self, expr: graph.Expr, env: dict[int, Result], depth: int) -> Result:
        if isinstance(expr, graph.Constant):
            value = self.values.get(id(expr), expr.array)
            assert value is not None, "missing constants were refused or drawn"
            return constant_of(value)
        if isinstance(expr, graph.Tuple):
            return tuple(env[id(item)] for item in expr.fields)
        if isinstance(expr, graph.Projection):
            return self._field(env[id(expr.value)], expr.index)
        if isinstance(expr, graph.Param):
            raise VTAError(
                f'the variable "%{expr.name}" is free; it must be a parameter; add it to those'
            )
        assert isinstance(expr, graph.Call)
        args = [env[id(arg)] for arg in expr.args if id(arg) in env]
        if len(args) != len(expr.args):
            raise VTAError("a function is passed as a value; only calls of functions are taken")
        if isinstance(expr.op, str):
            return self._operator(expr, expr.op, args)
        return self._called(expr.op, args, depth)

    def _field(self, value: Result, index: int) -> Result:
        if not isinstance(value, tuple) or not 0 <= index < len(value):
            count = len(value) if isinstance(value, tuple) else "no"
            raise VTAError(
                f"field {index} of a value with {count} fields is read; correct the module"
            )
        return value[index]

    def _called(
        self, op: graph.Function | graph.GlobalName, args: Sequence[Result], depth: int
    ) -> Result:
        """A function, written where it is called."""
        if isinstance(op, graph.GlobalName):
            if op.name not in self.module.functions:
                raise VTAError(f'"@{op.name}" is called and is not in the module; add it')
            op = self.module.functions[op.name]
        if len(args) != len(op.params):
            raise VTAError(
                f"a function of {len(op.params)} parameters is called with {len(args)} operands; "
                "correct the module"
            )
        inner = {id(param): arg for param, arg in zip(op.params, args, strict=True)}
        return self._body(op, inner, depth + 1)

    def _operator(self, call: graph.Call, op: str, args: Sequence[Result]) -> Result:
        name = self.names.fresh(sanitized(call.name or op.rpartition(".")[2]))
        at(f'operator "{name}" ({op})')
        self.operators.append((op, name))
        entry = OPERATORS[op]

        def where() -> str:
            return f", {self.module.place(call.start)}" if call.start >= 0 else ""

        site = Site(op, name, args, call.attrs, entry, self.writer, self.known, where)
        result = self._converted(site, entry)
        bound = self._bound(result, name)
        source = args[0] if args else None
        if op in KEEPS and isinstance(bound, relax.Var) and source in self.known:
            self.known[bound] = self.known[source]
        return bound

    def _converted(self, site: Site, entry: Operator) -> Result:
        """What a call becomes; on integers that stand for floats, what it does to the floats."""
        first = site.args[0] if site.args else None
        of_scaled = OF_SCALED.get(site.op)
        if of_scaled is not None and not isinstance(first, tuple):
            if isinstance(first, Scaled):
                return of_scaled(site, first)
            if first in self.known and site.op not in KEEPS:
                q = self.known[first]
                return of_scaled(site, Scaled(site.emit(q.dequantize(first), "float"), q))
        return entry.convert(site)

    def _bound(self, result: Result, name: str) -> Result:
        """The result in variables: the first, or only one, is called after the operator."""
        if isinstance(result, tuple):
            names = [name, *(f"{name}{SEPARATOR}{i}" for i in range(1, len(result)))]
            return tuple(self._bound(item, n) for item, n in zip(result, names, strict=True))
        if isinstance(result, Quantized):
            made = self._bound(result.integers, name)
            self.known[made] = result.quantization
            return made
        if isinstance(result, Scaled):
            floats = result.floats
            bound = floats if isinstance(floats, relax.Var) else self.writer.emit(floats, name)
            return Scaled(bound, result.quantization)
        if isinstance(result, relax.Var) or is_constant(result):
            return result
        value = self.builder.normalize(result)
        known = folded(value) if isinstance(value, Call) else None
        return self.writer.emit(value, name) if known is None else known


def _fields(result: Result) -> list[relax.Expr]:
    """The tensors of a result, of tuples in tuples too."""
    if isinstance(result, tuple):
        return [value for item in result for value in _fields(item)]
    if isinstance(result, Scaled):
        raise VTAError(
            "a result of the model is sums of a QNN operator in int32; end it with qnn.requantize "
            "or qnn.dequantize"
        )
    return [result.integers if isinstance(result, Quantized) else result]
