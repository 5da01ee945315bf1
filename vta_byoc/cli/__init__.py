"""The command line `vta-byoc`.  Importing it does not import TVM; the commands do."""

from vta_byoc.cli.app import app, main

__all__ = ["app", "main"]
