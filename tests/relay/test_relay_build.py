"""Scripts of the old flow with their imports changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import relay_files
import relay_quantized
import tvm
from relay_numpy import evaluate

import vta_byoc as vta
from vta_byoc import relay
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.relay.read import read_text
from vta_byoc.relay.module import Span

CONFIG = vta.VTAConfig.preset("pynq")
FLOAT = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 16, 8, 8), float32], %w0: Tensor[(16, 16, 3, 3), float32],
          %w1: Tensor[(16, 16, 3, 3), float32]) {
  %0 = nn.conv2d(%data, %w0, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  %2 = nn.conv2d(%1, %w1, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  (%1, nn.relu(%2))
}
"""
RNG = np.random.default_rng(0)
WEIGHTS = {f"w{i}": RNG.standard_normal((16, 16, 3, 3)).astype("float32") / 9 for i in range(2)}


def image(size: int = 12) -> np.ndarray:
    return (np.random.default_rng(1).integers(-120, 120, (1, 3, size, size)) / 32).astype("float32")


class TestScripts:
    def test_a_quantized_network(self) -> None:
        text = relay_quantized.small()
        mod = relay.fromtext(text)
        lib = relay.build(mod, target="ext_dev -device=vta", config=CONFIG)
        m = relay.GraphModule(lib["default"](tvm.cpu()))
        m.set_input("data", tvm.runtime.tensor(image()))
        m.run()
        (expected,) = evaluate(read_text(text, "the text"), {"data": image()})
        np.testing.assert_array_equal(m.get_output(0).numpy(), expected)
        out = tvm.runtime.tensor(np.empty_like(expected))
        np.testing.assert_array_equal(m.get_output(0, out).numpy(), expected)
        assert m.get_num_outputs() == 1

    def test_a_float_network_with_its_parameters(self, tmp_path: Path) -> None:
        path = tmp_path / "net.params"
        path.write_bytes(relay_files.params(WEIGHTS))
        params = relay.load_param_dict(path.read_bytes())
        data = np.random.default_rng(2).standard_normal((1, 16, 8, 8)).astype("float32")
        lib = relay.build(relay.fromtext(FLOAT), params=params, config=CONFIG, calibration=[data])
        m = relay.GraphModule(lib["default"](tvm.cpu()))
        m.set_input(data=data, **params)
        m.run()
        expected = evaluate(read_text(FLOAT, "the text"), {"data": data, **WEIGHTS})
        assert m.get_num_outputs() == 2
        for number, wanted in enumerate(expected):
            apart = np.abs(m.get_output(number).numpy() - wanted)
            assert apart.max() < 0.05 * np.abs(wanted).max()


class TestGraphPack:
    def test_integer_layers_outside_stay_on_the_cpu(self) -> None:
        text = relay_quantized.small()
        mod = relay.fromtext(text)
        packed = relay.graph_pack(
            mod["main"], 1, 16, 8, start_name="nn.relu", stop_name="nn.global_avg_pool2d"
        )
        whole, part = (relay.build(each, config=CONFIG) for each in (mod, packed))
        results, macs = [], []
        for lib in (whole, part):
            profile = vta.profile(lib.exe, [image()])
            results.append(np.asarray(profile.outputs[0]))
            macs.append(sum(run.counters["gemm_counter"] for run in profile.regions))
        np.testing.assert_array_equal(results[0], results[1])
        assert 0 < macs[1] < macs[0]

    def test_float_operators_outside_stay_float(self) -> None:
        mod = relay.graph_pack(relay.fromtext(FLOAT), start_name="nn.relu", stop_name="")
        data = np.random.default_rng(2).standard_normal((1, 16, 8, 8)).astype("float32")
        lib = relay.build(mod, params=WEIGHTS, config=CONFIG, calibration=[data])
        found = vta.profile(lib.exe, [data]).outputs
        expected = evaluate(read_text(FLOAT, "the text"), {"data": data, **WEIGHTS})
        np.testing.assert_allclose(np.asarray(found[0]), expected[0], atol=1e-4)
        assert not np.allclose(np.asarray(found[1]), expected[1], atol=1e-4)

    @pytest.mark.parametrize(
        ("span", "outside"),
        [
            (Span("a", "c"), ["a1", "c1", "a2"]),
            (Span("", "c"), ["c1", "a2"]),
            (Span("a", ""), ["a1"]),
            (Span("b", "c", 1), ["a1", "b1", "c1", "a2"]),
            (Span("b", "a"), ["a1", "b1", "a2"]),
            (Span("a", "a", 0, 4), ["a1", "a2"]),
        ],
    )
    def test_both_ends_are_outside(self, span: Span, outside: list[str]) -> None:
        operators = [("a", "a1"), ("b", "b1"), ("b", "b2"), ("c", "c1"), ("a", "a2")]
        assert span.outside(operators) == outside

    def test_operators_that_are_not_there(self) -> None:
        with pytest.raises(VTAError) as caught:
            relay.build(relay.graph_pack(relay.fromtext(FLOAT)), params=WEIGHTS)
        assert str(caught.value) == (
            'graph_pack names "nn.max_pool2d", which the module does not have; its operators are '
            "nn.conv2d, nn.relu; choose one of them"
        )


class TestErrors:
    def test_of_the_executor(self) -> None:
        lib = relay.build(relay.fromtext(relay_quantized.small()), config=CONFIG)
        module = relay.GraphModule(lib)
        with pytest.raises(VTAError, match='"image" is no input; the inputs are "data"; use one'):
            module.set_input("image", image())
        with pytest.raises(VTAError, match="nothing ran yet"):
            module.get_output(0)
        with pytest.raises(VTAError, match='no array for the inputs "data"; give each with'):
            module.run()

    def test_weights_that_are_missing(self) -> None:
        with pytest.raises(VTAError, match='the Relay text has no values for 2 tensors: "w0"'):
            relay.build(relay.fromtext(FLOAT))

    def test_functions_that_are_not_there(self) -> None:
        with pytest.raises(VTAError) as caught:
            relay.fromtext(FLOAT)["other"]
        assert str(caught.value) == (
            'the module has no function "other"; it has "main"; use one of them'
        )

    def test_float_modules_need_samples(self) -> None:
        with pytest.raises(VTAError, match="calibration is missing"):
            relay.build(relay.fromtext(FLOAT), params=WEIGHTS)


def test_random_weights_serve_for_cycles() -> None:
    data = np.zeros((1, 16, 8, 8), "float32")
    lib = relay.build(relay.fromtext(FLOAT), random_params=0, calibration=[data])
    assert lib.inputs == ["data"]
