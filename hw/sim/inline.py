"""`T.inline` that finds its caller's parser without reading source files.

TVM 0.27 asks `inspect.getouterframes` for every frame of the stack at every call of an inline
function; it opens the source of each, which was most of the time that building a simulator took.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tvm.script.parser._core import scan_macro, utils
from tvm.tirx.script.parser.entry import TIRInline


class _Inline(TIRInline):
    def _find_parser_def(self) -> Any:
        frame = inspect.currentframe()
        while frame is not None:
            parser = frame.f_globals.get(self.parser_object_name)
            if parser is not None:
                return parser
            frame = frame.f_back
        raise RuntimeError(f"{self.func.__name__} is called outside of TVMScript; call it in there")


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function whose body is TVMScript, to be written out where it is called."""
    source, captured = scan_macro(function, utils.inspect_function_capture(function))
    written_out = _Inline(source, captured, function)

    def call(*args: Any, **kwargs: Any) -> Any:
        return written_out(*args, **kwargs)

    return call
