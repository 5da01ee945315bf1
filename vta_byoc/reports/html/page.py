"""What the HTML pages share: their templates, and data inside a script element."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping

import jinja2
from markupsafe import Markup, escape

from vta_byoc.base.json_types import Json
from vta_byoc.hw.printable import printable


@functools.cache
def template(name: str) -> jinja2.Template:
    """A file of `templates`; what it leaves undefined is an error."""
    loader = jinja2.PackageLoader("vta_byoc.reports")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=_harmless,
    )
    environment.filters["code_spans"] = code_spans
    return environment.get_template(name)


def code_spans(text: str) -> Markup:
    """Text as HTML, in which what stands between backticks is code."""
    parts = [escape(printable(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(printable(text))
    pieces = [Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(parts)]
    return Markup("").join(pieces)


def _harmless(value: object) -> object:
    """Text without control characters; what is marked as HTML is ours."""
    return printable(value) if type(value) is str else value


def script_json(data: Json) -> str:
    """JSON that may stand inside a script element.

    No text in it can end the element, and names have their control characters as escapes that a
    page shows.
    """
    text = json.dumps(_shown(data), ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _shown(data: object) -> object:
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, Mapping):
        return {_shown(key): _shown(value) for key, value in data.items()}
    return [_shown(item) for item in data] if isinstance(data, list | tuple) else data
