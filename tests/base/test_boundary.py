"""What libraries raise about an input becomes one line; what is ours passes."""

from __future__ import annotations

import pytest

from vta_byoc.base.boundary import SHOWN, at, boundary
from vta_byoc.hw.errors import VTAError

HELP = (
    "; the model is damaged or has a form that nobody met before; export it again, or report it "
    "with the traceback that --debug shows"
)


def message(error: Exception, operator: str = "") -> str:
    with pytest.raises(VTAError) as caught, boundary("imported", 'model file "x.onnx"'):
        at(operator)
        raise error
    assert caught.value.__cause__ is error
    return str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        IndexError("tuple index out of range"),
        KeyError(0),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        OverflowError("too large"),
        AssertionError(),
    ],
)
def test_what_a_library_raises(error: Exception) -> None:
    text = f": {error}" if str(error) else ""
    assert message(error, 'node "c" (Conv)') == (
        f'model file "x.onnx" cannot be imported: node "c" (Conv): {type(error).__name__}{text}'
        + HELP
    )


def test_memory_and_depth() -> None:
    wanted = (
        'model file "x.onnx" cannot be imported: memory is not enough for its tensors; use a '
        "smaller model or smaller inputs"
    )
    assert message(MemoryError()) == wanted
    assert message(RuntimeError("InternalError: std::bad_alloc")) == wanted
    assert message(RecursionError("maximum recursion depth exceeded")) == (
        'model file "x.onnx" cannot be imported: it is nested too deep; simplify the model'
    )


def test_a_message_is_one_line_and_short() -> None:
    text = message(ValueError(f"{'x' * 1000}\nsecond line"))
    shown = f"ValueError: {'x' * 1000}"[:SHOWN]
    assert text == f'model file "x.onnx" cannot be imported: {shown}...{HELP}'
    operator = (
        'In ir.Op(span=None, ty=ir.Type(span=None), name="relax.add", description="", '
        'arguments=(ir.ArgumentInfo(name="x1")), num_inputs=2, support_level=10), shapes differ.'
    )
    assert message(ValueError(operator)) == (
        'model file "x.onnx" cannot be imported: ValueError: In relax.add, shapes differ' + HELP
    )


@pytest.mark.parametrize(
    "error", [VTAError("ours"), FileNotFoundError("gone"), KeyboardInterrupt()]
)
def test_what_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, boundary("imported", "the model"):
        raise error
    assert caught.value is error


def test_the_outer_of_two_knows_the_source() -> None:
    with (
        pytest.raises(VTAError) as caught,
        boundary("quantized", 'model file "x.onnx"'),
        boundary("quantized", "the module"),
    ):
        raise KeyError("scale")
    assert str(caught.value) == (
        "model file \"x.onnx\" cannot be quantized: KeyError: 'scale'" + HELP
    )


def test_outside_of_it_nothing_changes() -> None:
    at('node "c" (Conv)')
    with pytest.raises(AssertionError):
        assert not "a bug"
    with boundary("imported", "the model"):
        pass
    with pytest.raises(KeyError):
        raise KeyError(0)
