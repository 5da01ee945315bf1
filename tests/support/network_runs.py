"""One ONNX network through the whole compiler, and what it must equal.

Most networks take a short way: calibration evaluates the float module in numpy, and what stays on
the host runs in numpy too, because building either with LLVM takes longer than everything else.
Some run a second time in another mode of memory scopes, or with random demands. `public` takes the
way of a user. All compile regions with `compile_region`, which hands out no program that the static
verifier flags.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import tvm
from dialect_numpy import all_values
from dialect_numpy import run as reference
from layer_runs import Run, run_module
from network_demands import Demands, legal_demands, scarce, with_demands
from network_tiles import Tiles, tiles_of
from random_graphs import Network
from tvm import relax

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.observe import Receive
from vta_byoc.ir.reference import build_reference
from vta_byoc.partition import Placement
from vta_byoc.partitioning.placement import Taken
from vta_byoc.passes.fuse_tiles import sharing_record
from vta_byoc.pipeline import DRAM_ONLY, OFF, ON, compile_module
from vta_byoc.quantization.calibration import statistics as calibrate
from vta_byoc.runtime.execute import profile, run_vm
from vta_byoc.validation.bit_exact import same_packed, values_of

TOLERANCE = 1e-4
"""Of float results, which add up in another order elsewhere."""


@dataclass
class Outcome:
    """What became of one network.

    Attributes:
        hits: entries of the partition table by how often.
        regions: how many.
        tiles: what its shared layers are.
        demands: by what came of them.
    """

    hits: Counter[str] = field(default_factory=Counter)
    regions: int = 0
    tiles: Tiles = field(default_factory=Tiles)
    demands: Counter[str] = field(default_factory=Counter)


def short(network: Network, config: VTAConfig, other: str = ON) -> Outcome:
    """Import, quantize, partition, compile; regions on the simulator, the rest in numpy.

    Everything behind quantization happens again in the scope mode ``other`` if it is not ON.
    """
    dialect, inputs = _quantized(network), network.samples(2)
    run = run_module(dialect, config, inputs, planned=False)
    wanted = results(dialect, inputs)
    assert_equal(run.outputs, wanted)
    if other != ON:
        again = run_module(dialect, config, inputs, planned=False, scopes=other)
        assert_equal(again.outputs, wanted)
    return _outcome_of(run)


def _quantized(network: Network) -> tvm.IRModule:
    mod = imported(network)
    check_import(network, mod)
    with numpy_calibration():
        return vta.quantize(mod, calibration=[network.samples(1)], **network.form)


def short_and_dram(network: Network, config: VTAConfig) -> Outcome:
    """`short`, and again with tensors in DRAM scopes only."""
    return short(network, config, DRAM_ONLY)


def short_and_off(network: Network, config: VTAConfig) -> Outcome:
    """`short`, and again without memory scopes."""
    return short(network, config, OFF)


def demanded(network: Network, config: VTAConfig) -> Outcome:
    """`short` where SRAM is scarce, and again with random legal demands; then every tensor that a
    region stores is compared too."""
    dialect, inputs, small = _quantized(network), network.samples(2), scarce(config)
    run = run_module(dialect, small, inputs, planned=False)
    values = reference(dialect, *inputs)
    assert_equal(run.outputs, _listed(values["result"]))
    record = sharing_record(run.module)
    demands = legal_demands(record, network.seed)

    def again(kept: Demands) -> Run:
        return run_module(dialect, small, inputs, planned=False, demands=kept, stored=True)

    try:
        other, count = with_demands(again, record, demands)
        assert_equal(other.outputs, _listed(values["result"]))
        for name, packed in other.stored.items():
            check = same_packed(name, "a region", packed, values_of(values, name))
            assert check.equal, str(check)
    except Exception as error:
        name = type(error).__name__
        raise AssertionError(f"{name}: {error}\nwith the demands {demands}") from error
    outcome = _outcome_of(run)
    outcome.demands = count
    return outcome


def public(network: Network, config: VTAConfig) -> Outcome:
    """The same by the public API: LLVM computes on the host, the Relax VM runs everything.

    The reference is LLVM's too: its exponential function rounds unlike numpy's."""
    mod = imported(network)
    dialect = vta.quantize(
        mod, calibration=[network.samples(1), network.samples(3)], **network.form
    )
    compiled = compile_module(dialect, config)
    machine = relax.VirtualMachine(build_reference(dialect), tvm.cpu())
    inputs = network.samples(2)
    assert_equal(profile(compiled.exe, inputs).outputs, run_vm(machine, inputs))
    return _outcome(compiled.placement, len(compiled.programs))


def imported(network: Network) -> tvm.IRModule:
    """The float module; written to a file, because files are what is imported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(network.model, str(path))
        return vta.load_model(path)


def check_import(network: Network, mod: tvm.IRModule) -> None:
    """The float module computes what onnxruntime says."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(network.model.SerializeToString(), options)
    inputs = network.samples(4)
    wanted = session.run(None, dict(zip(network.inputs, inputs, strict=True)))
    for got, want in zip(results(mod, inputs), wanted, strict=True):
        limit = TOLERANCE * float(np.abs(want).max(initial=1))
        np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=limit, err_msg="import")


def results(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ``main`` must return, in numpy."""
    return _listed(reference(mod, *inputs)["result"])


def _listed(value: Any) -> list[np.ndarray]:
    return value if isinstance(value, list) else [value]


def assert_equal(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    assert len(got) == len(want)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"output {number}")


def _outcome_of(run: Run) -> Outcome:
    found = _outcome(run.placement.values(), len(run.programs))
    found.tiles = tiles_of(run.module)
    return found


def _outcome(placement: Iterable[Placement], regions: int) -> Outcome:
    found = Outcome(regions=regions)
    taken = (p.why for p in placement if isinstance(p.why, Taken))
    found.hits.update(why.pattern for why in taken if why.pattern)
    return found


# ---------------------------------------------------------------- calibration without LLVM
@contextlib.contextmanager
def numpy_calibration() -> Iterator[None]:
    """`quantize` sees the float module computed by numpy."""
    with mock.patch.object(calibrate, "Observer", _NumpyObserver):
        yield


class _NumpyObserver:
    """`vta_byoc.ir.observe.Observer`, without compiling anything."""

    def __init__(self, mod: tvm.IRModule, tensors: Sequence[relax.Var], receive: Receive) -> None:
        self._mod, self._tensors, self._receive = mod, tensors, receive

    def run(self, arrays: Iterable[np.ndarray]) -> None:
        values = all_values(self._mod, *arrays)
        for index, tensor in enumerate(self._tensors):
            self._receive(index, values[tensor])
