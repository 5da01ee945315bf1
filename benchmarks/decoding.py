"""Decoders, token by token: cycles beside the memory port's bound, and that no bit differs.

Three decoders on the preset `sim`: the one of characters that is trained here, a layer of GPT-2's
size (768 channels, 12 heads), and a block of 100 million parameters, both of drawn weights and with
128 tokens.  The port's bound of a token is the time in which weights, caches, tokens and results
pass the port once.  Of each decoder tokens are generated and their logits compared with those
of the integer reference, which computes the whole sequence at once; that the trained one loses
nothing by integers is its perplexity on parts of the text that it was not trained on.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks.networks import at_least, measured
from models import characters
from models._decoder import DecoderSizes
from models._decoder import decoder as made
from models._vit import Drawn
from vta_byoc import load_model
from vta_byoc.decoding.costs import memory_bytes, run_cost
from vta_byoc.decoding.decoder import Decoder, decoder
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.validation.accuracy import host_runner
from vta_byoc.validation.bit_exact import reference_runner

CHARACTERS = "characters"
PROMPT, GENERATED = "You may ", 200
TOKENS, VOCABULARY = 128, 256
DRAWN = {
    "gpt2_layer": DecoderSizes(TOKENS, 768, 12, 3072, 1, VOCABULARY),
    "llama_block_100m": DecoderSizes(TOKENS, 2560, 40, 10880, 1, VOCABULARY, shared=8, llama=True),
}
"""Decoders of drawn weights."""
DRAWN_PROMPT, DRAWN_GENERATED = 3, 20
LEAST_SHARE = {"gpt2_layer": 90.0, "llama_block_100m": 90.0}
"""Percent of the port's bound, where weights are nearly all that a token needs."""
MOST_PERPLEXITY = 1.02
"""Integers over float."""
NAMES = (CHARACTERS, *DRAWN)


def drawn(name: str) -> Decoder:
    """A decoder of drawn weights, calibrated with drawn tokens."""
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, VOCABULARY, (1, TOKENS)) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(made(name, DRAWN[name], Drawn(3)), path)
        return decoder(path, calibration=samples)


def whole_sequence(found: Decoder) -> Callable[[Sequence[int]], np.ndarray]:
    """The integer reference: tokens to the logits of each, (tokens, vocabulary)."""
    run, dtype = reference_runner(found.qmod, {}), found.programs.windows.ids_dtype

    def logits(ids: Sequence[int]) -> np.ndarray:
        padded = np.array([[*ids, *[0] * (found.tokens - len(ids))]], dtype)
        return run([padded]).outputs[0][0, : len(ids)]

    return logits


def perplexity(logits: Callable[[np.ndarray], np.ndarray]) -> float:
    """Of the text that the decoder was not trained on: e to the mean loss of a character."""
    losses, known = [], characters.trained_on()
    ids = characters.encoded(characters.text())
    for end in _held_out_ends(len(ids)):
        begin = end - characters.TOKENS
        scores = logits(ids[begin:end]).astype(np.float64)
        shares = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
        for place in range(1, characters.TOKENS):
            if not known[begin + place]:
                losses.append(-shares[place - 1, ids[begin + place]])
    return float(np.exp(np.mean(losses)))


def _held_out_ends(count: int) -> range:
    """Where the sequences of `characters.held_out` end."""
    step = characters.EVERY * characters.PART
    return range(step, count + 1, step)


def measure(name: str) -> dict[str, Any]:
    """Compile, time and check one decoder in this process."""
    trained = name == CHARACTERS
    found = decoder(characters.TRAINED) if trained else drawn(name)
    logits = whole_sequence(found)
    prompt = found.encoded(PROMPT) if trained else list(range(DRAWN_PROMPT))
    done = found.generate(prompt, GENERATED if trained else DRAWN_GENERATED)
    wanted = logits([*prompt, *done.ids[:-1]])[len(prompt) - 1 :]
    program = found.programs.step.program
    cost, time = run_cost(program), simulate(program)
    row = {
        "name": name,
        "cost": cost.to_json(),
        "port_busy": sum(time.port.values()) / time.cycles,
        "prefill_cycles": simulate(found.programs.prefill.program).cycles,
        "memory": memory_bytes(found.programs),
        "tokens": len(done.ids),
        "equal_tokens": int((wanted.argmax(-1) == np.array(done.ids)).sum()),
        "logits": done.logits.size,
        "different": int((wanted != done.logits).sum()),
        "cache_bytes": done.traffic["caches"],
        "host_bytes": sum(done.traffic.values()) / len(done.ids),
        "runs": done.runs["decode"] / len(done.ids),
    }
    if trained:
        run = host_runner(load_model(characters.TRAINED))
        row["perplexity"] = perplexity(logits)
        row["float_perplexity"] = perplexity(lambda ids: run([ids[None]])[0])
    return row


def figures_of(row: dict[str, Any]) -> list[Figure]:
    """The figures of one decoder."""
    name, cost = row["name"], row["cost"]
    share, least = 100 * cost["port_share"], LEAST_SHARE.get(name)
    figures = [
        Figure(f"{name}_cycles", cost["cycles"], "cycles", bound=cost["port_cycles"]),
        Figure(f"{name}_milliseconds", cost["milliseconds"], "ms"),
        Figure(f"{name}_port_share", share, "%")
        if least is None
        else at_least(f"{name}_port_share", share, "%", least),
        Figure(f"{name}_port_busy", 100 * row["port_busy"], "%"),
        Figure(
            f"{name}_megabytes", cost["moved_bytes"] / 1e6, "MB", bound=cost["needed_bytes"] / 1e6
        ),
        Figure(f"{name}_prefill_cycles", row["prefill_cycles"], "cycles"),
        Figure(f"{name}_cache_kilobytes", row["memory"]["caches"] / 1e3, "kB"),
        Figure(f"{name}_host_bytes", row["host_bytes"], "bytes"),
        Figure.at_most(f"{name}_host_cache_bytes", row["cache_bytes"], "bytes", 0),
        Figure.at_most(f"{name}_regions_a_token", row["runs"], "regions", 1),
        at_least(f"{name}_tokens_equal", row["equal_tokens"], "tokens", row["tokens"]),
        Figure(f"{name}_logits_compared", row["logits"], "logits"),
        Figure.at_most(f"{name}_logits_different", row["different"], "logits", 0),
    ]
    if "perplexity" in row:
        figures.append(
            Figure.at_most(
                f"{name}_perplexity",
                row["perplexity"],
                "",
                MOST_PERPLEXITY * row["float_perplexity"],
                baseline=row["float_perplexity"],
                baseline_name="float",
            )
        )
    return figures


def main() -> int:
    parser = arguments("Decoders, token by token, beside the memory port's bound.")
    options, rows = measured(parser, NAMES, NAMES, measure, __file__)
    if options.measure:
        return 0
    return report("decoding", [figure for row in rows for figure in figures_of(row)], options.json)


if __name__ == "__main__":
    sys.exit(main())
