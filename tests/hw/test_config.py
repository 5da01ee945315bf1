"""Machines that exist and machines that are refused by name."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from vta_byoc.hw.config import FieldWidths, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Opcode
from vta_byoc.hw.timing.engine import simulate_stream
from vta_byoc.hw.timing_parameters import Timing


def test_default_sizes():
    cfg = VTAConfig()
    assert (cfg.inp_elem_bytes, cfg.wgt_elem_bytes, cfg.acc_elem_bytes) == (16, 256, 64)
    assert (cfg.out_elem_bytes, cfg.uop_elem_bytes) == (16, 4)
    assert (cfg.inp_depth, cfg.wgt_depth, cfg.acc_depth, cfg.uop_depth) == (2048, 1024, 2048, 8192)
    assert cfg.index_bits == {"inp": 11, "wgt": 10, "acc": 11, "uop": 13}


def test_presets():
    assert VTAConfig.presets() == sorted(
        [
            "sim",
            "pynq",
            "de10nano",
            "ultra96",
            "zcu104",
            "chisel",
            "core",
            "tophub_4x8",
            "2x16",
            "1x32",
        ]
    )
    for name in VTAConfig.presets():
        cfg = VTAConfig.preset(name)
        assert VTAConfig.from_dict(cfg.to_dict()) == cfg
    assert VTAConfig.preset("tophub_4x8").name == "4x8"
    assert VTAConfig.preset("ultra96").timing.clock_mhz == 333
    assert VTAConfig.preset("ultra96").timing.port_bytes == 16
    assert VTAConfig.preset("zcu104").hw_ver == "0.0.1"


def test_presets_of_boards_have_what_their_cores_have() -> None:
    """Neither the Chisel nor the HLS core has MUL or ACC_8BIT; the functional simulator has."""
    boards = ("pynq", "de10nano", "ultra96", "zcu104", "chisel")
    for name in VTAConfig.presets():
        caps = VTAConfig.preset(name).capabilities
        assert (caps.mul, caps.acc_8bit) == ((False, False) if name in boards else (True, True))


def test_a_profile_brings_its_parameters() -> None:
    """A file that names one need not repeat them; what it gives counts."""
    timing = VTAConfig.preset("chisel").timing
    assert timing == Timing.of("chisel")
    assert (timing.fetch_burst, timing.queue_depth, timing.compute_start) == (8, 512, 7)
    given = {"profile": "chisel", "compute_start": 9}
    assert VTAConfig.from_dict({"TIMING": given}).timing == Timing.of("chisel", compute_start=9)
    assert VTAConfig().timing == Timing.of("default")


def test_field_widths_stay_when_buffers_shrink() -> None:
    """Where a core fixes its fields, depths do not move a bit; else widths follow the depths."""
    sim, chisel = VTAConfig.preset("sim"), VTAConfig.preset("chisel")
    assert (chisel.uop_depth, chisel.index_bits) == (2048, sim.index_bits)
    fields = {"uop_bgn": 5, "uop_end": 41, "iter_out": 14, "dst_factor_in": 98, "wgt_factor_out": 9}
    words = ISA.of(sim).encode(Opcode.GEMM, **fields)
    assert ISA.of(chisel).encode(Opcode.GEMM, **fields) == words
    free = dataclasses.replace(chisel, field_widths=FieldWidths())
    assert free.index_bits["uop"] == 11
    assert ISA.of(free).encode(Opcode.GEMM, **fields) != words
    assert free.key == sim.key.replace("u15", "u13")
    assert chisel.key == f"{free.key}_f11_10_11_13"
    given = dataclasses.replace(sim, field_widths=FieldWidths(13, 11, 10, 11))
    assert given.key == sim.key
    assert VTAConfig.from_dict(given.to_dict()) == given


def test_wider_fields_reach_no_further_than_the_buffer() -> None:
    """An index that its field can hold and the buffer has not is refused by the simulators."""
    config = VTAConfig.preset("chisel")
    insns = [ISA.of(config).encode(Opcode.GEMM, uop_end=2049), ISA.of(config).encode(Opcode.FINISH)]
    with pytest.raises(VTAError, match="micro-op 2049; the range must rise and end by 2048"):
        simulate_stream(config, np.array(insns, np.uint64))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"LOG_BLOCK": 3},
            "configuration 1x8 cannot be encoded: micro-op needs 36 bits of 32, GEMM word 1 needs "
            "72 bits of 64, ALU word 1 needs 68 bits of 64; index widths are log2 of the buffer "
            "depths: lower LOG_*_BUFF_SIZE",
        ),
        (
            {"LOG_BLOCK": 3, "LOG_BATCH": 1},
            "configuration 2x8 cannot be encoded: micro-op needs 34 bits of 32, GEMM word 1 needs "
            "68 bits of 64; index widths are log2 of the buffer depths: lower LOG_*_BUFF_SIZE",
        ),
        (
            {"LOG_WGT_BUFF_SIZE": 8},
            "configuration 1x16: LOG_WGT_BUFF_SIZE 8 is 256 bytes; an element is 256 bytes and at "
            "least 2 must fit; raise it to 9 or more",
        ),
        (
            {"LOG_INP_WIDTH": 4},
            "configuration key LOG_INP_WIDTH is 4; it must be an integer from 3 to 3; "
            "correct it in the configuration file",
        ),
        (
            {"LOG_BATCH": -1},
            "configuration key LOG_BATCH is -1; it must be an integer from 0 to 6; "
            "correct it in the configuration file",
        ),
        (
            {"LOG_BLOCK": "four"},
            "configuration key LOG_BLOCK is 'four'; it must be an integer from 2 to 7; "
            "correct it in the configuration file",
        ),
        (
            {"LOG_INP_BUFF_SIZE": 22},
            "configuration 1x16: the INP buffer has 262144 elements; sram_base reaches 65536; "
            "lower LOG_INP_BUFF_SIZE",
        ),
        (
            {"LOG_BLOCK_IN": 4, "LOG_BLOCK_OUT": 5},
            "configuration: LOG_BLOCK_IN 4 and LOG_BLOCK_OUT 5 differ; this machine has square "
            "blocks; make them equal",
        ),
        (
            {"CAPABILITIES": {"mul": 1}},
            "configuration: CAPABILITIES.mul is 1; it must be true or false; correct it",
        ),
        (
            {"FIELD_WIDTHS": {"acc": 10}},
            "configuration 1x16: FIELD_WIDTHS.acc is 10 bits; the ACC buffer has 2048 elements and "
            "needs 11; raise it or lower LOG_ACC_BUFF_SIZE to 16",
        ),
        (
            {"FIELD_WIDTHS": {"acc": 12, "inp": 12}},
            "configuration 1x16 cannot be encoded: micro-op needs 34 bits of 32, GEMM word 1 needs "
            "68 bits of 64, ALU word 1 needs 68 bits of 64; index widths are FIELD_WIDTHS or log2 "
            "of the buffer depths: lower FIELD_WIDTHS or LOG_*_BUFF_SIZE",
        ),
        (
            {"FIELD_WIDTHS": {"uop": 0}},
            "configuration key FIELD_WIDTHS.uop is 0; it must be an integer from 1 to 16; "
            "correct it in the configuration file",
        ),
        (
            {"TIMING": {"port_bytes": 0}},
            "configuration key TIMING.port_bytes is 0; it must be an integer from 1 to 4096; "
            "correct it in the configuration file",
        ),
        (
            {"TIMING": {"profile": "fast"}},
            "configuration key TIMING.profile is 'fast'; profiles are default, chisel, core; "
            "choose one",
        ),
        (
            {"TIMING": 3},
            "configuration: TIMING is 3; it must be an object of KEY: value pairs",
        ),
    ],
)
def test_impossible_machines_are_refused(keys, text):
    with pytest.raises(VTAError) as err:
        VTAConfig.from_dict(keys)
    assert str(err.value) == text


def test_unknown_key_and_preset():
    with pytest.raises(VTAError, match="configuration: unknown key LOG_BLOK; known keys: HW_VER, "):
        VTAConfig.from_dict({"LOG_BLOK": 4})
    with pytest.raises(VTAError) as err:
        VTAConfig.preset("pynk")
    assert str(err.value) == (
        "unknown preset 'pynk'; known: 1x32, 2x16, chisel, core, de10nano, pynq, sim, tophub_4x8, "
        "ultra96, zcu104; choose one or give a JSON file"
    )


def test_files(tmp_path):
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps({"LOG_BATCH": 1, "LOG_INP_BUFF_SIZE": 16, "LOG_ACC_BUFF_SIZE": 18}))
    assert VTAConfig.from_json(path).name == "2x16"
    with pytest.raises(VTAError, match=r"missing.json cannot be read \(No such file"):
        VTAConfig.from_json(tmp_path / "missing.json")
    path.write_text("{")
    with pytest.raises(VTAError, match="is not JSON"):
        VTAConfig.from_json(path)
    path.write_text("[1]")
    with pytest.raises(VTAError, match="holds no JSON object"):
        VTAConfig.from_json(path)


def test_key_depends_on_what_programs_see():
    assert VTAConfig.preset("pynq").key == VTAConfig.preset("ultra96").key
    assert VTAConfig.preset("pynq").key != VTAConfig.preset("2x16").key
