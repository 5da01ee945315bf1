"""LLVM targets: this machine's, the one of exported libraries, and what a target can do."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target, codegen

from vta_byoc.hw.config import VTAConfig

EXPORT_CPU = "x86-64-v3"
X86 = ("x86_64", "amd64")
KEY = "vta"
"""The key of targets that are VTA machines."""
CONTRACTED = ("-fma", "-fma4")
"""Attributes that switch off fused multiplication and addition, and with them AVX-512."""
_CPUINFO = Path("/proc/cpuinfo")
_CHECKED = ("avx", "f16c", "fma")


@functools.lru_cache(maxsize=1)
def native_target() -> Target:
    """The processor that this process runs on.

    LLVM knows a processor by its name; a virtual machine may hide some of its instructions, and
    those are switched off.
    """
    cpu = codegen.llvm_get_system_cpu()
    target = Target({"kind": "llvm", "mcpu": cpu})
    hidden = _hidden(features(target), _system_flags())
    return Target({"kind": "llvm", "mcpu": cpu, "mattr": hidden}) if hidden else target


@functools.lru_cache(maxsize=1)
def unoptimized_target() -> Target:
    """:func:`native_target` with LLVM's optimizations off: quick to compile for, slow to run."""
    native = native_target()
    hidden = {"mattr": list(native.attrs["mattr"])} if "mattr" in native.attrs else {}
    return Target({"kind": "llvm", "mcpu": str(native.attrs["mcpu"]), **hidden, "opt-level": 0})


def export_target() -> Target:
    """The target of exported libraries: any x86-64 of the last decade, else the generic one."""
    if arch(Target({"kind": "llvm"})) in X86:
        return Target({"kind": "llvm", "mcpu": EXPORT_CPU})
    return Target({"kind": "llvm"})


def exact_target(target: Target) -> Target:
    """``target`` without instructions that multiply and add with one rounding.

    LLVM contracts a multiplication and an addition where they meet in one loop, so float results
    would depend on what was fused with what; without these instructions they do not.  Processors
    other than x86's are taken as they are: theirs cannot be switched off.
    """
    if target.kind.name != "llvm" or arch(target) not in X86:
        return target
    fields = json.loads(str(target))
    return Target({**fields, "mattr": [*fields.get("mattr", []), *CONTRACTED]})


def as_target(target: Target | Mapping[str, Any] | None) -> Target:
    """``target`` as a Target; None is :func:`native_target`."""
    if target is None:
        return native_target()
    return target if isinstance(target, Target) else Target(dict(target))


def scope_config() -> VTAConfig:
    """The machine of the target in scope; the preset `sim` where that is none of VTA's.

    A target of VTA's has the key `vta` and the preset as its model, as those have that the tags
    `vta/pynq` and so on name: `with tvm.target.Target("vta/pynq"):`.

    Raises:
        VTAError: no preset has the name of the target's model.
    """
    target = Target.current(allow_none=True)
    if target is None or KEY not in target.keys:
        return VTAConfig()
    return VTAConfig.preset(str(target.attrs.get("model", "")))


def scope_host() -> Target:
    """The processor of the target in scope, a host of VTA's included; else this machine's."""
    target = Target.current(allow_none=True)
    if target is not None and KEY in target.keys:
        target = target.host
    return target or native_target()


def features(target: Target) -> frozenset[str]:
    """LLVM's names of what the target's processor can do."""
    return frozenset(map(str, codegen.llvm_get_cpu_features(target)))


def arch(target: Target) -> str:
    """The architecture, such as ``x86_64``."""
    triple = target.attrs.get("mtriple", "") or codegen.llvm_get_system_triple()
    return str(triple).split("-")[0]


def runs_here(target: Target) -> bool:
    """Whether this machine executes code for ``target``."""
    native = native_target()
    vectors = {f for f in features(target) if f.startswith(_CHECKED)}
    return arch(target) == arch(native) and vectors <= features(native)


def _hidden(wanted: frozenset[str], flags: frozenset[str] | None) -> list[str]:
    """Attributes that switch off what the operating system does not report."""
    if flags is None:
        return []
    return sorted(f"-{f}" for f in wanted if f.startswith(_CHECKED) and f not in flags)


def _system_flags() -> frozenset[str] | None:
    """The processor flags that Linux reports, in LLVM's spelling; None where it reports none."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(f.replace("_", "") for f in found[1].split()) if found else None


def device_code(module: tvm.IRModule, target: Target | str) -> tvm.runtime.Module:
    """The functions of a device as machine code, whatever the pass context around says.

    Faults are assertions, which a context may leave out, and the code is kept for other contexts.
    The pipeline is the shorter one: there are no blocks to lower, and the other takes a second.
    """
    with tvm.transform.PassContext():
        return tvm.tirx.build(module, target=Target(target), pipeline="tirx")
