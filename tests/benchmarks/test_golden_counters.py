"""The published tutorials, lowered by this code generation: all seven counters, and the results."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conv_cases import numpy_conv, random_int8, rescale
from strict_machine import Machine

from benchmarks import golden_counters
from benchmarks._tutorials import COUNTERS, TUTORIALS, Tutorial
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, count_stream
from vta_byoc.hw.sim import simulator
from vta_byoc.strategy import pack_activation, pack_weight, unpack_activation
from vta_byoc.workload.workloads import Conv2dWorkload

CONFIG = VTAConfig()
SCALED = rescale(8, 0, bias=False)
# what each tutorial computes, as a convolution
WORK = {
    "matrix_multiply": Conv2dWorkload(1, 256, 256, 1, 1, (1, 1)),
    "matrix_multiply_opt": Conv2dWorkload(1, 1024, 1024, 1, 1, (1, 1), epilogue=SCALED),
    "convolution_opt": Conv2dWorkload(
        1, 256, 256, 14, 14, (3, 3), padding=(1, 1, 1, 1), epilogue=SCALED
    ),
}
each_tutorial = pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda t: t.name)


def sample(tutorial: Tutorial) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Packed data, packed weight and the NCHW result."""
    work = WORK[tutorial.name]
    rng = np.random.default_rng(0)
    x = random_int8(rng, work.batch, work.in_channels, work.height, work.width)
    weight = random_int8(rng, work.out_channels, work.in_channels, *work.kernel)
    expected = numpy_conv(work, x, weight)
    shapes = tutorial.shapes()
    data = pack_activation(x, CONFIG).reshape(shapes["data"])
    return data, pack_weight(weight, CONFIG).reshape(shapes["weight"]), expected


def unpacked(out: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """NCHW from a packed tensor that may lack height and width."""
    full = out if out.ndim == 6 else out[:, :, None, None]
    return unpack_activation(full, expected.shape[0], expected.shape[1])


@each_tutorial
def test_published_counters(tutorial: Tutorial) -> None:
    data, weight, expected = sample(tutorial)
    program = tutorial.program(weight)
    result = simulator.run(program, {"data": data})
    assert result.counters == COUNTERS[tutorial.name]
    assert count_stream(CONFIG, program.insns) == COUNTERS[tutorial.name]
    np.testing.assert_array_equal(unpacked(result.outputs["out"], expected), expected)


@each_tutorial
def test_published_schedules_are_safe(tutorial: Tutorial) -> None:
    """The same results where the queues run at their own pace, from undefined SRAM."""
    data, weight, expected = sample(tutorial)
    program = tutorial.program(weight)
    for order in (None, np.random.default_rng(1)):
        machine = Machine(program, {"data": data}, saturated=False)
        arena = machine.run(order)
        np.testing.assert_array_equal(unpacked(program.view(arena, "out"), expected), expected)


def test_micro_ops_of_convolution_opt() -> None:
    """Each of two threads: 3 x 3 x 14 of the GEMM, 14 of the reset, one of each ALU site."""
    tutorial = next(t for t in TUTORIALS if t.name == "convolution_opt")
    _, weight, _ = sample(tutorial)
    program = tutorial.program(weight)
    assert program.symbol("vta.uops").shape[0] <= 286
    assert COUNTERS["convolution_opt"]["uop_load_nbytes"] == 4 * 2 * (3 * 3 * 14 + 14 + 3)


def test_benchmark_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["golden_counters.py", "--json"])
    assert golden_counters.main() == 0
    report = json.loads(capsys.readouterr().out)
    assert report["name"] == "golden_counters"
    assert all(figure["ok"] for figure in report["figures"])
    names = [record["workload"] for record in report["workloads"]]
    assert names == ["matrix_multiply", "matrix_multiply_opt", "convolution_opt"]
    for record in report["workloads"]:
        assert list(record) == ["workload", "published", "ours"]
        assert set(record["published"]) == set(COUNTER_NAMES)
        assert record["published"] == record["ours"] == COUNTERS[record["workload"]]
