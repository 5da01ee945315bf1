"""The one error class for what a user can put right."""


class VTAError(ValueError):
    """A model, configuration, program or argument that cannot be used.

    The message is one line: what was wrong with its value, the limit, the next step. The
    command line prints that line alone; `--debug` shows the traceback.
    """
