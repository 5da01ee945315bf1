"""Python programs that tests run in a process of their own."""

from __future__ import annotations

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
"""Before a program that needs no PyTorch: TVM would import it, in as much time as all the rest."""
