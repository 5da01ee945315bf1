"""The one error class for what a user can put right, and the one for what he should know."""


class VTAError(ValueError):
    """A model, configuration, program or argument that cannot be used.

    The message is one line: what was wrong with its value, the limit, the next step. The
    command line prints that line alone; `--debug` shows the traceback.
    """


class VTAWarning(UserWarning):
    """Something that works, but surely not as meant.

    The message is one line like that of :class:`VTAError`. ``warnings.simplefilter("error",
    VTAWarning)`` makes it an error.
    """
