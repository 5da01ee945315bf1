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
    remedy_text,
    share_text,
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
    first = report.operators.index(report.harmful[0]) if report.harmful else 0
    return template("quantization.html").render(
        title=f"{PurePath(model).name}, quantized",
        model=PurePath(model).name,
        options=options,
        samples=count(report.samples, "sample"),
        compared_with=compared_with(report),
        version=vta_byoc.__version__,
        headline=headline(report),
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
