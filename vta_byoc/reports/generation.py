"""What `vta-byoc generate` prints: the text, what a token costs, what the host copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.quantities import count, megabytes
from vta_byoc.decoding.memory import STEP
from vta_byoc.reports.tables import print_lines

if TYPE_CHECKING:
    from vta_byoc.decoding.costs import RunCost
    from vta_byoc.decoding.decoder import Decoder, Generated
    from vta_byoc.validation.bit_exact import TensorCheck

STEPS = ("import", "quantize", "compile", "generate", "reference", "time")


@dataclass(frozen=True)
class Generation:
    """Everything `vta-byoc generate` knows when it is done.

    Attributes:
        model: the model file as given.
        config: the preset or file as given.
        device: where the programs ran.
        decoder: what was compiled.
        prompt: its tokens.
        done: what was generated.
        costs: of a run of each program, by name.
        memory: bytes of weights, caches and all of the arena (`memory_bytes`).
        seconds: of each of STEPS that ran.
        check: the logits beside the integer reference's; None without --check.
    """

    model: str
    config: str
    device: str
    decoder: Decoder
    prompt: Sequence[int]
    done: Generated
    costs: Mapping[str, RunCost]
    memory: Mapping[str, int]
    seconds: Mapping[str, float]
    check: TensorCheck | None = None

    @property
    def bit_exact(self) -> bool | None:
        """Whether all logits are those of the integer reference; None if none was compared."""
        return None if self.check is None else self.check.equal

    @property
    def host_bytes(self) -> dict[str, float]:
        """Bytes that the host copied for each token, by name."""
        made = len(self.done.ids)
        return {name: nbytes / made for name, nbytes in self.done.traffic.items()}

    @property
    def prompt_text(self) -> str:
        """The prompt as characters; empty where the model keeps none."""
        characters = self.decoder.characters
        return "" if characters is None else characters.decoded(self.prompt)

    def to_json(self) -> JsonObject:
        """The object of `--json`; docs/cli.md explains its keys, which do not change."""
        token = self.costs[STEP]
        taken = {step: self.seconds.get(step) for step in STEPS}
        return {
            "model": self.model,
            "config": self.config,
            "device": self.device,
            "prompt": self.prompt_text,
            "prompt_ids": list(self.prompt),
            "text": self.done.text,
            "ids": list(self.done.ids),
            "bucket": self.decoder.tokens,
            "cycles_a_token": token.cycles,
            "bytes_a_token": token.moved_bytes,
            "programs": {
                name: {"runs": self.done.runs[name], **cost.to_json()}
                for name, cost in self.costs.items()
            },
            "host_bytes_a_token": self.host_bytes,
            "memory": dict(self.memory),
            "bit_exact": self.bit_exact,
            "seconds": {s: None if v is None else round(v, 3) for s, v in taken.items()},
        }


def print_generation(report: Generation, console: Console) -> None:
    """The text, and below it what it cost."""
    machine = report.decoder.programs.config.name
    title = f"{report.model} on {report.config} ({machine}), device {report.device}"
    console.print(Text(title, "bold"), soft_wrap=True)
    console.print()
    done = report.done
    if report.decoder.characters is None:
        console.print(Text(",".join(map(str, done.ids))), soft_wrap=True)
    else:
        whole = Text.assemble((report.prompt_text, "dim"), done.text)
        console.print(whole, soft_wrap=True)
    console.print()
    print_lines(_lines(report), console)


def _lines(report: Generation) -> Iterable[tuple[str, str]]:
    done, token = report.done, report.costs[STEP]
    made = count(len(done.ids), "token")
    yield (
        "tokens",
        f"{made} behind {len(report.prompt)} of the prompt; the bucket takes "
        f"{report.decoder.tokens}",
    )
    runs = ", ".join(f"{name} {count(number, 'time')}" for name, number in done.runs.items())
    yield "programs", f"{runs}; each is one region"
    clock = report.decoder.programs.config.timing.clock_mhz
    yield (
        "cycles",
        f"{token.cycles:,} a token, {token.milliseconds:,.2f} ms at {clock} MHz; the memory port's "
        f"bound is {token.port_cycles:,}, {100 * token.port_share:.1f} %",
    )
    yield (
        "DRAM",
        f"{megabytes(token.moved_bytes)} a token moved by VTA; weights, caches, tokens and results "
        f"are {megabytes(token.needed_bytes)}",
    )
    copies = ", ".join(f"{name} {nbytes:,.0f}" for name, nbytes in report.host_bytes.items())
    yield "host", f"bytes copied a token: {copies}"
    kept = ", ".join(f"{name} {megabytes(nbytes)}" for name, nbytes in report.memory.items())
    yield "memory", kept
    taken = [f"{s} {report.seconds[s]:.2f}" for s in STEPS if s in report.seconds]
    yield "seconds", ", ".join(taken)
    if report.check is not None:
        yield "check", check_text(report.check)


def check_text(check: TensorCheck) -> str:
    """The verdict of `--check`, with the first difference."""
    if check.equal:
        return f"bit-exact: {check.size:,} logits equal the integer reference"
    return f"NOT bit-exact: {check}"
