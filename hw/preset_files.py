"""The machines that have a name, as files; listing them imports nothing else."""

from __future__ import annotations

from importlib import resources

SUFFIX = ".json"
_FOLDER = resources.files(__package__).joinpath("presets")


def preset_names() -> list[str]:
    """Names of the presets, sorted."""
    names = (file.name for file in _FOLDER.iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))


def preset_text(name: str) -> str:
    """The JSON text of one of `preset_names`."""
    return _FOLDER.joinpath(f"{name}{SUFFIX}").read_text("utf-8")
