"""Machines by models: the space, the log that survives an interruption, and the front."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import onnx
import pytest
import tvm
from onnx import TensorProto, helper

from vta_byoc.base.jobs import run_all, run_in_order
from vta_byoc.explore import explore as exploring
from vta_byoc.explore.explore import explore, jobs_of, pareto
from vta_byoc.explore.point import Point, _noise, measure
from vta_byoc.explore.result_log import ResultLog
from vta_byoc.explore.space import read_space
from vta_byoc.hw.config import PRESETS, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.pipeline import compile_module, compile_programs
from vta_byoc.quantize import quantize, quantized_alike
from vta_byoc.reports.explore_picture import explore_page

VARIED = {"base": "pynq", "vary": {"LOG_INP_BUFF_SIZE": [13, 15], "LOG_WGT_BUFF_SIZE": [16, 18]}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A convolution of 16 channels to 32 on 8 x 8."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, (32, 16, 3, 3), [0.01] * (32 * 16 * 9))
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 8, 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 32, 8, 8))
    graph = helper.make_graph([node], "conv", [x], [y], [weight])
    path = tmp_path_factory.mktemp("models") / "conv.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.save(made, str(path))
    return str(path)


def space_of(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "space.json"
    path.write_text(json.dumps(data))
    return path


def test_a_space_names_machines_and_varies_one(tmp_path: Path) -> None:
    data = {"machines": ["sim", "chisel"], **VARIED}
    data["vary"] = {"LOG_INP_BUFF_SIZE": [14, 15, 18]}
    space = read_space(space_of(tmp_path, data))
    assert [machine.name for machine in space.machines] == [
        "sim",
        "chisel",
        "pynq LOG_INP_BUFF_SIZE=14",
        "pynq LOG_INP_BUFF_SIZE=15",
    ]
    assert space.machines[3].config == VTAConfig.preset("pynq")
    assert list(space.refused) == ["pynq LOG_INP_BUFF_SIZE=18"]
    assert "cannot be encoded" in space.refused["pynq LOG_INP_BUFF_SIZE=18"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "has no machine that can exist; name machines, or vary a base's keys"),
        ({"machines": "sim"}, ": machines is 'sim'; it must be a list; use [...]"),
        ({"vary": []}, ": vary is []; it must be an object of KEY: list; use one"),
        (
            {"vary": {"LOG_BLOCK": []}},
            ": vary gives 0 machines; a space has 1 to 10,000; give every key a value, and fewer "
            "of them",
        ),
        ({"machines": ["sim", "sim"]}, 'has the machine "sim" twice; keep one of them'),
        (
            {"machine": ["sim"]},
            ": unknown key machine; known keys: base, machines, vary; correct or remove it",
        ),
    ],
)
def test_wrong_spaces_are_refused(data: object, message: str, tmp_path: Path) -> None:
    path = space_of(tmp_path, data)
    space = " " if not message.startswith(":") else ""
    with pytest.raises(VTAError, match=f"^{re.escape(f'space {path}{space}{message}')}$"):
        read_space(path)


def test_points_are_measured_once_and_survive_an_interruption(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = read_space(space_of(tmp_path, VARIED))
    wanted = [measure(job) for job in jobs_of(space, [model])]
    assert all(p.cycles and p.dram_bytes and 0 < p.utilisation <= 100 for p in wanted)
    monkeypatch.setattr(exploring, "run_all", lambda work, jobs, *_: (work(job) for job in jobs))
    path = tmp_path / "results.jsonl"

    class Interrupted(Exception):
        pass

    def after_two(done: int) -> None:
        if done == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        explore(space, [model], ResultLog(path), progress=after_two)
    with path.open("a") as file:
        file.write('{"key": "torn off')
    log = ResultLog(path)
    assert len(log.points) == 2
    measured: list[object] = []
    monkeypatch.setattr(
        exploring,
        "run_all",
        lambda work, jobs, *_: (measured.append(job) or work(job) for job in jobs),
    )
    assert explore(space, [model], log) == wanted and len(measured) == 2
    assert explore(space, [model], ResultLog(path)) == wanted and len(measured) == 2
    assert path.read_text().count("\n") == 4


def test_a_result_has_the_name_that_its_space_gives_the_machine(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "run_all", lambda work, jobs, *_: (work(job) for job in jobs))
    log = ResultLog(tmp_path / "results.jsonl")
    varied = read_space(space_of(tmp_path, {"base": "pynq", "vary": {"LOG_INP_BUFF_SIZE": [15]}}))
    (first,) = explore(varied, [model], log)
    (again,) = explore(read_space(space_of(tmp_path, {"machines": ["pynq"]})), [model], log)
    assert (first.machine, again.machine) == ("pynq LOG_INP_BUFF_SIZE=15", "pynq")
    assert first.key == again.key and len(log.points) == 1


def test_a_machine_that_a_model_does_not_fit_is_a_result(model: str, tmp_path: Path) -> None:
    space = read_space(space_of(tmp_path, {"machines": ["pynq"]}))
    (job,) = jobs_of(space, [model])
    Path(tmp_path / "broken.onnx").write_bytes(b"no model")
    point = measure(dataclasses.replace(job, model=str(tmp_path / "broken.onnx"), digest="other"))
    assert point.error and not point.cycles and pareto([point]) == []


def test_machines_for_which_a_model_is_quantized_alike(model: str) -> None:
    mod = load_model(model)
    machines = [VTAConfig.preset(name) for name in PRESETS]
    by_key: dict[object, tvm.IRModule] = {}
    for config in machines:
        qmod = quantize(mod, calibration=_noise(mod), config=config)
        first = by_key.setdefault(quantized_alike(mod, config), qmod)
        tvm.ir.assert_structural_equal(first, qmod)
        programs = compile_programs(qmod, config)
        assert programs == compile_module(qmod, config, "null").programs
    assert len(by_key) == len({config.capabilities.mul for config in machines})


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"layer": "conv"}\n')
    with pytest.raises(VTAError, match=f"^line 1 of {path} is no result \\("):
        ResultLog(path)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    space = read_space(space_of(tmp_path, {"machines": ["sim"]}))
    with pytest.raises(VTAError, match="^model nowhere.onnx cannot be read "):
        jobs_of(space, ["nowhere.onnx"])


# ---------------------------------------------------------------- fronts and pictures
def point(name: str, *costs: int, model: str = "m") -> Point:
    return Point(f"{model} {name}", model, name, costs[0], 1.0, *costs[1:])


def test_the_front_has_what_no_other_machine_beats() -> None:
    a, b, c = point("a", 10, 5, 5, 5), point("b", 9, 5, 5, 6), point("c", 10, 6, 5, 5)
    other = point("c", 99, 9, 9, 9, model="n")
    assert pareto([a, b, c, other]) == [a, b, other]
    assert pareto([a, dataclasses.replace(a, key="twin")])[0] == a


def test_the_page_has_every_machine() -> None:
    points = [point("first", 10, 5, 4096, 256), point("second", 20, 5, 8192, 256, model="n")]
    page = explore_page(points, points[:1])
    assert "first" in page and "second" in page and "10 cycles" in page


# ---------------------------------------------------------------- where jobs run
def test_processes_of_this_computer_do_every_job_once() -> None:
    assert sorted(run_all(abs, [-3, 1, -2], workers=1)) == [1, 2, 3]


def test_results_in_the_order_of_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "vta_byoc.base.jobs.run_all", lambda work, jobs, *_: (work(job) for job in reversed(jobs))
    )
    assert list(run_in_order(abs, [-3, 1, -2])) == [3, 1, 2]


def test_a_dask_cluster_does_every_job_once() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, processes=False, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        found = run_all(abs, [-3, 1, -2], cluster.scheduler_address)
        assert sorted(found) == [1, 2, 3]


def test_a_scheduler_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("vta_byoc.base.jobs.CONNECT_SECONDS", 0.3)
    with pytest.raises(VTAError, match="^no Dask scheduler at tcp://127.0.0.1:1 within 0.3 s "):
        list(run_all(abs, [1], "tcp://127.0.0.1:1"))
