"""Tuning logs and `vta-byoc tune`: read, extended, refused by key, compiled with."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from cli_runs import cli, quantize_once, refused, small_model
from schedule_cases import SIM, digests
from small_models import Net
from without_torch import WITHOUT_TORCH

from vta_byoc import load_model, quantize
from vta_byoc.base.rewrites import without
from vta_byoc.cli import commands
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import output_names
from vta_byoc.pipeline import Compiled, compile_module, partition_for_vta
from vta_byoc.runtime.execute import profile
from vta_byoc.strategies.te.kernel import LOG
from vta_byoc.tune import candidates, tunable_layers, tune, tune_layer
from vta_byoc.tuning.log import Entry, machine_of, read_log, update_log
from vta_byoc.tuning.schedule import layer_steps, schedules_of
from vta_byoc.tuning.schedules import Schedules
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

AGAIN = "run `vta-byoc tune MODEL -o FILE` with this version and machine and a new FILE"
Edit = Callable[[dict[str, Any]], None]


def strategies_model(path: Path) -> Path:
    """Layers of five strategies, one behind the other."""
    net = Net(data=(1, 16, 12, 12))
    value = net.node("Relu", net.conv("data", 16, 32, name="plain"))
    value = net.conv(value, 32, 32, name="single", group=32)
    window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    value = net.node("AveragePool", value, count_include_pad=1, **window)
    weight = net.normal(32, 16, 4, 4, scale=0.05)
    value = net.node("ConvTranspose", value, weight, strides=[2, 2], pads=[1] * 4, name="up")
    other = net.conv("data", 16, 16, k=1, name="side")
    onnx.save(net.model(net.node("Relu", net.node("Add", value, other, name="sum"))), path)
    return path


@pytest.fixture(scope="module")
def qmod(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    model = strategies_model(tmp_path_factory.mktemp("model") / "strategies.onnx")
    return noisy(model, (1, 16, 12, 12))


def noisy(model: Path, shape: tuple[int, ...]) -> tvm.IRModule:
    """The model quantized with noise."""
    samples = np.random.default_rng(0).standard_normal((2, *shape)).astype("float32")
    return quantize(load_model(model), calibration=[*samples], config=SIM)


def exact(qmod: tvm.IRModule, schedules: Schedules | None) -> Compiled:
    compiled = compile_module(qmod, SIM, schedules=schedules)
    inputs = [np.random.default_rng(0).standard_normal((1, 16, 12, 12)).astype("float32")]
    run = profile(compiled.exe, inputs, arenas=True)
    reference = reference_runner(qmod, compiled.programs)(inputs)
    checks = compare_outputs(output_names(qmod), run.outputs, reference)
    checks += compare_stored(run, compiled.programs, reference)
    assert checks and all(check.equal for check in checks), [str(c) for c in checks if not c.equal]
    return compiled


def test_a_log_of_every_strategy_changes_the_program_and_no_bit(
    qmod: tvm.IRModule, tmp_path: Path
) -> None:
    layers, left = tunable_layers(partition_for_vta(qmod, SIM), SIM)
    assert not left
    kinds = {layer.schedule.strategy for layer in layers}
    assert {"conv2d", "conv2d_transpose", "pool"} <= kinds
    assert any(layer.schedule.fused for layer in layers)
    entries = []
    for layer in layers:
        schedule = layer.schedule
        for number, kernels in enumerate(candidates(schedule, SIM, 4)):
            schedule = schedule.with_kernel(number, kernels[-1])
        entries.append(Entry(schedule, machine_of(SIM)))
    update_log(tmp_path / "net.jsonl", entries)
    schedules = Schedules.read(tmp_path / "net.jsonl")
    changed, default = exact(qmod, schedules), exact(qmod, None)
    assert digests(changed) != digests(default)
    assert [p.device for p in changed.placement] == [p.device for p in default.placement]
    assert changed.sharing[0].scope == default.sharing[0].scope


def renewed(value: list[Any]) -> list[Any]:
    """A list after a journey between processes."""
    found: list[Any] = pickle.loads(pickle.dumps(value))
    return found


def test_tuned_layers_are_no_slower_and_the_same_every_time(
    qmod: tvm.IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, _ = tunable_layers(partition_for_vta(qmod, SIM), SIM)
    layer = next(layer for layer in layers if layer.schedule.strategy == "pool")
    found = [tune_layer(layer, SIM, 3) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].cycles <= found[0].default_cycles and 1 <= found[0].timed <= 4
    layers = [layer, dataclasses.replace(layer, names=("twin",))]
    with without(["skip_padding"]):
        here = list(tune(layers, SIM, 1))
        # What a worker gets and sends back has been pickled; workers have no switches of their own.
        jobs: list[Any] = []
        monkeypatch.setattr(
            "vta_byoc.tune.run_in_order",
            lambda work, given, *_where: jobs.append(work) or map(work, renewed(given)),
        )
        there = list(tune(layers, SIM, 1, workers=2))
    assert here == renewed(there) and len(jobs) == 1
    again = tune_layer(layer, SIM, 0, known=found[0].schedule)
    assert again.cycles == found[0].cycles


def test_calls_with_weights_in_common_keep_their_own_tile(tmp_path: Path) -> None:
    net = Net(x=[1, 32, 8, 8])
    weight, bias, value = net.normal(32, 32, 3, 3, scale=0.1), net.normal(32, scale=0.1), "x"
    for _ in range(3):
        value = net.node("Relu", net.node("Conv", value, weight, bias, pads=[1] * 4))
    onnx.save(net.model(value), tmp_path / "calls.onnx")
    qmod = noisy(tmp_path / "calls.onnx", (1, 32, 8, 8))
    mod = partition_for_vta(qmod, SIM)
    layers, left = tunable_layers(mod, SIM)
    assert not layers and len(left) == 3
    schedules = schedules_of(mod, SIM)
    entries = [
        Entry(schedule.changed(oh=4), machine_of(SIM))
        for schedule in {s.key: s for s in schedules.values()}.values()
    ]
    update_log(tmp_path / "calls.jsonl", entries)
    log = Schedules.read(tmp_path / "calls.jsonl")
    before, after = (compile_module(qmod, SIM, "null", schedules=s) for s in (None, log))
    assert digests(before) == digests(after)


# ---------------------------------------------------------------- the command
@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(commands, "quantize", quantize_once)
    return small_model(tmp_path / "small.onnx")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log that a command writes for the model."""
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "quantize", quantize_once)
        given = small_model(folder / "small.onnx")
        result = cli("tune", given, "-o", folder / "log.jsonl", "--candidates", "1")
    assert result.exit_code == 0, result.output
    return (folder / "log.jsonl").read_bytes()


@pytest.fixture
def log(tuned: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(tuned)
    return path


def test_the_table_and_the_log(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    result = cli("tune", model, "-o", path, "--candidates", "2")
    lines = result.stdout.splitlines()
    assert lines[0].split("  ")[0] == "layer" and lines[-1].startswith(f"{path} written")
    assert [line.split()[0] for line in lines[2:4]] == ["first", "second+join"]
    assert lines[4].startswith("all, each alone")
    assert [entry.schedule.strategy for entry in read_log(path)] == ["conv2d", "conv2d"]
    before = path.read_bytes()
    found = json.loads(cli("tune", model, "-o", path, "--candidates", "2", "--json").stdout)
    assert path.read_bytes() == before
    assert found["tuned_cycles"] <= found["default_cycles"]
    assert [layer["layers"] for layer in found["layers"]] == [["first"], ["second+join"]]
    layers = [layer["tuned"]["dram_bytes"] for layer in found["layers"]]
    assert found["tuned_dram_bytes"] == sum(layers) > 0


def test_the_objective_of_the_command(model: Path, tmp_path: Path) -> None:
    def tuned(*options: object) -> Any:
        args = ("-o", tmp_path / "log.jsonl", "--candidates", "6", "--json", *options)
        (tmp_path / "log.jsonl").unlink(missing_ok=True)
        return json.loads(cli("tune", model, *args).stdout)

    fastest, leanest = tuned(), tuned("--objective", "dram-bytes")
    assert leanest["tuned_dram_bytes"] <= leanest["default_dram_bytes"]
    assert leanest["tuned_dram_bytes"] <= fastest["tuned_dram_bytes"]
    assert fastest["tuned_cycles"] <= leanest["tuned_cycles"]
    near = tuned("--tolerance", "5")
    assert near["tuned_cycles"] <= 1.05 * fastest["tuned_cycles"]
    assert near["tuned_dram_bytes"] <= fastest["tuned_dram_bytes"]
    result = cli("tune", model, "-o", tmp_path / "log.jsonl", "--objective", "energy")
    assert result.exit_code == 2
    assert "'energy' is not one of 'cycles', 'dram-bytes', 'both'" in result.stderr


def test_another_process_compiles_with_it(model: Path, log: Path) -> None:
    code = (
        "import sys; from vta_byoc.tuning.schedules import Schedules; "
        "from vta_byoc.hw.config import VTAConfig; "
        "s = Schedules.read(sys.argv[1]); s.check(VTAConfig()); "
        "print(*(e.schedule.text for e in s.entries), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code, str(log)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [entry.schedule.text for entry in read_log(log)]
    result = cli("run", model, "--schedules", log, "--check")
    assert result.exit_code == 0 and "bit-exact" in result.stdout


def test_an_extended_log_keeps_its_lines(log: Path) -> None:
    old = log.read_text().splitlines()
    first, second = read_log(log)
    named = Entry(first.schedule, first.machine, layer="mine", simulated=None)
    update_log(log, [named])
    assert log.read_text().splitlines()[:2] == old
    assert read_log(log)[2] == named
    slower = Entry(second.schedule, second.machine, simulated=1)
    update_log(log, [slower])
    assert [entry.simulated for entry in read_log(log)] == [first.simulated, 1, None]


def edit(log: Path, change: Edit, number: int = 0) -> None:
    lines = log.read_text().splitlines()
    value = json.loads(lines[number])
    change(value)
    lines[number] = json.dumps(value)
    log.write_text("".join(f"{line}\n" for line in lines))


REFUSED: dict[str, tuple[Edit, str]] = {
    "machine": (
        lambda v: v["machine"].update(LOG_INP_BUFF_SIZE=14),
        "line 1 is of another machine: LOG_INP_BUFF_SIZE is 14 there and 15 here (1x16); " + AGAIN,
    ),
    "format": (
        lambda v: v.update(format=9),
        'line 1 is of another version: "format" is 9 there and 1 here; ' + AGAIN,
    ),
    "tile spaces": (
        lambda v: v.update(tile_spaces=0),
        'line 1 is of another version: "tile_spaces" is 0 there and 1 here; ' + AGAIN,
    ),
    "no format": (
        lambda v: v.pop("format"),
        'line 1 is damaged: it holds no "format"; a line is what `vta-byoc tune` writes; remove '
        "the line",
    ),
    "no kernels": (
        lambda v: v.pop("kernels"),
        "line 1 is damaged: it holds not the fields of a schedule (\"KeyError: 'kernels'\"); a "
        "line is what `vta-byoc tune` writes; remove the line",
    ),
    "illegal": (
        lambda v: v["kernels"][0]["tile"].update(oh=5),
        "line 1 has oh=5; the sizes of oh are 1, 2, 3, 4, 8; choose one",
    ),
    "unknown layer": (
        lambda v: v.update(layer="third"),
        'line 1 (layer "third"): there is no such layer on VTA; layers are first, join, '
        "second+join; name one as `vta-byoc tune` lists them",
    ),
    "layer of another shape": (
        lambda v: (v.update(layer="first"), v["workload"].update(height=9)),  # type: ignore[func-returns-value]
        'line 1 (layer "first") is of another layer: height 9, not 8 as layer "first" has; take '
        "the schedule of this layer, as `vta-byoc tune` writes it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_entry_that_is_refused(model: Path, log: Path, case: str) -> None:
    change, text = REFUSED[case]
    edit(log, change)
    assert refused("place", model, "--schedules", log) == f'tuning log "{log}", {text}'


def test_a_log_of_another_network(model: Path, log: Path) -> None:
    for number in (0, 1):
        edit(log, lambda v: v["workload"].update(height=9), number)
    assert refused("place", model, "--schedules", log) == (
        f'tuning log "{log}": none of its 2 schedules is of a layer here; line 1 has height 9, not '
        "8 as conv2d 1x16x8x8 to 1x16x8x8 has; run `vta-byoc tune` for this model"
    )


def test_files_that_are_no_logs(model: Path, log: Path) -> None:
    what = f'tuning log "{log}"'
    line = log.read_text().splitlines()[0]
    log.write_text(f"{line}\n\n{line}\n")
    assert refused("place", model, "--schedules", log) == (
        f"{what}, lines 1 and 3: two schedules of conv2d 1x16x8x8 to 1x16x8x8; a log has one; "
        "remove one of the lines"
    )
    for text, why in (("{", "no JSON"), ("[1]", "no JSON object")):
        log.write_text(f"{line}\n{text}\n")
        assert refused("tune", model, "-o", log) == (
            f"{what}, line 2 is damaged: it holds {why}; a line is what `vta-byoc tune` writes; "
            "remove the line"
        )
    log.unlink()
    assert refused("run", model, "--schedules", log) == (
        f"{what} cannot be read (No such file or directory); write one with `vta-byoc tune MODEL "
        "-o FILE`"
    )


def test_a_log_of_another_machine_is_not_extended(model: Path, log: Path) -> None:
    before = log.read_bytes()
    text = refused("tune", model, "-o", log, "--config", "pynq")
    assert text.startswith(f'tuning log "{log}", line 1 is of another machine: ')
    assert log.read_bytes() == before


def test_a_full_disk_leaves_the_log_as_it_was(
    model: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    before, files = log.read_bytes(), os.listdir(log.parent)
    monkeypatch.setattr(os, "replace", full)
    assert refused("tune", model, "-o", log, "--candidates", "1") == (
        f'tuning log "{log}" cannot be written (No space left on device); the log is what it was; '
        f'make room in "{log.parent}", or name a file that you may write'
    )
    assert log.read_bytes() == before and os.listdir(log.parent) == files


def test_lines_say_who_chose(qmod: tvm.IRModule, tmp_path: Path) -> None:
    """And lines of another geometry reach no composite."""
    layers, _ = tunable_layers(partition_for_vta(qmod, SIM), SIM)
    update_log(tmp_path / "one.jsonl", [Entry(layers[0].schedule, machine_of(SIM))])
    schedules = Schedules.read(tmp_path / "one.jsonl")
    mod = partition_for_vta(qmod, SIM, schedules=schedules)
    steps = {name: step for name, (_, step) in layer_steps(mod).items()}
    taken = [name for name, step in steps.items() if step.chosen and step.chosen.origin == LOG]
    assert taken == list(layers[0].names)
    with pytest.raises(VTAError, match="is of another machine: LOG_BLOCK is 4 there and 5 here"):
        partition_for_vta(qmod, VTAConfig.preset("1x32"), schedules=schedules)
