"""Model Library Format archives: the text of the module and its parameters."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError

TEXTS = (".relay", "relay.txt")
PARAMS = ".params"


@dataclass(frozen=True)
class Library:
    """What an archive holds for us.

    Attributes:
        text: the module, as Relay text.
        params: the bytes of its parameter file; None where it has none.
    """

    text: str
    params: bytes | None


def read_archive(path: Path) -> Library:
    """The text and the parameters of an archive; nothing is unpacked to the disk.

    Raises:
        VTAError: it is no archive, ends early, has paths that leave it, or no Relay text.
    """
    what = f'model file "{path}"'
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
            for member in archive:
                _check(member, what)
                if member.isfile() and member.name.endswith((*TEXTS, PARAMS)):
                    file = archive.extractfile(member)
                    found[member.name] = b"" if file is None else file.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise VTAError(
            f"{what} is no complete tar archive ({_first_line(error)}); export the model again "
            "(tvm.micro.export_model_library_format)"
        ) from error
    texts = sorted(name for name in found if name.endswith(TEXTS))
    if not texts:
        raise VTAError(
            f"{what} holds no Relay text (src/relay.txt or src/NAME.relay); a Model Library "
            "Format archive has it; export one with tvm.micro.export_model_library_format"
        )
    try:
        text = found[texts[0]].decode("utf-8")
    except UnicodeDecodeError as error:
        raise VTAError(f'{what}: "{texts[0]}" is no UTF-8 text; export the model again') from error
    params = sorted(name for name in found if name.endswith(PARAMS))
    return Library(text, found[params[0]] if params else None)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(":") if str(error) else type(error).__name__


def _check(member: tarfile.TarInfo, what: str) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or member.islnk() or member.issym():
        raise VTAError(
            f'{what} has the member "{member.name}", which leads out of the archive; members are '
            "files and folders inside of it; export the model again, from a source you trust"
        )
    limits.check([limits.declared(f'"{member.name}"', (member.size,), "uint8")], what)
