"""Labelled samples in an `.npz` file, read a batch at a time.

The file holds one array per input of the model, named like it, with the samples stacked along the
first axis: `(n, 3, 224, 224)` for n samples of an input `(1, 3, 224, 224)`, in the input's dtype.
The array `labels` holds n integers, the numbers of the right classes.

Arrays are read from the archive as they are needed: in memory are one batch of each input and all
labels. What is wrong with the names, shapes, dtypes and labels is found before the first batch.
"""

from __future__ import annotations

import contextlib
import io
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from vta_byoc.base import limits
from vta_byoc.base.arrays import MEMBER, Spec, read_header
from vta_byoc.hw.errors import VTAError

LABELS = "labels"


@dataclass(frozen=True)
class Signature:
    """What a classifier takes and gives.

    Attributes:
        inputs: by name, in order; the first dimension is the same in all of them.
        classes: scores that it gives for each sample.
    """

    inputs: Mapping[str, Spec]
    classes: int

    @property
    def rows(self) -> int:
        """Samples that one call takes."""
        return next(iter(self.inputs.values())).shape[0]


@dataclass(frozen=True)
class Batch:
    """Arrays for one call of the model.

    Only the first `len(labels)` samples count: in the last batch the others are zero.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray


class LabelledData:
    """The samples of a file; iterating reads them once more, from the first.

    Attributes:
        path: the file.
        signature: of the model that they are for.
        first: the number of the first sample that is read.
        labels: int64, one for each sample that is read.
    """

    def __init__(
        self, path: str | Path, signature: Signature, limit: int | None = None, first: int = 0
    ) -> None:
        """Check the file.

        Args:
            path: the `.npz` archive.
            signature: the inputs and the output of the model.
            limit: read at most so many samples.
            first: begin with this one.

        Raises:
            VTAError: it is no `.npz` archive, or its arrays do not fit the model.
        """
        self.path, self.signature, self.first = Path(path), signature, first
        if not self.path.is_file():
            raise VTAError(
                f'data file "{path}" does not exist; an .npz file is needed; check the path'
            )
        with self._archive() as archive:
            self._check_names(archive)
            labels = self._read_labels(archive)
            for name, spec in signature.inputs.items():
                self._check_input(name, spec, *_header(archive, name), len(labels))
        _check_classes(labels, signature.classes, self.path)
        self.labels = labels[first:][:limit].astype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Batch]:
        """The batches in order.

        Raises:
            VTAError: the archive is damaged, or a sample is not finite.
        """
        rows = self.signature.rows
        with self._archive() as archive, contextlib.ExitStack() as opened:
            files = {
                name: opened.enter_context(archive.open(name + MEMBER))
                for name in self.signature.inputs
            }
            for name, file in files.items():
                read_header(file)
                file.seek(self.first * self._sample_bytes(name), io.SEEK_CUR)
            for at in range(0, len(self), rows):
                labels, first = self.labels[at : at + rows], self.first + at
                yield Batch({n: self._read(files[n], n, first, len(labels)) for n in files}, labels)

    def _sample_bytes(self, name: str) -> int:
        """Bytes of one sample of an input."""
        spec = self.signature.inputs[name]
        return math.prod(spec.shape[1:]) * spec.dtype.itemsize

    def _read(self, file: IO[bytes], name: str, first: int, count: int) -> np.ndarray:
        """The next `count` samples of an input, filled to its shape."""
        spec = self.signature.inputs[name]
        data = file.read(count * self._sample_bytes(name))
        if len(data) < count * self._sample_bytes(name):
            raise zipfile.BadZipFile(f'the array "{name}" ends early')
        array = np.zeros(spec.shape, spec.dtype)
        array[:count] = np.frombuffer(data, spec.dtype).reshape(count, *spec.shape[1:])
        if spec.dtype.kind == "f" and not np.isfinite(array).all():
            finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
            raise VTAError(
                f'data sample {first + int(np.argmin(finite))}, input "{name}" has values that are '
                "NaN or infinite; every value must be finite; remove or repair the sample"
            )
        return array

    @contextlib.contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except (VTAError, OSError):
            raise
        except Exception as error:  # a broken archive fails in zipfile, zlib or NumPy
            raise VTAError(
                f'data file "{self.path}" is not an .npz archive of numeric arrays, or damaged '
                f"({error}); save it with numpy.savez(path, labels=labels, **{{input name: "
                "samples})"
            ) from error

    def _check_names(self, archive: zipfile.ZipFile) -> None:
        if LABELS in self.signature.inputs:
            raise VTAError(
                f'an input of the model is named "{LABELS}"; that is the name of the labels in a '
                "data file; rename the input"
            )
        names = [name.removesuffix(MEMBER) for name in archive.namelist()]
        wanted = [*self.signature.inputs, LABELS]
        if set(names) != set(wanted):
            raise VTAError(
                f'data file "{self.path}" holds the arrays {_quoted(names)}; the inputs of the '
                f"model and the labels are {_quoted(wanted)}; save one array for each of them "
                "under its name"
            )

    def _read_labels(self, archive: zipfile.ZipFile) -> np.ndarray:
        (spec, _), where = _header(archive, LABELS), f'labels of data file "{self.path}"'
        if spec.dtype.kind not in "iu" or len(spec.shape) != 1:
            raise VTAError(
                f"{where} have dtype {spec.dtype} and shape {spec.shape}; they are class numbers, "
                "integers of shape (n,); save labels.astype(int).ravel()"
            )
        if not spec.shape[0]:
            raise VTAError(f"{where}: there are 0; at least 1 sample is needed; save some samples")
        taken = limits.Declared(where, spec.shape, spec.dtype.itemsize)
        limits.check([taken], where)
        with archive.open(LABELS + MEMBER) as file:
            labels: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        return labels

    def _check_input(
        self, name: str, spec: Spec, stack: Spec, by_columns: bool, labels: int
    ) -> None:
        where = f'data array "{name}"'
        if stack.dtype != spec.dtype:
            raise VTAError(
                f"{where} has dtype {stack.dtype}; the input takes {spec.dtype}; convert it with "
                f'.astype("{spec.dtype}")'
            )
        if len(stack.shape) != len(spec.shape) or stack.shape[1:] != spec.shape[1:]:
            wanted = ", ".join(["n", *map(str, spec.shape[1:])])
            raise VTAError(
                f"{where} has shape {stack.shape}; n samples of the input take ({wanted}); stack "
                "the samples along the first axis"
            )
        if by_columns:
            raise VTAError(
                f"{where} is stored by columns (Fortran order); samples are read one after the "
                "other; save numpy.ascontiguousarray(array)"
            )
        if stack.shape[0] != labels:
            raise VTAError(
                f"{where} has {stack.shape[0]} samples and there are {labels} labels; every "
                "sample needs one; save them together"
            )


def _header(archive: zipfile.ZipFile, name: str) -> tuple[Spec, bool]:
    with archive.open(name + MEMBER) as file:
        return read_header(file)


def _check_classes(labels: np.ndarray, classes: int, path: Path) -> None:
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(bad):
        raise VTAError(
            f'label {labels[bad[0]]} of sample {bad[0]} in data file "{path}"; the model has '
            f"{classes} classes, 0 to {classes - 1}; number the labels as the model's outputs"
        )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"
