"""Whole modules through the pipeline: the device equals the integer reference, everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, island_net, residual_net
from small_models import call
from tvm import relax
from without_torch import WITHOUT_TORCH

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.errors import VTAError
from vta_byoc.partitioning.region import region_functions
from vta_byoc.pipeline import DRAM_ONLY, ON, compile_module, partition_for_vta
from vta_byoc.runtime.execute import profile, run_vm
from vta_byoc.strategy import unpack_activation
from vta_byoc.validation.bit_exact import stored_tensors

RESIDUAL_STEPS = 2 * (2 * 2 * 9 * 64) + 2 * (2 * 64) + 2 * 64
"""GEMM steps of `residual_net`: two 3x3 convolutions, and one side of the addition widened; the
other one is in the accumulators."""
PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


def equal(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("batch", [1, 3])
def test_residual_block_equals_the_reference(preset: str, batch: int) -> None:
    net = residual_net(channels=40, size=9, batch=batch)
    mod = net.module(net.result)
    compiled = compile_module(mod, VTAConfig.preset(preset))
    for inputs in (net.inputs(1), net.inputs(2)):
        equal(profile(compiled.exe, inputs).outputs, call(mod, *inputs))
    assert [p.device for p in compiled.placement] == ["vta"] * 3


@pytest.mark.parametrize("scopes", [ON, DRAM_ONLY])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_stored_tensor_equals_the_reference(preset: str, scopes: str) -> None:
    config = VTAConfig.preset(preset)
    net = residual_net(channels=24, size=7)
    a, b = (next(v for v, _ in net._bindings if v.name == n) for n in ("conv_a", "conv_b"))
    inputs = net.inputs()
    wanted = dict(
        zip(("conv_a", "conv_b", "join"), call(net.module(a, b, net.result), *inputs), strict=True)
    )
    compiled = compile_module(net.module(net.result), config, scopes=scopes)
    (run,) = profile(compiled.exe, inputs, arenas=True).regions
    assert run.arena is not None
    program = compiled.programs[run.name]
    stored = stored_tensors(program, run.arena)
    assert list(stored) == [n for n in wanted if scopes == DRAM_ONLY or n != "conv_b"]
    for name, packed in stored.items():
        got = unpack_activation(packed, *wanted[name].shape[:2])
        np.testing.assert_array_equal(got, wanted[name])


@pytest.mark.parametrize(("scopes", "widened"), [(ON, 0), (DRAM_ONLY, 2 * 64)])
def test_counters_of_a_run_equal_the_decoded_stream(scopes: str, widened: int) -> None:
    net = residual_net()
    compiled = compile_module(net.module(net.result), VTAConfig(), scopes=scopes)
    result = profile(compiled.exe, net.inputs())
    (program,) = compiled.programs.values()
    assert result.counters == program.counters()
    assert set(result.counters) == set(COUNTER_NAMES)
    assert result.counters["gemm_counter"] == RESIDUAL_STEPS + widened


def test_two_regions_with_an_island() -> None:
    net = island_net()
    mod = net.module(net.result)
    compiled = compile_module(mod, VTAConfig())
    assert list(compiled.programs) == ["region0", "region1"]
    inputs = net.inputs()
    result = profile(compiled.exe, inputs)
    equal(result.outputs, call(mod, *inputs))
    assert [r.name for r in result.regions] == ["region0", "region1"]
    for run in result.regions:
        assert run.counters == compiled.programs[run.name].counters()


def test_several_inputs_outputs_and_uses() -> None:
    net = IntegerNet(x=(1, 16, 6, 5), y=(1, 32, 3, 3))
    x, y = net.params
    a = net.conv(x, 32, stride=2, name="a")
    b = net.residual(a, y, (1, 0), name="b")
    c = net.conv(b, 16, 1, relu=False, name="c")
    net.conv(a, 16, name="unused")
    mod = net.module(b, c, a, c, x)
    inputs = net.inputs()
    result = profile(compile_module(mod, VTAConfig.preset("2x16")).exe, inputs)
    equal(result.outputs, call(mod, *inputs))


def test_module_without_vta_work_still_builds() -> None:
    net = IntegerNet(x=(1, 16, 6, 6))
    mod = net.module(net.op("permute_dims", net.params[0], axes=[0, 1, 3, 2], name="p"))
    compiled = compile_module(mod, VTAConfig())
    assert compiled.programs == {}
    equal(profile(compiled.exe, net.inputs()).outputs, call(mod, *net.inputs()))


def test_relax_pipeline_by_name() -> None:
    net = residual_net()
    mod = net.module(net.result)
    config = VTAConfig.preset("1x32")
    exe = relax.build(mod, "llvm", relax_pipeline=relax.get_pipeline("vta", config=config))
    assert profile(exe, net.inputs()).counters["gemm_counter"] > 0
    equal(profile(exe, net.inputs()).outputs, call(mod, *net.inputs()))


def test_public_steps() -> None:
    net = residual_net()
    config = vta.VTAConfig.preset("pynq")
    pmod = vta.partition_for_vta(net.module(net.result), config=config)
    exe = vta.build(pmod, config=config, device="sim")
    assert vta.profile(exe, net.inputs()).counters["gemm_counter"] == RESIDUAL_STEPS


def test_null_device_runs_dry() -> None:
    net = residual_net()
    compiled = compile_module(net.module(net.result), VTAConfig(), device="null")
    result = profile(compiled.exe, net.inputs())
    assert not result.outputs[0].any()
    assert set(result.counters.values()) == {0}


def test_unknown_device() -> None:
    net = residual_net()
    with pytest.raises(VTAError) as err:
        compile_module(net.module(net.result), VTAConfig(), device="fpga")
    assert str(err.value) == (
        "unknown device 'fpga'; known: sim, tsim, null, rtl, hls-registers, chisel-registers, "
        "board:..., pool:..., rpc:..., tracker:...; choose one"
    )


def test_device_module_holds_no_compute_of_offloaded_layers() -> None:
    """What VTA runs is not also compiled for the CPU."""
    net = residual_net()
    compiled = compile_module(net.module(net.result), VTAConfig())
    names = compiled.exe.as_text()
    assert "conv" not in names.replace("conv_a", "").replace("conv_b", "")
    pmod = partition_for_vta(net.module(net.result), VTAConfig())
    assert len(region_functions(pmod)) == 1


def test_same_module_same_programs() -> None:
    def digest() -> list[str]:
        net = residual_net()
        compiled = compile_module(net.module(net.result), VTAConfig())
        return [p.digest() for p in compiled.programs.values()]

    assert digest() == digest()


LOADER = """
import sys
import numpy as np
import tvm
from tvm import relax
vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
data = np.load(sys.argv[2])
out = vm["main"](*[tvm.runtime.tensor(data[k]) for k in sorted(data.files)])
np.save(sys.argv[3], out.numpy())
assert "vta_byoc.pipeline" not in sys.modules
"""


def test_exported_library_runs_in_a_fresh_process(tmp_path: Path) -> None:
    net = island_net()
    mod = net.module(net.result)
    inputs = net.inputs()
    exe = vta.build(partition_for_vta(mod), target=tvm.target.Target({"kind": "llvm"}))
    library, data, out = (str(tmp_path / n) for n in ("net.so", "in.npz", "out.npy"))
    exe.export_library(library)
    np.savez(data, **{f"x{i}": x for i, x in enumerate(inputs)})
    command = [sys.executable, "-c", WITHOUT_TORCH + LOADER, library, data, out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(out), call(mod, *inputs)[0])
    loaded = tvm.runtime.load_module(library)
    equal(profile(loaded, inputs).outputs, call(mod, *inputs))


def test_the_same_executable_runs_twice_with_equal_results() -> None:
    net = residual_net()
    exe = vta.build(partition_for_vta(net.module(net.result)))
    vm = relax.VirtualMachine(exe, tvm.cpu())
    equal(run_vm(vm, net.inputs()), run_vm(vm, net.inputs()))
