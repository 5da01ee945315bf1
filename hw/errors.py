"""The one error class for what a user can put right, and the one for what he should know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why something cannot be used, in the parts of the one line that a person reads.

    Attributes:
        what: what was found, up to its value: `"the tensor has the shape"`.
        value: the value that was found; "" where `what` says it all.
        limit: what is taken instead; "" where there is no such thing.
        remedy: the next step; "" where the limit says it all.
    """

    what: str
    value: str = ""
    limit: str = ""
    remedy: str = ""

    @property
    def rule(self) -> str:
        """The line without the next step."""
        found = " ".join(filter(None, (self.what, self.value)))
        return "; ".join(filter(None, (found, self.limit)))

    @property
    def text(self) -> str:
        """The whole line."""
        return "; ".join(filter(None, (self.rule, self.remedy)))


class VTAError(ValueError):
    """A model, configuration, program or argument that cannot be used.

    The message is one line: what was wrong with its value, the limit, the next step. The
    command line prints that line alone; `--debug` shows the traceback.

    Attributes:
        refusal: the parts of the message where the error was made of them, else all of it as
            what was found.
    """

    def __init__(self, problem: str | Refusal) -> None:
        self.refusal = problem if isinstance(problem, Refusal) else Refusal(problem)
        super().__init__(self.refusal.text)


class VTAWarning(UserWarning):
    """Something that works, but surely not as meant.

    The message is one line like that of :class:`VTAError`. ``warnings.simplefilter("error",
    VTAWarning)`` makes it an error.
    """
