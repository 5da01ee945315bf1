"""Executed pages as notebooks: each beside its page, all of them in one archive.

Every page whose code runs (`file_format: mystnb`) gets links to both below its title.  jupytext
converts the pages; the archive also holds the modules that they import, so that it runs wherever
`vta_byoc` is installed.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from pathlib import Path

import jupytext
import nbformat
from docutils import nodes
from installed import BESIDE, ROOT
from sphinx.application import Sphinx

ARCHIVE = "notebooks.zip"
DATA = ("trained/digits.json", "trained/resnet8_fold0.onnx")
"""What the notebooks read of the folder `models`."""
_EXECUTED = re.compile(r"\A---\nfile_format: mystnb\n(?:.*\n)*?---\n")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+\.md)(#[^)]*)?\)")
_FIRST_DAY_OF_ZIP = (1980, 1, 1, 0, 0, 0)


def executed_pages(docs: Path) -> dict[str, str]:
    """The text of each page whose code runs, by its name without suffix."""
    found = {}
    for path in sorted(docs.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if _EXECUTED.match(text):
            found[path.relative_to(docs).with_suffix("").as_posix()] = text
    return found


def notebook(page: str, text: str, executed: set[str]) -> str:
    """The JSON of one page as a notebook; links lead to other notebooks or are plain text."""
    made = jupytext.reads(_EXECUTED.sub("", text), fmt="md:myst")
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(lambda link: _linked(link, page, executed), cell.source)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made.nbformat_minor = 5
    nbformat.validate(made)
    return nbformat.writes(made) + "\n"


def _linked(link: re.Match[str], page: str, executed: set[str]) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[2]))
    # All of them lie in one folder, in the archive and among a reader's downloads.
    name = f"{posixpath.basename(target)[:-3]}.ipynb"
    return f"[{link[1]}]({name})" if target[:-3] in executed else link[1]


def _add_links(app: Sphinx, doctree: nodes.document) -> None:
    """Put the links below the title of an executed page."""
    page = app.env.docname
    title = next(doctree.findall(nodes.title), None)
    text = Path(app.env.doc2path(page)).read_text(encoding="utf-8")
    if title is None or not _EXECUTED.match(text):
        return
    up = "../" * page.count("/")
    html = (
        f'<p class="download-notebook">Download <a href="{posixpath.basename(page)}.ipynb" '
        f'download>this page as a notebook</a>, or <a href="{up}{ARCHIVE}" download>all of them '
        "with the modules they import</a>.</p>"
    )
    title.parent.insert(title.parent.index(title) + 1, nodes.raw("", html, format="html"))


def _write(app: Sphinx, error: Exception | None) -> None:
    """Write the notebooks beside the pages, and the archive."""
    if error is None and app.builder.format == "html":
        write_notebooks(Path(app.srcdir), Path(app.outdir))


def write_notebooks(docs: Path, folder: Path) -> None:
    """Write a notebook for each executed page of ``docs``, and the archive, into ``folder``."""
    pages = executed_pages(docs)
    made = {f"{page}.ipynb": notebook(page, text, set(pages)) for page, text in pages.items()}
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        # Notebooks of one folder import from it: modules stand beside every one of them.
        for name, data in sorted(_with_modules(made).items()):
            archive.writestr(zipfile.ZipInfo(name, _FIRST_DAY_OF_ZIP), data)


def _with_modules(notebooks: dict[str, str]) -> dict[str, bytes]:
    """What the archive holds: notebooks in one folder, and the modules that they import."""
    found = {posixpath.basename(name): text.encode() for name, text in notebooks.items()}
    if len(found) < len(notebooks):
        raise ValueError("two executed pages have one name; notebooks of both share a folder")
    for name in BESIDE:
        given = ROOT / name
        files = [given] if given.is_file() else [*given.glob("*.py"), *map(given.joinpath, DATA)]
        found |= {path.relative_to(given.parent).as_posix(): path.read_bytes() for path in files}
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _add_links)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
