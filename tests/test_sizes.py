"""Files and functions of the product stay small enough to be read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES, MOST_OF_A_FUNCTION = 400, 50
FILES = sorted([*(ROOT / "vta_byoc").rglob("*.py"), *(ROOT / "hw").rglob("*.py")])


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines that say what a function does are not held against it."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and ast.get_docstring(node) is not None:
        return (first.end_lineno or 0) - first.lineno + 1
    return 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1 - docstring_lines(node)
            assert lines <= MOST_OF_A_FUNCTION, f"{node.name}: {lines} lines"


def test_modules_beside_the_rooms() -> None:
    assert len(list((ROOT / "vta_byoc").glob("*.py"))) <= 12


def test_a_common_name_names_one_class() -> None:
    """Words that every part of a compiler has a use for; a second class says what it is one of."""
    common = {"Accumulator", "Axis", "Box", "Choice", "Demands", "Epilogue"}
    common |= {"Graph", "Linear", "Plan", "Step", "Tensor", "Work"}
    found = [
        node.name
        for folder in ("vta_byoc", "hw")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name in common
    ]
    assert sorted(found) == sorted(set(found))
    assert {"Choice", "Epilogue", "Plan", "Step"} <= set(found)
