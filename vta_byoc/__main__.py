"""`python -m vta_byoc`: the command line where the script `vta-byoc` is not on PATH."""

from vta_byoc.cli import main

main()
