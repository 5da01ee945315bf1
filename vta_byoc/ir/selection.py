"""Selecting operators by text: one syntax for every place that names them.

| selector | stands for |
|---|---|
| `conv1`, `/features/0/conv` | the operator of that name, or of that name in the model file |
| `block?_conv*` | those whose names match; `*`, `?` and `[...]` as in a shell |
| `conv1..fc`, `fc..` | from the first to the last, both included, in topological order |
| `@conv2d`, `@*pool2d` | those of a kind, as the placement calls it |

docs/how-to/select-layers.md shows where selectors are taken.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

import tvm

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name, sanitized, source_name, straight_bindings
from vta_byoc.ir.operator_work import kind_of, work_of
from vta_byoc.ir.quantization_record import computed_in

Selectors: TypeAlias = str | Sequence[str]
"""Selectors in a sequence, or in one text with commas between them."""
WILDCARDS = "*?["
RANGE = ".."
KIND = "@"
NEAR_MATCHES = 3
MOST_KINDS = 8


def parse_selectors(text: str) -> tuple[str, ...]:
    """The selectors of a text with commas, as an option of the command line holds it."""
    return tuple(part for each in text.split(",") if (part := each.strip()))


def as_selectors(given: Selectors) -> tuple[str, ...]:
    """The selectors of a keyword argument."""
    return parse_selectors(given) if isinstance(given, str) else tuple(given)


def is_plain(selector: str) -> bool:
    """Whether a selector is a name, which stands for one operator."""
    is_pattern = RANGE in selector or any(sign in selector for sign in WILDCARDS)
    return not (is_pattern or selector.startswith(KIND))


@dataclass(frozen=True)
class Operators:
    """The operators that selectors choose from.

    Attributes:
        names: their names, in topological order.
        kind: the kind of each ("relax.nn.conv2d"), by its name.
        inside: operators that are computed inside of another one, and that one; a selector that
            names them stands for it.
        inputs: names of the model's inputs, for errors.
    """

    names: Sequence[str]
    kind: Callable[[str], str]
    inside: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[str] = ()

    @classmethod
    def of(cls, mod: tvm.IRModule) -> Operators:
        """Those of `main`, in the order of their first bindings."""
        main = mod["main"]
        bindings: dict[str, list[tvm.relax.VarBinding]] = {}
        for binding in straight_bindings(main):
            if op_name(binding.value):
                bindings.setdefault(source_name(binding.var), []).append(binding)

        def kind(name: str) -> str:
            own = bindings[name]
            return kind_of(own, {b.var: work_of(b.value, mod) for b in own})

        inputs = [source_name(param) for param in main.params]
        return cls(list(bindings), kind, computed_in(mod), inputs)

    def select(self, selectors: Iterable[str], purpose: str) -> dict[str, str]:
        """The operators that any of `selectors` chooses, each with the first that does.

        Args:
            selectors: as the table above has them.
            purpose: what the operators are named for, as in "to keep in float".

        Raises:
            VTAError: a selector that chooses nothing.
        """
        found: dict[str, str] = {}
        for selector in selectors:
            for name in self._chosen(selector, purpose):
                found.setdefault(name, selector)
        return {name: found[name] for name in self.names if name in found}

    def _chosen(self, selector: str, purpose: str) -> list[str]:
        if selector in self.names:
            return [selector]
        if selector.startswith(KIND):
            return self._of_kind(selector, purpose)
        if RANGE in selector:
            return self._between(selector, purpose)
        if is_plain(selector):
            return [self._named(selector, f'operator "{selector}" {purpose}')]
        names = [each for each in (*self.names, *self.inside) if fnmatchcase(each, selector)]
        if not names:
            raise VTAError(f'operator "{selector}" {purpose} {self._why(selector)}')
        return [self.inside.get(each, each) for each in names]

    def _of_kind(self, selector: str, purpose: str) -> list[str]:
        wanted = selector.removeprefix(KIND)
        found = [name for name in self.names if _is_kind(self.kind(name), wanted)]
        if not found:
            kinds = sorted({_short(self.kind(name)) for name in self.names})
            near = difflib.get_close_matches(wanted, kinds, NEAR_MATCHES) or kinds[:MOST_KINDS]
            raise VTAError(
                f'kind "{selector}" of operators {purpose} is not in the model; kinds are '
                f"{', '.join(KIND + kind for kind in near) or 'none'}; name one"
            )
        return found

    def _between(self, selector: str, purpose: str) -> list[str]:
        """The operators of a range."""
        first, _, last = selector.partition(RANGE)
        what = f'range "{selector}" of operators {purpose}'
        if not (first or last):
            raise VTAError(f"{what} has no end; give FIRST..LAST, FIRST.. or ..LAST")
        order = list(self.names)
        start, stop = 0, len(order) - 1
        if first:
            start = order.index(self._named(first, f'{what}: "{first}"'))
        if last:
            stop = order.index(self._named(last, f'{what}: "{last}"'))
        if start > stop:
            raise VTAError(
                f'{what} is backwards: "{first}" is operator {start + 1} of {len(order)}, "{last}" '
                f'is {stop + 1}; write "{last}{RANGE}{first}"'
            )
        return order[start : stop + 1]

    def _named(self, name: str, what: str) -> str:
        """The operator of that name."""
        for each in (name, sanitized(name)):
            if each in self.names:
                return each
            if self.inside.get(each) in self.names:
                return self.inside[each]
        raise VTAError(f"{what} {self._why(name)}")

    def _why(self, name: str) -> str:
        """Why nothing is called `name`, and what might be meant."""
        if name in self.inputs:
            return "is an input of the model; only operators are named; name those that read it"
        known = list(dict.fromkeys((*self.names, *self.inside)))
        literal = sanitized(name)
        near = difflib.get_close_matches(literal, known, NEAR_MATCHES)
        near = near or [each for each in known if literal in each][:NEAR_MATCHES]
        listed = ", ".join(f'"{each}"' for each in near)
        hint = f"similar names are {listed}" if near else "`vta-byoc place MODEL` lists their names"
        return f"is not in the model; it has {len(self.names)} operators; {hint}"


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]


def _is_kind(kind: str, wanted: str) -> bool:
    """Whether `kind`, "relax.nn.conv2d", is one of `wanted`: also "nn.conv2d", "conv2d"."""
    forms = (kind, kind.removeprefix("relax."), _short(kind))
    return any(fnmatchcase(form, wanted) for form in forms)
