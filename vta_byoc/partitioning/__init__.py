"""Pattern entries by kind of operator; the pass is :mod:`vta_byoc.partition`."""
