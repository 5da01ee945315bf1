"""A class or an instance of it: what some kinds of plug-ins may be given as."""

from __future__ import annotations

from typing import TypeVar, cast

from vta_byoc.hw.errors import VTAError

Made = TypeVar("Made")


def instance(given: type[Made] | Made, kind: str, by: str) -> Made:
    """`given`, or the instance of it where it is a class.

    Raises:
        VTAError: the class cannot be called without arguments.
    """
    if not isinstance(given, type):
        return given
    try:
        return cast(Made, given())
    except TypeError as err:
        raise VTAError(
            f"{kind} {given.__name__} of {by} cannot be made without arguments: {err}; register "
            "an instance of it"
        ) from err
