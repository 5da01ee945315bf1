"""The error boundary: what libraries raise about an input becomes an error of the user's.

A model file reaches TVM, ONNX, flatbuffers, protobuf and NumPy, and each has its own way to say
that it did not expect what it got.  The stages that read what the user gave (import, normalize,
quantize) run inside `boundary`.  Checks with a message of their own stand before it; this is the
net beneath them.  Later stages have no boundary: what fails there is our mistake.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from vta_byoc.hw.errors import VTAError

SHOWN = 200
"""Characters of a library's message that are repeated."""
_OPERATOR = re.compile(r'ir\.Op\(span=.*?name="([^"]+)".*support_level=\d+\)')
"""How TVM prints the operator whose operands it refuses."""
OUT_OF_MEMORY = ("std::bad_alloc", "Cannot allocate", "Unable to allocate")


@dataclass
class _Stage:
    """What runs inside a boundary."""

    name: str
    source: str
    operator: str = ""


_STAGE: ContextVar[_Stage | None] = ContextVar("stage", default=None)


@contextlib.contextmanager
def boundary(stage: str, source: str) -> Iterator[None]:
    """Turn what the block raises about its input into a `VTAError`.

    A boundary inside another of the same stage does nothing: the outer one knows the source better.

    Args:
        stage: what is done to the source, as in "cannot be imported".
        source: what is read, as errors call it: `model file "x.onnx"`.

    Raises:
        VTAError: source, stage, the operator (see `at`), the first line of what went wrong, and
            the next step; the original is its `__cause__`. VTAErrors, and OSErrors that say which
            file is out of reach, pass as they are.
    """
    running = _STAGE.get()
    if running is not None and running.name == stage:
        yield
        return
    current = _Stage(stage, source)
    token = _STAGE.set(current)
    try:
        yield
    except (VTAError, OSError):
        raise
    except Exception as error:
        raise VTAError(_message(current, error)) from error
    finally:
        _STAGE.reset(token)


def at(operator: str) -> None:
    """Say which operator the running stage has come to (`node "c" (Conv)`), "" for none."""
    stage = _STAGE.get()
    if stage is not None:
        stage.operator = operator


def _message(stage: _Stage, error: Exception) -> str:
    where = f"{stage.source} cannot be {stage.name}: "
    where += f"{stage.operator}: " if stage.operator else ""
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in OUT_OF_MEMORY):
        return f"{where}memory is not enough for its tensors; use a smaller model or smaller inputs"
    if isinstance(error, RecursionError):
        return f"{where}it is nested too deep; simplify the model"
    return (
        f"{where}{first_line(error)}; the model is damaged or has a form that nobody met before; "
        "export it again, or report it with the traceback that --debug shows"
    )


def reason_of(error: Exception) -> str:
    """The first line of an exception's text as it is, its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def first_line(error: BaseException) -> str:
    """The class and the first line of an exception, cut to `SHOWN` characters."""
    line = next(iter(str(error).strip().splitlines()), "").rstrip(".;")
    line = _OPERATOR.sub(r"\1", line)
    text = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
