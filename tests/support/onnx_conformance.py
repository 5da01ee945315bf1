"""ONNX's own tests of its operators, through the importer, and what they give on LLVM.

Every test has one node, its inputs and the results that ONNX's reference implementation gives.
Where the importer wants parameters as constants, and the test has them as inputs, they become
constants: first the integers, then all inputs but the first.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from importer_draws import Case, case_folder, single
from importer_runs import REFUSED, Outcome, outcomes
from onnx import numpy_helper

NOT_OF_TENSORS = "not of tensors"
"""Tests of sequences, optional values and strings: no accelerator has such."""
TOLERANCE, OF_HALVES = 1e-3, 2e-2
"""Relative; the former is the one that ONNX states.  16-bit floats are float32 here."""
RECORDED = "1.23"
"""The release of onnx whose tests these are; others have more tests, or other ones."""
KNOWN: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "test_attention_23_boolmask_fullymasked_row_nan_robustness",
            "test_attention_causal_boolmask_nan_robustness",
        ),
        "a token that sees no key gets the mean of the values, where ONNX gives zeros",
    ),
    **dict.fromkeys(
        (
            "test_attention_23_boolmask_fullymasked_row_nan_robustness_expanded",
            "test_attention_23_fullymasked_qk_matmul_output_mode3_zero_expanded",
            "test_attention_24_fullymasked_qk_matmul_output_mode3_zero_expanded",
            "test_attention_24_qk_matmul_output_mode3_softmax_precision_expanded",
            "test_attention_4d_causal_nonpad_negative_offset_structural_empty_expanded",
            "test_attention_4d_causal_padded_kv_bf16_expanded",
            "test_attention_causal_boolmask_nan_robustness_expanded",
            "test_attention_local_window_gqa_rank4_mask_expanded",
        ),
        "the largest of nothing but minus infinities is the least finite number in TVM",
    ),
    **dict.fromkeys(
        (
            "test_bitshift_left_int32_negative_shift",
            "test_bitshift_left_int32_shift_ge_width",
            "test_bitshift_right_int32_negative_shift",
            "test_bitshift_right_int32_shift_ge_width",
        ),
        "an amount of run time below 0, or of the width and more",
    ),
    **dict.fromkeys(
        (f"test_mod_float_edge_cases_fmod_0_float{bits}" for bits in (16, 32, 64)),
        "the remainder of a division by an infinity is no number",
    ),
}
"""Test -> why its results are others here; `docs/importing.md` says so too."""


@functools.cache
def node_tests() -> Mapping[str, Any]:
    """Name -> `onnx.backend.test` case."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {each.name: each for each in collect_testcases(None)}


def verdicts(names: Iterable[str]) -> dict[str, Outcome]:
    """What became of each test; kinds are those of `importer_runs`, or `NOT_OF_TENSORS`."""
    drawn = [(name, _arrays(node_tests()[name])) for name in names]
    found = {
        name: Outcome(_case(name, ([], []), ()), NOT_OF_TENSORS)
        for name, arrays in drawn
        if arrays is None
    }
    left = {name: arrays for name, arrays in drawn if arrays is not None}
    for constants in (_none, _integers, _all_but_the_first):
        cases = [_case(name, arrays, constants(arrays[0])) for name, arrays in left.items()]
        done = dict(zip(left, outcomes(cases), strict=True))
        for name, outcome in done.items():
            if outcome.kind != REFUSED or name not in found:
                found[name] = outcome
        left = {name: left[name] for name, outcome in done.items() if outcome.kind == REFUSED}
    return found


Inputs = Sequence[np.ndarray]
Constants = Callable[[Inputs], Sequence[int]]


def _none(inputs: Inputs) -> Sequence[int]:
    return ()


def _integers(inputs: Inputs) -> Sequence[int]:
    return [i for i, x in enumerate(inputs) if i and (x.dtype == np.int64 or not x.ndim)]


def _all_but_the_first(inputs: Inputs) -> Sequence[int]:
    return range(1, len(inputs))


def _arrays(test: Any) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
    inputs, results = test.data_sets[0]
    every = [
        numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each
        for each in (*inputs, *results)
    ]
    if any(isinstance(each, list | dict | None) for each in every):
        return None
    arrays = [np.asarray(each) for each in every]
    if any(array.dtype.kind in "OSU" for array in arrays):
        return None
    return arrays[: len(inputs)], arrays[len(inputs) :]


def _case(name: str, arrays: tuple[Inputs, Inputs], constants: Sequence[int]) -> Case:
    test, (inputs, results) = node_tests()[name], arrays
    halves = any(str(array.dtype) in ("float16", "bfloat16") for array in (*inputs, *results))
    feed = [single(x) for i, x in enumerate(inputs) if i not in constants]

    def model() -> Path:
        path = case_folder() / f"{name}.onnx"
        onnx.save(_with_constants(test.model, inputs, constants), str(path))
        return path

    def expected() -> Sequence[np.ndarray]:
        return [single(array) for array in results]

    operator = test.model.graph.node[0].op_type if test.model.graph.node else ""
    return Case(operator, model, feed, expected, name, OF_HALVES if halves else TOLERANCE)


def _with_constants(
    model: onnx.ModelProto, inputs: Inputs, constants: Sequence[int]
) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    declared = list(changed.graph.input)
    del changed.graph.input[:]
    for place, (value, array) in enumerate(zip(declared, inputs, strict=True)):
        if place in constants:
            changed.graph.initializer.append(numpy_helper.from_array(array, value.name))
            continue
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for size in array.shape:
            shape.dim.add().dim_value = size
        changed.graph.input.append(value)
    return changed
