"""What the HTML pages share: their templates, and data inside a script element."""

from __future__ import annotations

import functools
import json
from typing import Any

import jinja2


@functools.cache
def template(name: str) -> jinja2.Template:
    """A file of `templates`; what it leaves undefined is an error."""
    loader = jinja2.PackageLoader("vta_byoc")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template(name)


def script_json(data: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
