"""The page of error messages: every text with which the code refuses something, from the code.

Texts are found where errors and refusals are made. They are grouped by where a user meets them; of
each, the cause is what was found and its limit, and the fix is the next step that it ends with.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ERRORS = re.compile(r"^_?(?!Assertion|Attribute)\w*(Error|Refusal|Refused)$")
"""What refuses; not our own mistakes, and not Python's text for a name that a module lacks."""
SHOWN_BY = frozenset(
    {
        *("join", "sorted", "list", "tuple", "set", "str", "repr", "map", "len"),
        *("listed", "_listed", "size", "_quoted", "_first_line", "first_line", "count", "percent"),
    }
)
"""Functions that only bring what they are given into words."""
PARTS = ("what", "value", "limit", "remedy")
"""The fields of `Refusal`, in order."""

GROUPS: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("The command line", "Options, files and paths.", ("cli", "base")),
    ("Loading a model", "Files, operators and shapes that importers take.", ("importers", "relay")),
    ("Quantizing", "Calibration, scales, operators kept float.", ("quantize", "quantization")),
    (
        "Where operators run",
        "Why an operator stays on the CPU: these stand in the placement, nothing fails.",
        ("partition", "partitioning", "strategies", "strategy", "graph_pack", "cost", "workload"),
    ),
    (
        "Where tensors live",
        "Scopes, demands, tensors fused on chip.",
        ("scopes", "vdevice", "passes"),
    ),
    ("Tuning logs and pins", "Schedules of layers, read and pinned.", ("tuning", "tune")),
    (
        "Schedules of your own",
        "What a nest must be, and what a kernel takes.",
        ("schedule", "codegen", "registry", "extend", "testing"),
    ),
    ("Compiling", "Options and stages of the pipeline.", ("options", "pipeline", "ir")),
    ("Exploring machines", "Spaces, logs of results, workers.", ("explore",)),
    ("Running", "Arrays that an executable takes; libraries and bundles.", ("runtime", "bundle")),
    ("Generating text", "Decoders, their prompts and their lengths.", ("decoding",)),
    ("Checking and reporting", "Comparisons, accuracy, reports.", ("validation", "reports")),
    (
        "The machine",
        "Configurations, program files, the simulators and the verifier.",
        ("hw",),
    ),
)
"""Title, what belongs there, and the rooms whose messages they are."""
ELSEWHERE = ("The package", "Installing and importing it.")

WITHIN = {
    "vta_byoc.importers.onnx": ("vta_byoc.importers.onnx", "cannot be imported"),
    "vta_byoc.base.arrays": ("vta_byoc.cli.inputs", "is not a .npy file"),
    "vta_byoc.tuning.log": ("vta_byoc.tuning.log", "is damaged"),
    "hw.program.file": ("hw.program.file", "holds no program"),
    "hw.driver.gaps": ("hw.driver.register_driver", "of contiguous memory"),
}
"""Modules whose errors are the reason in a longer message: where that is made, words of it."""
FRAME = re.compile(r"(?:: |\) |⟩ |has )⟨[^⟩]*⟩$")
GOES_ON = "what the end of the text says"
"""The next step of a message that ends with another one."""


@dataclass(frozen=True)
class Message:
    """One text: what is wrong, and the next step ("" where the text has none).

    Attributes:
        function: the innermost function that makes it; "" in a class or a module.
    """

    wrong: str
    fix: str
    module: str
    function: str = field(default="", compare=False)


def messages_by_group() -> dict[tuple[str, str], list[Message]]:
    """Every message, in the order of GROUPS and of the texts."""
    found: dict[tuple[str, str], set[Message]] = defaultdict(set)
    for path in (*(ROOT / "hw").rglob("*.py"), *(ROOT / "vta_byoc").rglob("*.py")):
        module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        room = module.removeprefix("vta_byoc.").split(".")[0]
        for message in _made(ast.parse(path.read_text(encoding="utf-8")), module):
            found[_group(room)].add(message)
    every = [message for messages in found.values() for message in messages]
    found = {
        group: {_with_next_step(message, every) for message in messages}
        for group, messages in found.items()
    }
    order = [(title, about) for title, about, _ in GROUPS] + [ELSEWHERE]
    by_text = lambda message: (message.wrong, message.module)  # noqa: E731
    return {group: sorted(found[group], key=by_text) for group in order if group in found}


def _with_next_step(message: Message, every: Sequence[Message]) -> Message:
    """A message with the step of the longer one in which it stands, or of the one at its end."""
    if message.fix:
        return message
    if FRAME.search(message.wrong) and not message.wrong.startswith("need "):
        return replace(message, fix=GOES_ON)
    for module, (maker, words) in WITHIN.items():
        if message.module.startswith(module):
            longer = (m for m in every if m.module.startswith(maker) and words in m.wrong and m.fix)
            return replace(message, fix=next(m.fix for m in longer))
    return message


def _group(room: str) -> tuple[str, str]:
    return next(((title, about) for title, about, rooms in GROUPS if room in rooms), ELSEWHERE)


def messages_of(module: str) -> list[Message]:
    """The messages of a module of the package, each once, in the order of the source."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return list(dict.fromkeys(_made(ast.parse(path.read_text(encoding="utf-8")), module)))


def _calls(node: ast.AST, function: str = "") -> Iterator[tuple[ast.Call, str]]:
    """The calls below a node, each with the innermost function around it."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else function
        if isinstance(child, ast.Call):
            yield child, inside
        yield from _calls(child, inside)


def _made(tree: ast.AST, module: str) -> Iterator[Message]:
    """The messages of errors and refusals made in a module."""
    for node, function in _calls(tree):
        if not ERRORS.match(_name(node.func)):
            continue
        parts = _parts(node)
        text = " ".join("; ".join(filter(None, parts)).split())
        if len(text.split()) >= 3:
            wrong, _, fix = text.rpartition("; ")
            yield Message(wrong or fix, fix if wrong else "", module, function)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _parts(call: ast.Call) -> list[str]:
    """The clauses of a message: one text, or the parts of a refusal."""
    given = dict(zip(PARTS, call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg in PARTS}
    if not _name(call.func).endswith("Refusal"):
        return ["".join(_pieces(call.args[0]))] if call.args else []
    texts = {name: "".join(_pieces(value)) for name, value in given.items()}
    found = " ".join(filter(None, (texts.get("what"), texts.get("value"))))
    return [found, texts.get("limit", ""), texts.get("remedy", "")]


def _pieces(node: ast.expr) -> Iterator[str]:
    """The text of an expression; what is filled in stands in angle brackets."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _pieces(value)
    elif isinstance(node, ast.FormattedValue):
        yield f"⟨{ast.unparse(_named(node.value))}⟩"
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _pieces(node.left)
        yield from _pieces(node.right)


def _named(node: ast.expr) -> ast.expr:
    """What an expression that is filled in is about: `len(names)` is about `names`."""
    while True:
        if isinstance(node, ast.Call) and node.args and _name(node.func) in SHOWN_BY:
            node = node.args[-1]  # that of a map is the second
        elif isinstance(node, ast.BoolOp):
            node = node.values[0]
        elif isinstance(node, ast.GeneratorExp | ast.ListComp):
            node = node.generators[0].iter
        else:
            return node


def markdown() -> str:
    """The page: a section for each group with a list of its messages."""
    parts = []
    for (title, about), messages in messages_by_group().items():
        parts.append(f"## {title}\n\n{about} {len(messages)} messages.\n\n")
        parts += [*map(bullet, messages), "\n"]
    return "".join(parts)


def bullet(message: Message) -> str:
    """A message as a line of a list, its next step below it."""
    fix = f"\\\n  **Next:** {_escaped(message.fix)}" if message.fix else ""
    return f"- {_escaped(message.wrong)}{fix}\n"


def _escaped(text: str) -> str:
    """The text as Markdown, with what is filled in as code."""
    pieces = re.split(r"⟨([^⟩]*)⟩", text)
    plain = [re.sub(r"([\\`*_\[\]<>#|$~^{}])", r"\\\1", piece) for piece in pieces[::2]]
    filled = [f"`{piece.replace('`', chr(39))}`" for piece in pieces[1::2]]
    return "".join(a + b for a, b in zip(plain, [*filled, ""], strict=True))
