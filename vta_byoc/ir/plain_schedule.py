"""TVM's schedules without the checks that no schedule of this package needs."""

from __future__ import annotations

from tvm import s_tir


class PlainSchedule(s_tir.Schedule):
    """A schedule whose primitives do not look at the types of their arguments.

    TVM compares each argument with its annotation at every call, which takes a fifth of the time of
    scheduling; what is asked of this one is typed already. A primitive that cannot be applied is
    refused as ever.
    """


for _name, _method in vars(s_tir.Schedule).items():
    if hasattr(_method, "__wrapped__"):
        setattr(PlainSchedule, _name, _method.__wrapped__)
