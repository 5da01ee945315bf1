"""Executables of the Relax VM whose functions are machine code, so that no JIT compiles them."""

from __future__ import annotations

from tvm import relax

from vta_byoc.hw.sim.machine_code import with_machine_code

KIND = "llvm"
"""Of a module that the JIT would compile."""


def linked(executable: relax.VMExecutable) -> relax.VMExecutable:
    """Give an executable its functions as a loaded library, so that no JIT compiles them.

    Args:
        executable: as `relax.build` made it for the host's CPU; its functions are exchanged.

    Returns:
        The same executable; unchanged where there is no linker, or where it does not link.
    """
    modules = list(executable.mod.imports)
    if [module.kind for module in modules] != [KIND]:
        return executable
    library = with_machine_code(modules[0])
    if library is not modules[0]:
        executable.mod.clear_imports()
        executable.mod.import_module(library)
    return executable
