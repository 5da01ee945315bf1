"""Whether the notebooks of a built site are what a reader needs: `check_notebooks.py FOLDER`.

The archive is unpacked into an empty folder and its first tutorial runs there, with the installed
package and nothing of the repository; the pages themselves prove the code of the others.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

import nbformat
from installed import ROOT, installed, plain_kernels
from nbclient import NotebookClient
from notebooks import ARCHIVE, executed_pages, write_notebooks

RUN = "1-vector-add.ipynb"


def missing(site: Path) -> list[str]:
    """Notebooks that executed pages have not, or that other bytes than now would be made for."""
    with tempfile.TemporaryDirectory() as name:
        again = Path(name)
        write_notebooks(ROOT / "docs", again)
        wanted = [f"{page}.ipynb" for page in executed_pages(ROOT / "docs")]
        return [
            f"{each}: not in the site as it is made now"
            for each in (*wanted, ARCHIVE)
            if not (site / each).is_file()
            or (site / each).read_bytes() != (again / each).read_bytes()
        ]


def run(site: Path) -> None:
    """Run one notebook out of the archive; a cell that fails raises."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "package").mkdir()
        (folder / "package" / "vta_byoc").symlink_to(installed() / "vta_byoc")
        with zipfile.ZipFile(site / ARCHIVE) as archive:
            archive.extractall(folder / "notebooks")
        os.environ["PYTHONPATH"] = str(folder / "package")
        os.environ["IPYTHONDIR"] = str(plain_kernels())
        notebook = nbformat.read(folder / "notebooks" / RUN, as_version=4)
        at = {"metadata": {"path": str(folder / "notebooks")}}
        NotebookClient(notebook, timeout=300, resources=at).execute()


def main() -> int:
    site = Path(sys.argv[1])
    found = missing(site)
    for line in found:
        print(line, file=sys.stderr)
    run(site)
    print(f"{len(executed_pages(ROOT / 'docs'))} notebooks, {len(found)} missing; {RUN} runs")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
