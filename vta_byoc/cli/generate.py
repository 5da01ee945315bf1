"""`vta-byoc generate`: text from a decoder, token by token, and what a token costs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.names import DeviceName
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import driver

if TYPE_CHECKING:
    import tvm

    from vta_byoc.cli.progress import Steps
    from vta_byoc.decoding.characters import Characters
    from vta_byoc.decoding.decoder import Decoder, Generated
    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.reports.generation import Generation
    from vta_byoc.validation.bit_exact import TensorCheck

MOST_TOKENS = 1_000_000


@click.command(short_help="Generate text with a decoder; report what a token costs.")
@click.argument("model")
@click.option(
    "--prompt",
    metavar="TEXT",
    help="What the text begins with, in the characters that the model's file keeps.",
)
@click.option(
    "--prompt-ids", metavar="N,N,...", help="The same as numbers of tokens, of any decoder."
)
@click.option(
    "--tokens",
    type=click.IntRange(1, MOST_TOKENS),
    required=True,
    metavar="N",
    help="How many to generate: the likeliest, one after the other.",
)
@commands.config_option
@commands.build_option
@commands.shape_option
@commands.calibration_option
@click.option(
    "--device",
    type=DeviceName(),
    default="sim",
    show_default=True,
    help="As of vta-byoc run; one that computes.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Compute the whole text with the integer reference too and compare all logits, bit for "
    "bit; exit code 1 if one differs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@commands.debug_option
@click.pass_context
def generate(
    ctx: click.Context,
    model: str,
    prompt: str | None,
    prompt_ids: str | None,
    tokens: int,
    config: str,
    shapes: tuple[str, ...],
    calibration: str | None,
    device: str,
    check: bool,
    as_json: bool,
) -> None:
    """Generate N tokens behind a prompt with MODEL, a decoder: ids (1, T) to logits, causal.

    Keys and values stay in the device's memory. T is the bucket: prompt and text have at most so
    many tokens. Where the file leaves it open, --shape ids=1,256 gives it.

    \b
    Examples:
      vta-byoc generate characters.onnx --prompt "You may " --tokens 200
      vta-byoc generate characters.onnx --prompt "You may " --tokens 40 --check --json
      vta-byoc generate decoder.onnx --prompt-ids 17,4,29 --tokens 20 --calibration ids.npz
    """
    from vta_byoc.cli.inputs import parse_shapes
    from vta_byoc.cli.machines import read_config
    from vta_byoc.cli.progress import Steps
    from vta_byoc.decoding.characters import Characters
    from vta_byoc.decoding.decoder import check_ids, check_length, check_machine, encoded

    given = _prompt(prompt, prompt_ids)
    if not driver(device).computes:
        raise VTAError(f'--device {device}; it computes nothing; use "--device sim"')
    machine, wanted, steps = read_config(config), parse_shapes(shapes), Steps()
    check_machine(machine)
    mod = commands.import_model(model, wanted, steps)
    bucket, characters = check_ids(mod), Characters.of(model)
    ids = encoded(given, characters)
    check_length(len(ids), tokens, bucket)
    decoder = _decoder(mod, calibration, characters, machine, device, steps)
    done = _generated(decoder, ids, tokens, device, steps)
    compared = _checked(decoder, ids, done, steps) if check else None
    report = _report(model, config, device, decoder, ids, done, compared, steps)
    _print(report, as_json)
    if report.bit_exact is False:
        ctx.exit(commands.CHECK_FAILED)


def _prompt(text: str | None, ids: str | None) -> str | list[int]:
    if (text is None) == (ids is None):
        how = "neither --prompt nor" if text is None else "both --prompt and"
        raise VTAError(f"{how} --prompt-ids is given; a text begins with one of them; give one")
    if text is not None:
        return text
    parts = [part.strip() for part in (ids or "").split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise VTAError(
            f'--prompt-ids "{ids}" is not N,N,...; numbers of tokens from 0 on are taken; write '
            "for example --prompt-ids 17,4,29"
        )
    return [int(part) for part in parts]


def _decoder(
    mod: tvm.IRModule,
    calibration: str | None,
    characters: Characters | None,
    machine: VTAConfig,
    device: str,
    steps: Steps,
) -> Decoder:
    """The decoder compiled, with the options of quantization and compilation of this command."""
    from vta_byoc.cli import stages
    from vta_byoc.decoding.decoder import compiled_decoder, kept_samples

    kept = None if calibration is not None else kept_samples(mod, characters)
    qmod = commands.quantize(mod, calibration, steps, machine, kept)
    with steps.step("compile", f"compiling for VTA {machine.name}"):
        return compiled_decoder(qmod, machine, stages.chosen(machine, device), characters)


def _generated(
    decoder: Decoder, ids: Sequence[int], tokens: int, device: str, steps: Steps
) -> Generated:
    text = f"generating {tokens} tokens on device {device}"
    with steps.counted("generate", text, tokens) as told:
        return decoder.generate(
            ids, tokens, device=device, progress=lambda done, _wanted: told(done)
        )


def _checked(decoder: Decoder, ids: Sequence[int], done: Generated, steps: Steps) -> TensorCheck:
    """The logits beside those of the integer reference, which computes the whole text at once."""
    import numpy as np

    from vta_byoc.validation.bit_exact import reference_runner, same_bits

    whole = [*ids, *done.ids[:-1]]
    padded = [*whole, *[0] * (decoder.tokens - len(whole))]
    with steps.step("reference", "running the integer reference"):
        run = reference_runner(decoder.qmod, {})
        logits = run([np.array([padded], decoder.programs.windows.ids_dtype)]).outputs[0]
    return same_bits("logits", "output", done.logits, logits[0, len(ids) - 1 : len(whole)])


def _report(
    model: str,
    config: str,
    device: str,
    decoder: Decoder,
    ids: Sequence[int],
    done: Generated,
    compared: TensorCheck | None,
    steps: Steps,
) -> Generation:
    from vta_byoc.decoding.costs import memory_bytes, run_costs
    from vta_byoc.reports.generation import Generation

    with steps.step("time", "timing the programs"):
        costs, memory = run_costs(decoder.programs), memory_bytes(decoder.programs)
    seconds = steps.seconds
    return Generation(model, config, device, decoder, ids, done, costs, memory, seconds, compared)


def _print(report: Generation, as_json: bool) -> None:
    from vta_byoc.cli.progress import stdout_console
    from vta_byoc.reports.generation import check_text, print_generation

    if not as_json:
        print_generation(report, stdout_console())
        return
    say(json.dumps(report.to_json(), indent=2))
    if report.check is not None and not report.check.equal:
        say(check_text(report.check), err=True)
