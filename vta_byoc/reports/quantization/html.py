"""One self-contained HTML page about what quantization costs, operator by operator.

Equal input gives equal bytes; the page loads nothing from anywhere.
"""

from __future__ import annotations

from pathlib import PurePath

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

import vta_byoc
from vta_byoc.base.quantities import count
from vta_byoc.reports.html.page import script_json, template
from vta_byoc.reports.quantization.charts import BEYOND, OWN, TOTAL, bin_axis, details, sqnr_chart
from vta_byoc.reports.quantization.report import QuantizationReport
from vta_byoc.reports.quantization.text import (
    COLUMNS,
    compared_with,
    headline,
    limits_text,
    remedy_text,
    share_text,
    verdict_text,
)

ADVISED = 20
"""Operators in the list of what to try; the big table has all."""


def quantization_html(report: QuantizationReport, model: str, options: str) -> str:
    """The page of `vta-byoc quantize-report`.

    Args:
        report: what it shows.
        model: the model file; its name is the title.
        options: how it was quantized, for people.
    """
    harmful = [op for op in report.harmful if op.advice]
    harmful += [op for op in report.operators if op.advice and op not in harmful]
    first = opening(report)
    return template("quantization.html").render(
        title=f"{PurePath(model).name}, quantized",
        model=PurePath(model).name,
        options=options,
        samples=count(report.samples, "sample"),
        compared_with=compared_with(report),
        version=vta_byoc.__version__,
        headline=headline(report),
        verdicts=[*(verdict_text(op) for op in report.results), limits_text()],
        remedies=[remedy_text(remedy) for remedy in report.remedies],
        advised=[(op, share_text(op.harm)) for op in harmful[:ADVISED]],
        columns=list(COLUMNS),
        rows=[[text(op) for text in COLUMNS.values()] for op in report.operators],
        colors={"total": TOTAL, "own": OWN, "beyond": BEYOND},
        first=first,
        data_json=script_json(
            {
                "chart": sqnr_chart(report.operators),
                "details": details(report.operators),
                "bins": bin_axis(),
                "colors": {"int8": TOTAL, "beyond": BEYOND},
                "first": first,
            }
        ),
        plotly_js=get_plotlyjs(),
    )


def opening(report: QuantizationReport) -> int:
    """The operator that the page opens on.

    It is the most harmful one that has levels to count; of a model without harm, one that has
    weights, too, so that both histograms show something; the first where none has any.
    """
    counted = [op for op in report.harmful if op.measures.levels is not None]
    rest = [op for op in report.operators if op.measures.levels is not None]
    rest.sort(key=lambda op: op.weights is None)
    found = [*counted, *rest]
    return report.operators.index(found[0]) if found else 0
