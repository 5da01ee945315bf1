"""Cases for every operator of the ONNX importer: models with one node, against ONNX Runtime.

A generator writes the node with an `Onnx`.  Models take float32 only; integers and booleans are
made of it by Cast.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from importer_draws import Case, case_folder, single
from importer_onnx_elements import (
    along,
    binary,
    bit_shift,
    bitwise_not,
    dft,
    dropout,
    extreme,
    integer_product,
    lp_norm,
    mod,
    optional,
    quantization,
    reduction,
    sequence,
    several,
    shrink,
    special,
    unary,
)
from importer_onnx_graph import BOOL, FLOATS, INT32, INT64, Generator, Onnx
from importer_onnx_images import (
    affine_grid,
    grid_sample,
    max_roi_pool,
    max_unpool,
    resize,
    roi_align,
    upsample,
)
from importer_onnx_layers import (
    attention,
    average_pool,
    batch_norm,
    bias_gelu,
    conv,
    conv_transpose,
    embed_norm,
    fast_gelu,
    gemm,
    global_pool,
    group_norm,
    instance_norm,
    layer_norm,
    lp_pool,
    lrn,
    matmul,
    max_pool,
    mean_variance,
    prelu,
    rms_norm,
    skip_norm,
)
from importer_onnx_moves import (
    blocks,
    cast,
    clip,
    col2im,
    concat,
    constant,
    constant_of_shape,
    cum_prod,
    cum_sum,
    einsum,
    expand,
    eye_like,
    flatten,
    gather,
    gather_elements,
    gather_nd,
    one_hot,
    pad,
    range_,
    reshape,
    reverse_sequence,
    scatter_elements,
    scatter_nd,
    shape_of,
    slice_,
    split,
    squeeze,
    tile,
    top_k,
    transpose,
    trilu,
    unsqueeze,
    where,
)
from onnx import helper

CASES: dict[str, Generator] = {
    "Abs": unary(-4, 4, INT32, INT64),
    "Acos": unary(-1, 1),
    "Acosh": unary(1, 9),
    "Add": binary(),
    "AffineGrid": affine_grid,
    "And": binary(BOOL),
    "ArgMax": extreme,
    "ArgMin": extreme,
    "Asin": unary(-1, 1),
    "Asinh": unary(),
    "Atan": unary(),
    "Atanh": unary(-0.9, 0.9),
    "Attention": attention,
    "AveragePool": average_pool,
    "BatchNormalization": batch_norm,
    "BiasGelu": bias_gelu,
    "BitShift": bit_shift,
    "BitwiseAnd": binary(INT32, INT64, opset=18),
    "BitwiseNot": bitwise_not,
    "BitwiseOr": binary(INT32, INT64, opset=18),
    "BitwiseXor": binary(INT32, INT64, opset=18),
    "Cast": cast,
    "CastLike": cast,
    "Ceil": unary(),
    "Clip": clip,
    "Col2Im": col2im,
    "Concat": concat,
    "ConcatFromSequence": sequence,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Cos": unary(),
    "Cosh": unary(),
    "CumProd": cum_prod,
    "CumSum": cum_sum,
    "DFT": dft,
    "DepthToSpace": blocks,
    "DequantizeLinear": quantization,
    "Div": binary(low_right=1),
    "Dropout": dropout,
    "Einsum": einsum,
    "Elu": unary(-4, 4, alpha=(None, 0.5)),
    "EmbedLayerNormalization": embed_norm,
    "Equal": binary(),
    "Erf": unary(),
    "Exp": unary(),
    "Expand": expand,
    "EyeLike": eye_like,
    "FastGelu": fast_gelu,
    "Flatten": flatten,
    "Floor": unary(),
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gelu": unary(-4, 4, opset=20, approximate=(None, "none", "tanh")),
    "Gemm": gemm,
    "GlobalAveragePool": global_pool(),
    "GlobalLpPool": global_pool(p=(None, 1, 2, 3)),
    "GlobalMaxPool": global_pool(),
    "Greater": binary(),
    "GreaterOrEqual": binary(),
    "GridSample": grid_sample,
    "GroupNormalization": group_norm,
    "HardSigmoid": unary(-4, 4, alpha=(None, 0.3), beta=(None, 0.4)),
    "HardSwish": unary(opset=14),
    "Hardmax": along(),
    "Identity": unary(),
    "InstanceNormalization": instance_norm,
    "IsInf": special,
    "IsNaN": special,
    "LRN": lrn,
    "LayerNormalization": layer_norm,
    "LeakyRelu": unary(-4, 4, alpha=(None, 0.2, 1.5)),
    "Less": binary(),
    "LessOrEqual": binary(),
    "Log": unary(0.1, 9),
    "LogSoftmax": along(),
    "LpNormalization": lp_norm,
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MatMulInteger16": integer_product,
    "Max": several,
    "MaxPool": max_pool,
    "MaxRoiPool": max_roi_pool,
    "MaxUnpool": max_unpool,
    "Mean": several,
    "MeanVarianceNormalization": mean_variance,
    "Min": several,
    "Mish": unary(opset=18),
    "Mod": mod,
    "Mul": binary(),
    "Neg": unary(-4, 4, INT32, INT64),
    "Not": lambda n: n.test(n.input(n.floats(n.shape(0), -1, 1), BOOL)),
    "OneHot": one_hot,
    "Optional": optional,
    "OptionalGetElement": optional,
    "OptionalHasElement": optional,
    "Or": binary(BOOL),
    "PRelu": prelu,
    "Pad": pad,
    "Pow": binary(FLOATS, low=0.5),
    "QuantizeLinear": quantization,
    "RMSNormalization": rms_norm,
    "Range": range_,
    "Reciprocal": unary(0.5, 4),
    "ReduceL1": reduction,
    "ReduceL2": reduction,
    "ReduceLogSum": reduction,
    "ReduceLogSumExp": reduction,
    "ReduceMax": reduction,
    "ReduceMean": reduction,
    "ReduceMin": reduction,
    "ReduceProd": reduction,
    "ReduceSum": reduction,
    "ReduceSumSquare": reduction,
    "Relu": unary(-4, 4, opset=14),
    "Reshape": reshape,
    "Resize": resize,
    "ReverseSequence": reverse_sequence,
    "RoiAlign": roi_align,
    "Round": unary(),
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Selu": unary(-4, 4, alpha=(None, 1.5), gamma=(None, 0.9)),
    "SequenceAt": sequence,
    "SequenceConstruct": sequence,
    "SequenceErase": sequence,
    "SequenceInsert": sequence,
    "SequenceLength": sequence,
    "Shape": shape_of,
    "Shrink": shrink,
    "Sigmoid": unary(-20, 20),
    "Sign": unary(-4, 4, INT32),
    "Sin": unary(),
    "Sinh": unary(),
    "Size": shape_of,
    "SkipLayerNormalization": skip_norm,
    "Slice": slice_,
    "Softmax": along(),
    "Softplus": unary(-40, 40),
    "Softsign": unary(),
    "SpaceToDepth": blocks,
    "Split": split,
    "SplitToSequence": sequence,
    "Sqrt": unary(0, 9),
    "Squeeze": squeeze,
    "Sub": binary(),
    "Sum": several,
    "Tan": unary(-1, 1),
    "Tanh": unary(),
    "ThresholdedRelu": unary(-4, 4, alpha=(None, 0.5)),
    "Tile": tile,
    "TopK": top_k,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
    "Upsample": upsample,
    "Where": where,
    "Xor": binary(BOOL),
}
"""ONNX operator -> generator."""


def case(name: str, number: int, seed: int = 0) -> Case:
    """Draw `number` of the operator `name`."""
    n = Onnx(name, seed, number, *name.encode())
    CASES[name](n)

    @functools.cache
    def computed() -> list[np.ndarray]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            n.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        feed = {f"x{i + 1}": array for i, array in enumerate(n.feed)}
        return [np.asarray(array) for array in session.run(None, feed)]

    def expected() -> list[np.ndarray]:
        return [single(array) for array in computed()]

    def model() -> Path:
        path = case_folder() / f"{name}-{number}.onnx"
        onnx.save(n.model(computed()), str(path))
        return path

    last = next((node for node in reversed(n.nodes) if node.op_type == name), None)
    text = f"opset {n.opset}, shapes {[array.shape for array in n.feed]}"
    if last is not None:
        attrs = {a.name: helper.get_attribute_value(a) for a in last.attribute}
        text += f", {attrs}"
    return Case(name, model, n.feed, expected, f"draw {number}: {text}")
