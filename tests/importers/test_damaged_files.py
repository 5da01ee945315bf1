"""Files that hold what no file should: one line that says what is wrong, never a bug.

`benchmarks/mutate_files.py` hunts on with a process of its own; here some of its files are loaded
in this one, and those that once ended in a traceback are made by code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cli_runs import refused
from onnx import TensorProto, helper, numpy_helper

from benchmarks import mutate_files
from benchmarks._mutations import SOURCES, mutated
from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
SEEDS = 30
AGAIN = (
    "; the model is damaged or has a form that nobody met before; export it again, or report it "
    "with the traceback that --debug shows"
)


@pytest.mark.parametrize("kind", SOURCES)
def test_damaged_files_load_or_are_refused(kind: str, tmp_path: Path) -> None:
    path, loaded = tmp_path / f"damaged.{kind}", 0
    with limits.memory_limit(limits.GIB):
        for seed in range(SEEDS):
            path.write_bytes(mutated(kind, seed))
            try:
                load_model(path)
                loaded += 1
            except VTAError as error:
                assert "Traceback" not in str(error), seed
    print(f"{kind}: {loaded} of {SEEDS} loaded")
    assert 0 < loaded < SEEDS


@pytest.mark.parametrize("kind", SOURCES)
def test_a_seed_is_a_file(kind: str) -> None:
    files = [mutated(kind, seed) for seed in range(20)]
    assert files == [mutated(kind, seed) for seed in range(20)]
    assert len(set(files)) > 15


def test_the_hunt_counts_how_files_end() -> None:
    ends = ("exit 0", "exit 2", "exit 3", mutate_files.DIED, mutate_files.HUNG, "exit 2")
    lines = ("", "", "a bug", "", "", f"x: {mutate_files.NO_MEMORY} for it")
    outcomes = [
        mutate_files.Outcome("onnx", seed, "place", end, line)
        for seed, (end, line) in enumerate(zip(ends, lines, strict=True))
    ]
    found = {figure.name: figure for figure in mutate_files.figures("onnx", outcomes)}
    values = {name.removeprefix("onnx_"): figure.value for name, figure in found.items()}
    assert values == {
        **{"mutations": 6, "accepted": 1, "refused": 2},
        **{"exit_3": 1, "died": 1, "hung": 1, "out_of_memory": 1},
    }
    assert not found["onnx_exit_3"].ok
    assert [outcome.seed for outcome in outcomes if outcome.is_bad] == [2, 3, 4]
    assert str(outcomes[2]) == "onnx seed 2, place: exit 3: a bug"


# ---------------------------------------------------------------- ONNX by code
def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    output: str = "y",
    **weights: Any,
) -> Path:
    """A model of one input `x` and one output; weights are arrays, or functions of their name."""
    tensors = [
        value(name) if callable(value) else numpy_helper.from_array(np.asarray(value), name)
        for name, value in weights.items()
    ]
    results = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["?"] * 4)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "net", inputs, results, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(made, str(path))
    return path


def message(path: Path) -> str:
    with pytest.raises(VTAError) as caught:
        load_model(path)
    return str(caught.value)


def node(op: str, inputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, ["y"], name="n", **attributes)


WEIGHT = np.ones((4, 3, 3, 3), "float32")
EMPTY = "; every dimension must be at least 1; correct its attributes, or the shapes of the inputs"
LIMIT = "; 8 GiB are taken at most; correct the shapes, or raise the limit (--memory-limit {})"
GRAPHS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a kernel larger than its input": (
        lambda path: saved(path, [node("Conv", ["x", "w"])], (1, 3, 2, 8), w=WEIGHT),
        'node "n" (Conv) makes "y" of shape (1, 4, 0, 6) from (1, 3, 2, 8) and (4, 3, 3, 3)'
        + EMPTY,
    ),
    "a slice past the end": (
        lambda path: saved(
            path,
            [node("Slice", ["x", "a", "b"])],
            (1, 8),
            a=np.int64([0, 2**43]),
            b=np.int64([1, 9]),
        ),
        'node "n" (Slice) makes "y" of shape (1, 0) from (1, 8)' + EMPTY,
    ),
    "a terabyte to fold": (
        lambda path: saved(path, [node("Expand", ["x", "s"])], (1, 3), s=np.int64([2**37, 3])),
        'node "n" (Expand): tensor "y" of shape (137438953472, 3) takes 1,536 GiB'
        + LIMIT.format(1536),
    ),
    "a constant of 128 GiB": (
        lambda path: saved(
            path,
            [
                helper.make_node("ConstantOfShape", ["s"], ["c"], name="c"),
                node("Add", ["x", "c"]),
            ],
            (1,),
            s=np.int64([2**35]),
        ),
        'node "c" (ConstantOfShape): tensor "c" of shape (34359738368) takes 128 GiB'
        + LIMIT.format(128),
    ),
    "a padding of gigabytes": (
        lambda path: saved(
            path, [node("Conv", ["x", "w"], pads=[20000] * 4)], (1, 3, 8, 8), w=WEIGHT
        ),
        'node "n" (Conv): tensor "y" of shape (1, 4, 40006, 40006) takes 23.8 GiB'
        + LIMIT.format(24),
    ),
    "gigabytes together": (
        lambda path: saved(
            path,
            [
                *(helper.make_node("Relu", [a], [b], name=b) for a, b in ("xa", "ab", "bc")),
                node("Relu", ["c"]),
            ],
            (1, 2**29),
        ),
        'the tensors of the model take 10 GiB together, tensor "x" of shape (1, 536870912) the '
        "most of it" + LIMIT.format(10),
    ),
    "a tile of gigabytes": (
        lambda path: saved(path, [node("Tile", ["x", "s"])], (1, 3), s=np.int64([2**37, 1])),
        'node "n" (Tile): tensor "y" of shape (137438953472, 3) takes 1,536 GiB'
        + LIMIT.format(1536),
    ),
}
"""Name -> writes the file, and the whole message."""


@pytest.mark.parametrize("name", GRAPHS)
def test_onnx(name: str, tmp_path: Path) -> None:
    write, expected = GRAPHS[name]
    assert message(write(tmp_path / "net.onnx")) == expected


def test_more_elements_than_code_can_count(tmp_path: Path) -> None:
    path = saved(tmp_path / "net.onnx", [node("Relu", ["x"])], (2**16, 2**15))
    with limits.memory_limit(1 << 40):
        assert message(path) == (
            'tensor "x" of shape (65536, 32768) has 2,147,483,648 elements; a tensor has at most '
            "2,147,483,647; use smaller shapes"
        )


def test_the_command_line_raises_the_limit(tmp_path: Path) -> None:
    path = saved(tmp_path / "net.onnx", [node("Relu", ["x"])], (1, 2**19))
    assert refused("place", path, "--memory-limit", "0.001") == (
        'tensor "x" of shape (1, 524288) takes 2 MiB; 1.0 MiB are taken at most; correct '
        "the shapes, or raise the limit (--memory-limit 1)"
    )
    load_model(path)  # the limit held for the command


# ---------------------------------------------------------------- TFLite by code
def patched(path: Path, name: str, changes: dict[int, int]) -> Path:
    """A fixture with other bytes at some places."""
    data = bytearray((FIXTURES / f"{name}.tflite").read_bytes())
    for at, value in changes.items():
        data[at] = value
    path.write_bytes(data)
    return path


NO_GRAPH = "; a model needs at least one of each; convert the model again"
PAST = "error: unpack_from requires a buffer of at least {} bytes for unpacking {} at offset {}"
TFLITE: dict[str, tuple[str, dict[int, int], str]] = {
    "an operand of another shape": (
        "add_relu",
        {730: 1},
        'cannot be imported: operator "Identity" (ADD): ValueError: In relax.add, the first input '
        "shape at dim 3 is T.int64(8) and the second input shape at dim 3 is T.int64(65544), which "
        "are not broadcastable" + AGAIN,
    ),
    "no inputs": ("average_pool", {404: 125}, "has 1 operators, 0 inputs and 1 outputs" + NO_GRAPH),
    "no operators": (
        *("concatenate", {408: 0, 410: 0}),
        "has 0 operators, 2 inputs and 1 outputs" + NO_GRAPH,
    ),
    "options outside the file": (
        *("average_pool", {484: 15}),
        'cannot be imported: operator "Identity" (AVERAGE_POOL_2D): '
        + PAST.format(1512, "4 bytes", 1508)
        + " (actual buffer size is 808)"
        + AGAIN,
    ),
    "a negative offset": (
        *("average_pool", {486: 16}),
        'cannot be imported: operator "Identity" (AVERAGE_POOL_2D): TypeError: bad number -1048106 '
        "for type uint32" + AGAIN,
    ),
    "another negative offset": (
        *("average_pool", {485: 2, 616: 105}),
        'cannot be imported: operator "identity" (AVERAGE_POOL_2D): TypeError: bad number -42 for '
        "type uint32" + AGAIN,
    ),
    "activation outside the file": (
        *("concatenate", {298: 114, 373: 92, 577: 1}),
        'cannot be imported: operator "mul" (MUL): '
        + PAST.format(12911, "1 bytes", 12910)
        + " (actual buffer size is 1184)"
        + AGAIN,
    ),
    "parts of other shapes": (
        *("concatenate", {1120: 0, 1124: 0, 1125: 9, 1126: 52}),
        'cannot be imported: operator "Identity" (CONCATENATION): ValueError: Concat expects the '
        "input tensors to have the same shape on every dimension except the one indicated by the "
        "input axis. However, the input contains tensors whose shapes on dimension 3 is T...."
        + AGAIN,
    ),
    "a stride of zero": (
        *("conv_per_tensor", {593: 128, 624: 20}),
        'cannot be imported: operator "Identity" (CONV_2D): InternalError: Check failed: pb->value '
        "!= 0 (0 vs. 0) : Divide by zero" + AGAIN,
    ),
    "a mask outside the file": (
        *("slice", {550: 255, 551: 255, 552: 255, 553: 127}),
        'cannot be imported: operator "Identity" (STRIDED_SLICE): '
        + PAST.format(33327, "4 bytes", 33323)
        + " (actual buffer size is 1096)"
        + AGAIN,
    ),
}
"""Name -> fixture, places and their new bytes, and the message after the name of the file."""


@pytest.mark.parametrize("name", TFLITE)
def test_tflite(name: str, tmp_path: Path) -> None:
    fixture, changes, expected = TFLITE[name]
    path = patched(tmp_path / "net.tflite", fixture, changes)
    assert message(path) == f'model file "{path}" {expected}'


def test_an_input_without_elements(tmp_path: Path) -> None:
    """The damage of this seed is a negative dimension of an input."""
    path = tmp_path / "net.tflite"
    path.write_bytes(mutated("tflite", 32))
    text = message(path)
    assert text == (
        'input "x" has the shape (1, 4, 5, -2147483648); every dimension must be at least 1; '
        "correct the shape and export the model again"
    )
