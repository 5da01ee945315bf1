"""The documentation site: Sphinx with MyST-NB, which executes the tutorials.

`make docs` builds it with warnings as errors.  Results of executed pages are kept by their code and
by the sources of the package, so that a build after no change runs nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
# The pages' kernels draw with the same modules, wherever they run.
_MODULES = (str(HERE / "_ext"), str(HERE.parent), os.environ.get("PYTHONPATH"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _MODULES))

from vta_byoc import __version__  # noqa: E402


def _sources_digest() -> str:
    """Of every source that an executed page may run."""
    found = hashlib.sha256()
    for folder in ("vta_byoc", "hw", "models", "docs/_ext"):
        for path in sorted((HERE.parent / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


project = "vta_byoc"
author = "The vta_byoc authors"
copyright = "the vta_byoc authors, Apache-2.0"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "tables_of_the_code",
]
source_suffix = {".md": "myst-nb"}
root_doc = "index"
exclude_patterns = ["_ext"]
nitpicky = False
default_role = "py:obj"
smartquotes = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "jupyter_cache" / _sources_digest())
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "vta_byoc"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = True
html_copy_source = True
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

# No page may need the network, and links to other sites cannot be tried without it.
linkcheck_ignore = [r"https?://.*"]
