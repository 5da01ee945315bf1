"""TVMScript texts to TVM."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import tvm


def parsed(text: str) -> Any:
    """The function or module of a text.

    TVM's decorators ask for the source of every frame that called them, which takes longer than
    the parser when thousands of modules are imported.  Of a text they are evaluated for their
    names alone: what they ask for is not read.
    """
    with mock.patch.object(inspect, "stack", lambda context=1: []):
        return tvm.script.from_source(text)
