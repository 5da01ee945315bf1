"""The quantization report as text: metrics, the table on a terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.console import Console

from vta_byoc.base.quantities import count
from vta_byoc.reports.quantization.operator_noise import Operator
from vta_byoc.reports.quantization.report import QuantizationReport, Remedy
from vta_byoc.reports.tables import plain_table, print_lines

SHOWN = 12
"""Operators in the table on a terminal; --json and the page have all."""
NONE = "–"


def decibel_text(value: float) -> str:
    """One digit; `exact` for tensors that are equal."""
    if math.isnan(value):
        return NONE
    return "exact" if math.isinf(value) else f"{value:.1f}"


@dataclass(frozen=True)
class Verdict:
    """What an SQNR of at least ``least`` dB says about a result."""

    least: float
    word: str
    meaning: str


FAIR = 20.0
"""dB from which a result is fair: below, look where it is lost."""
VERDICTS = (
    Verdict(30.0, "good", "the error is at most 3 % of the signal: classes seldom change"),
    Verdict(FAIR, "fair", "3 to 10 % of the signal: check the accuracy with vta-byoc eval"),
    Verdict(10.0, "poor", "10 to 32 % of the signal: expect other classes; try what is advised"),
    Verdict(-math.inf, "bad", "more than 32 % of the signal: vta-byoc compare calls it divergent"),
)
"""The error's share of the signal is 10^(-dB / 20) of its root mean square.

20 dB are a tenth of it, and 10 dB are where `compare` draws its line unless told otherwise.
"""


def verdict(sqnr: float) -> Verdict:
    """Whether ``sqnr`` in dB is good for a result of the model."""
    return next(found for found in VERDICTS if sqnr >= found.least)


def verdict_text(op: Operator) -> str:
    """Of a result: its SQNR, whether that is good and what it means; a sentence."""
    sqnr = op.measures.sqnr
    if not math.isfinite(sqnr):
        state = "exact" if math.isinf(sqnr) else "silent"
        return f"The result {op.name} is {state}."
    found = verdict(sqnr)
    return (
        f"{sqnr:.1f} dB of the result {op.name} are {found.word}: its error is {error_text(sqnr)}."
    )


def error_text(sqnr: float) -> str:
    """The error's share of the signal at ``sqnr`` in dB."""
    return f"{share_text(10 ** (-sqnr / 20))} % of the signal"


def limits_text() -> str:
    """The thresholds of `VERDICTS`, with their reason."""
    named = [f"{v.least:g} dB on it is {v.word} ({v.meaning})" for v in VERDICTS[:-1]]
    return f"From {', '.join(named)}; below it is {VERDICTS[-1].word} ({VERDICTS[-1].meaning})."


def share_text(value: float) -> str:
    """In percent, with two significant digits below 1 %."""
    share = 100 * value
    if share == 0:
        return "0"
    return f"{share:.0f}" if share >= 9.95 else f"{share:.1f}" if share >= 0.995 else f"{share:.2g}"


def scale_text(op: Operator) -> str:
    """The step, as a power of two where it is one, and the zero point."""
    if op.scale is None:
        return NONE
    mantissa, exponent = math.frexp(op.scale)
    step = f"2^{exponent - 1}" if mantissa == 0.5 else f"{op.scale:.3g}"
    return f"{step}, zero {op.zero_point}" if op.zero_point else step


def cosine_text(op: Operator) -> str:
    """The cosine between the result and the float model's, with four digits."""
    return NONE if op.measures.cosine is None else f"{op.measures.cosine:.4f}"


def used_text(op: Operator) -> str:
    """Levels that occur, and how far they reach."""
    levels = op.measures.levels
    return NONE if levels is None else f"{levels.used}, {share_text(levels.reach)} %"


def saturation_text(op: Operator) -> str:
    """The share of the result's values at the ends of int8."""
    levels = op.measures.levels
    return NONE if levels is None else share_text(levels.saturated)


def weight_text(op: Operator) -> str:
    """The SQNR of the weights, in dB; a dash for an operator that has none."""
    return NONE if op.weights is None else decibel_text(op.weights.sqnr)


COLUMNS = {
    "operator": lambda op: op.name,
    "harm %": lambda op: share_text(op.harm),
    "SQNR": lambda op: decibel_text(op.measures.sqnr),
    "own": lambda op: decibel_text(op.measures.own_sqnr),
    "inputs": lambda op: decibel_text(op.input_sqnr) if op.inputs else NONE,
    "cosine": cosine_text,
    "saturated %": saturation_text,
    "levels, reach": used_text,
    "scale": scale_text,
    "weights": weight_text,
}
"""Title -> text of a cell; the first is the name. SQNR in dB."""


def compared_with(report: QuantizationReport) -> str:
    """What the integer model was compared with, in words."""
    if report.came_quantized:
        return "the model as it came, float operators between its own quantize and dequantize"
    return "the float model"


def headline(report: QuantizationReport) -> list[tuple[str, str]]:
    """What matters first: title and value."""
    worst = report.harmful[0] if report.harmful else None
    saturated = [op for op in report.operators if op.measures.levels is not None]
    most = max(saturated, key=lambda op: _saturated(op), default=None)
    lines = [
        (
            f"result {op.name}",
            f"{decibel_text(op.measures.sqnr)} dB, {verdict(op.measures.sqnr).word}",
        )
        if math.isfinite(op.measures.sqnr)
        else (f"result {op.name}", "exact" if math.isinf(op.measures.sqnr) else "silent")
        for op in report.results
    ]
    if worst is not None:
        lines.append(("most harmful", f"{worst.name}, {share_text(worst.harm)} % of the noise"))
    if most is not None and _saturated(most):
        lines.append(("most saturated", f"{most.name}, {share_text(_saturated(most))} %"))
    if report.silent:
        lines.append(("silent", ", ".join(report.silent)))
    return lines


def _saturated(op: Operator) -> float:
    return op.measures.levels.saturated if op.measures.levels is not None else 0.0


def print_report(report: QuantizationReport, console: Console) -> None:
    """The most harmful operators first, what to try, and the results."""
    first, *rest = COLUMNS
    table = plain_table()
    table.add_column(first, overflow="fold")
    for title in rest:
        table.add_column(title, justify="right", no_wrap=True)
    for op in report.harmful[:SHOWN]:
        table.add_row(*(text(op) for text in COLUMNS.values()))
    console.print(table)
    hidden = len(report.harmful) - SHOWN
    if hidden > 0:
        console.print(f"and {count(hidden, 'operator')} that add less; --json and -o list all")
    console.print()
    tried = [op for op in report.harmful[:SHOWN] if op.advice]
    tried += [op for op in report.operators if op.advice and op not in report.harmful]
    causes = [(op.name, f"{each.cause}: {each.step}") for op in tried for each in op.advice]
    if causes:
        print_lines(causes, console)
        console.print()
    lines = [("compared", f"{count(report.samples, 'sample')}, with {compared_with(report)}")]
    adding = f"{len(report.harmful)} of {count(len(report.operators), 'tensor')} add noise"
    remedies = [("try", remedy_text(remedy)) for remedy in report.remedies]
    print_lines([*lines, ("tensors", adding), *headline(report), *remedies], console)


def remedy_text(remedy: Remedy) -> str:
    """What to try, for how many operators, and their share of the noise."""
    operators = count(len(remedy.operators), "operator")
    return f"{remedy.step}: {operators} with {share_text(remedy.harm)} % of the noise"
