"""The machine: VTA's configuration, instruction set, programs and simulators.

Imports nothing from the compiler; installed as `vta_byoc.hw`.
"""
