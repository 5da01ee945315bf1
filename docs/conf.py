"""The documentation site: Sphinx with MyST-NB, which executes tutorials and how-to pages.

`make docs` builds it with warnings as errors.  Results of executed pages are kept by their code and
by the sources of the package, so that a build after no change runs nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

from installed import installed, plain_kernels, sources_digest  # noqa: E402

from vta_byoc import __version__  # noqa: E402

# Kernels run the package as pip installs it, and nothing of the repository.
os.environ["PYTHONPATH"] = str(installed())
os.environ["IPYTHONDIR"] = str(plain_kernels())
_COMMANDS = (str(installed() / "bin"), str(Path(sys.executable).parent))
os.environ["PATH"] = os.pathsep.join((*_COMMANDS, os.environ.get("PATH", "")))

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
    "notebooks",
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
nb_execution_cache_path = str(HERE.parent / "build" / "jupyter_cache" / sources_digest())
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
