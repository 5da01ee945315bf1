"""Programs kept on disk: the same as compiled ones, for other weights too, never wrong ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet

from vta_byoc.hw.cache import CACHE_VARIABLE, tell_unusable
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError, VTAWarning
from vta_byoc.hw.program.constants import with_constants, without_constants
from vta_byoc.hw.program.program import Program
from vta_byoc.options import BuildOptions
from vta_byoc.passes import kept_programs, lower_regions
from vta_byoc.pipeline import compile_programs
from vta_byoc.strategies.conv.conv2d import Conv2d
from vta_byoc.strategy import STRATEGIES

CONFIG = VTAConfig.preset("pynq")
OTHER = VTAConfig(log_uop_buff_size=14)


def network(seed: int = 0, *, same: bool = False, shift: int = 9) -> tvm.IRModule:
    """Two convolutions and a residual; ``same``: the second has the first one's weights."""
    net = IntegerNet(seed, data=(1, 16, 4, 4))
    (data,) = net.params
    first = net.conv(data, 16, shift=shift, name="first")
    if same:
        net.rng = np.random.default_rng(seed)
    second = net.conv(first, 16, shift=shift, name="second")
    return net.module(net.residual(first, second, name="sum"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "kept"
    monkeypatch.setenv(CACHE_VARIABLE, str(path))
    monkeypatch.setattr(kept_programs, "WORTH_SECONDS", 0.0)
    tell_unusable.cache_clear()
    yield path
    tell_unusable.cache_clear()


def compiled(mod: tvm.IRModule, config: VTAConfig = CONFIG, **options: object) -> Program:
    given = BuildOptions(config=config, **options)  # type: ignore[arg-type]
    (program,) = compile_programs(mod, options=given).values()
    return program


def contents(program: Program, name: str) -> np.ndarray:
    """Of a constant."""
    symbol = program.symbol(name)
    start = symbol.offset - program.input_bytes
    data = program.image[start : start + symbol.nbytes]
    return data.view(symbol.dtype).reshape(symbol.shape)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{kept_programs.SUFFIX}"))


def fresh(mod: tvm.IRModule, monkeypatch: pytest.MonkeyPatch) -> Program:
    """What is compiled where nothing is kept."""
    with monkeypatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, "off")
        return compiled(mod)


def refuse_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_region(*_: object) -> Program:
        raise AssertionError("compiled")

    monkeypatch.setattr(lower_regions, "compile_region", compile_region)


# ---------------------------------------------------------------- what is found
def test_a_kept_program_is_the_compiled_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(network())
    assert len(entries(folder)) == 1
    assert first == fresh(network(), monkeypatch)
    refuse_to_compile(monkeypatch)
    assert compiled(network()) == first


def test_other_weights_find_it_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(network())
    wanted = fresh(network(1), monkeypatch)
    refuse_to_compile(monkeypatch)
    assert compiled(network(1)) == wanted


def test_whatever_instructions_depend_on_is_asked_for(folder: Path) -> None:
    compiled(network())
    for number, ask in enumerate(
        (
            lambda: compiled(network(shift=8)),
            lambda: compiled(network(same=True)),
            lambda: compiled(network(), OTHER),
            lambda: compiled(network(), without_rewrites=("early_loads",)),
            lambda: compiled(network(), objective="dram-bytes"),
            lambda: compiled(network(), scopes="dram"),
        )
    ):
        ask()
        assert len(entries(folder)) == 2 + number


def test_other_sources_are_other_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(network())
    changed = {**kept_programs._surroundings(), "sources": "edited"}
    monkeypatch.setattr(kept_programs, "_surroundings", lambda: changed)
    compiled(network())
    assert len(entries(folder)) == 2


def test_the_text_names_values_not_places_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    ask = kept_programs.asked_of

    def told(*given: object) -> str | None:
        texts.append(ask(*given))  # type: ignore[arg-type]
        return texts[-1]

    monkeypatch.setattr(lower_regions, "asked_of", told)
    compiled(network())
    compiled(network(2))
    assert texts[0] == texts[1] and " at 0x" not in texts[0] and "..." not in texts[0]
    assert "Conv2dWorkload(" in texts[0] and "tile={" in texts[0] and "Objective(" in texts[0]


def test_strategies_of_others_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(Conv2d):
        """A strategy whose sources no digest holds."""

    monkeypatch.setitem(STRATEGIES, "conv2d", Theirs())
    compiled(network())
    assert not entries(folder)


# ---------------------------------------------------------------- what is not believed
@pytest.mark.parametrize("damage", ["bit", "cut", "noise", "empty", "of_another", "constants"])
def test_a_damaged_entry_is_compiled_again(
    folder: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = compiled(network())
    (path,) = entries(folder)
    data = path.read_bytes()
    text = zlib.decompress(data)
    middle = len(data) // 2
    path.write_bytes(
        {
            "bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "cut": data[:middle],
            "noise": np.random.default_rng(0).bytes(4096),
            "empty": b"",
            "of_another": zlib.compress(b"0" * 64 + text[64:]),
            # whole, but of a network with other tensors
            "constants": zlib.compress(text[:64] + _of_another_network()),
        }[damage]
    )
    assert compiled(network()) == wanted
    assert zlib.decompress(path.read_bytes()) == text
    refuse_to_compile(monkeypatch)
    assert compiled(network()) == wanted


def _of_another_network() -> bytes:
    net = IntegerNet(0, data=(1, 32, 4, 4))
    program = compiled(net.module(net.conv(net.params[0], 16)))
    return kept_programs.to_file_bytes(program)


def test_what_cannot_be_compiled_is_not_kept(folder: Path) -> None:
    def refuse() -> Program:
        raise VTAError("no tile fits")

    with pytest.raises(VTAError, match="^no tile fits$"):
        kept_programs.kept_program("asked", {}, CONFIG, refuse)
    assert not list(folder.iterdir())


# ---------------------------------------------------------------- the folder
def test_what_compiles_quickly_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_programs, "WORTH_SECONDS", 1000.0)
    compiled(network())
    assert not entries(folder)


def test_a_folder_that_others_may_write_is_not_read(folder: Path) -> None:
    wanted = compiled(network())
    folder.chmod(0o777)
    with pytest.warns(VTAWarning, match="is not used: others may write it"):
        assert compiled(network()) == wanted


def test_old_entries_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_programs, "MOST_ENTRIES", 2)
    for shift in (7, 8, 9):
        compiled(network(shift=shift))
    assert len(entries(folder)) == 2


# ---------------------------------------------------------------- constants apart
def test_constants_come_back_where_they_lay() -> None:
    program = compiled(network())
    names = [s.name for s in program.symbols if s.kind == "const"]
    values = {name: contents(program, name) for name in names}
    bare = without_constants(program, names)
    assert not any(contents(bare, name).any() for name in names)
    assert bare.insns.tobytes() == program.insns.tobytes() and bare != program
    assert with_constants(bare, values) == program


def test_constants_that_do_not_fit_are_refused() -> None:
    program = compiled(network())
    name = next(s.name for s in program.symbols if s.kind == "const")
    value = contents(program, name)
    again = "; compile the program again"
    with pytest.raises(VTAError) as caught:
        with_constants(program, {name: value[None]})
    assert str(caught.value) == (
        f"constant {name} of the program is {value.shape} {value.dtype}, not "
        f"{value[None].shape} {value.dtype}{again}"
    )
    with pytest.raises(VTAError) as caught:
        without_constants(program, ["x"])
    assert str(caught.value) == f"the program has no constant x{again}"
