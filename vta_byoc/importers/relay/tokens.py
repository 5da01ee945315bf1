"""Relay text as tokens: one regular expression, and where everything stands.

Lists of integers, tensor types and references to metadata are tokens of their own: texts of
100,000 lines are read in seconds because most of what is printed never meets the grammar.
"""

from __future__ import annotations

import re

from vta_byoc.hw.errors import VTAError

SHOWN = 24
"""Characters of a text that an error repeats."""
TOKEN = re.compile(
    r"""\s*(?:
    (?P<comment>/\*.*?\*/|//[^\n]*)
    |(?P<graph>%\d+)
    |(?P<local>%[A-Za-z_][\w.]*(?:[/:](?=\w)[\w.]*)*)
    |(?P<meta>meta\[[\w.]+\]\[\d+\])
    |(?P<tensor>Tensor\[\([^()]*\),\s*\w+\])
    |(?P<number>-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)
        (?:f(?:16|32|64)?|[iu](?:8|16|32|64))?(?![\w.])
        |-?(?:inf|nan)f?(?![\w.]))
    |(?P<key>[A-Za-z_][\w.]*\s*=(?![=>]))
    |(?P<word>[A-Za-z_][\w.]*)
    |(?P<global>@[\w.]+)
    |(?P<ints>\[\s*-?\d+(?:,\s*-?\d+)*\s*\])
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>->|=>|==|!=|<=|>=|\.\d+|[][(){}<>,;:=.+*/?|-])
    |(?P<end>\Z)
    |(?P<wrong>.)
    )""",
    re.DOTALL | re.VERBOSE,
)
END = "end"


class Tokens:
    """The tokens of a text, with a place to read from.

    Attributes:
        comments: index of a token -> the comment behind it.
    """

    def __init__(self, text: str, what: str) -> None:
        self.source = text
        self.what = what
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.comments: dict[int, str] = {}
        self.at = 0
        self._read(text)

    def _read(self, text: str) -> None:
        kinds, texts, starts, comments = self.kinds, self.texts, self.starts, self.comments
        for match in TOKEN.finditer(text):
            kind = match.lastgroup or END
            if kind == "comment":
                comments[len(kinds) - 1] = match["comment"]
                continue
            start = match.start(kind)
            if kind == "wrong":
                raise self.error_at(start, self._wrong(text, start))
            kinds.append(kind)
            texts.append(match[kind])
            starts.append(start)
            if kind == END:
                return

    @staticmethod
    def _wrong(text: str, start: int) -> str:
        if text[start] in "\"'":
            return "a string that does not end"
        return f"the character {text[start]!r}, which Relay text does not have"

    # ------------------------------------------------------------ reading
    @property
    def kind(self) -> str:
        """Of the next token."""
        return self.kinds[self.at]

    @property
    def text(self) -> str:
        """Of the next token; "" at the end."""
        return self.texts[self.at]

    def take(self) -> str:
        """The next token; the place moves on."""
        text = self.texts[self.at]
        if self.kinds[self.at] != END:
            self.at += 1
        return text

    def takes(self, text: str) -> bool:
        """Whether the next token is `text`, which is taken then."""
        if self.texts[self.at] != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        """Take `text`.

        Raises:
            VTAError: something else stands here.
        """
        if not self.takes(text):
            raise self.unexpected(f'"{text}"')

    def comma(self, end: str) -> None:
        """Take a comma between items; `end` may stand there instead, and stays."""
        if not self.takes(",") and self.text != end:
            raise self.unexpected(f'"," or "{end}"')

    def expect_more(self, wanted: str) -> None:
        """Refuse the end of the text."""
        if self.kind == END:
            raise self.unexpected(wanted)

    def expect_kind(self, kind: str, wanted: str) -> str:
        """Take a token of one kind, in words `wanted`."""
        if self.kinds[self.at] != kind:
            raise self.unexpected(wanted)
        return self.take()

    # ------------------------------------------------------------ errors
    def place(self, start: int) -> str:
        """Line and column of a position in the text, both from 1."""
        line = self.source.count("\n", 0, start) + 1
        return f"line {line}, column {start - self.source.rfind(chr(10), 0, start)}"

    def unexpected(self, wanted: str) -> VTAError:
        """The error of another token than those that may follow."""
        found = "the text ends"
        if self.kind != END:
            shown = self.text if len(self.text) <= SHOWN else self.text[:SHOWN] + "..."
            found = f'"{shown}" stands there'
        return self.error_at(self.starts[self.at], f"{found}; {wanted} was expected")

    def error_at(self, start: int, what: str) -> VTAError:
        """An error at a position in the text."""
        return VTAError(
            f"{self.what}, {self.place(start)}: {what}; save the text again with mod.astext()"
        )
