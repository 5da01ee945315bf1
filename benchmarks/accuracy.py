"""What quantization costs trained networks: predictions on held-out digits beside float.

Five folds together hold out each of the 1,797 digits once (`models.digits`). For each network and
fold the committed float model is quantized with digits of the other folds, compiled, and run on
the functional simulator; a prediction is lost when float is right and VTA wrong, gained the other
way round, and the drop is the difference in points (percent of the images). The baseline is ONNX
Runtime's static quantization (QDQ, int8, min-max, BatchNorm folded first) with the same
calibration inputs, in the same run. `noisy` is the same images with noise, where
float makes more mistakes and more predictions are close. On fold 0 every output of the simulator is
compared with the integer reference bit for bit. `names` is a classifier of text (`models.names`)
and the 2,192 names that it was not trained on; it has one fold. The baseline keeps masked scores
and softmax in float: their minimum is that of float32, which no scale of int8 has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._figures import Figure, arguments, report
from benchmarks._int8_baseline import int8_session
from models import digits, names
from vta_byoc import load_model, quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.validation.accuracy import Evaluation, Runner, host_runner, onnxruntime_runner, runner


@dataclass(frozen=True)
class Mode:
    """A way to quantize.

    Attributes:
        options: of `quantize`.
        most: points that it may cost.
        per_channel: whether the baseline has a scale for each channel of weights.
    """

    name: str
    options: Mapping[str, Any]
    most: float
    per_channel: bool


MODES = (
    Mode("pow2", {"scales": "pow2", "per_channel": True}, 0.5, per_channel=True),
    Mode("mul", {"scales": "mul", "per_channel": True}, 0.2, per_channel=True),
)
CONFIG = VTAConfig.preset("sim")
NOISE = 0.2
"""Deviation of the noise on pixels from 0 to 1, before they are enlarged."""
CHECKED_FOLD = 0
PLAIN, NOISY = "plain", "noisy"
"""What is held out as it is, and with noise."""
NETWORKS = (*digits.NETWORKS, names.NAME)
Feed = Mapping[str, np.ndarray]
"""The inputs of a network by name."""


@dataclass(frozen=True)
class Case:
    """A trained network and what it is judged by.

    Attributes:
        path: the ONNX file.
        calibration: inputs it was trained on.
        sets: PLAIN, and perhaps NOISY, to inputs it was not trained on and their labels.
        left_float: what the names of nodes end with that the baseline does not quantize.
    """

    path: Path
    calibration: Sequence[Feed]
    sets: Mapping[str, tuple[Sequence[Feed], np.ndarray]]
    left_float: tuple[str, ...] = ()


@dataclass
class Tally:
    """One way of computing a network beside float, over the folds.

    Attributes:
        counts: PLAIN or NOISY -> predictions.
        signal, error: sums of squares of the float scores and of the difference, PLAIN.
        different: values that are not those of the integer reference.
    """

    counts: dict[str, Evaluation] = field(default_factory=dict)
    signal: float = 0.0
    error: float = 0.0
    different: int = 0

    def add(self, kind: str, labels: np.ndarray, scores: np.ndarray, exact: np.ndarray) -> None:
        """Count the predictions of one fold."""
        counts = self.counts.setdefault(kind, Evaluation())
        counts.add(labels, scores.argmax(axis=1), exact.argmax(axis=1))
        if kind == PLAIN:
            self.signal += float(np.square(exact, dtype=np.float64).sum())
            self.error += float(np.square(scores - exact, dtype=np.float64).sum())

    @property
    def sqnr(self) -> float:
        """Of the scores, in dB."""
        return 10 * float(np.log10(self.signal / self.error))


def measure(network: str, folds: Sequence[int]) -> dict[str, tuple[Tally, Tally]]:
    """For each mode what VTA computes and what the baseline computes."""
    tallies = {mode.name: (Tally(), Tally()) for mode in MODES}
    for fold in folds:
        print(f"{network} fold {fold} ...", file=sys.stderr, flush=True)
        case = case_of(network, fold)
        float_run = onnxruntime_runner(case.path)
        exact = {kind: scores(float_run, feeds) for kind, (feeds, _) in case.sets.items()}
        for mode in MODES:
            qmod = quantize(
                load_model(case.path),
                calibration=[list(feed.values()) for feed in case.calibration],
                config=CONFIG,
                **mode.options,
            )
            ours, baseline = tallies[mode.name]
            machine, peer = runner(qmod, CONFIG, "sim"), onnxruntime_static(case, mode)
            for kind, (feeds, labels) in case.sets.items():
                computed = scores(machine, feeds)
                ours.add(kind, labels, computed, exact[kind])
                baseline.add(kind, labels, scores(peer, feeds), exact[kind])
                if fold == CHECKED_FOLD:
                    same = scores(host_runner(qmod), feeds) == computed
                    ours.different += int(same.size - np.count_nonzero(same))
    return tallies


def case_of(network: str, fold: int) -> Case:
    """A network trained without a fold."""
    if network == names.NAME:
        held, known = names.held_out(), feeds_of(names.calibration())
        masks = ("mask.not", "mask.flat", ".hidden", ".shares")
        return Case(names.TRAINED, known, {PLAIN: (feeds_of(held), held["labels"])}, masks)
    sets = {
        kind: (feeds_of({digits.INPUT: held.inputs}), held.labels)
        for kind, held in held_out_sets(fold)
    }
    known = feeds_of({digits.INPUT: digits.calibration_inputs(fold)})
    return Case(digits.trained(network, fold), known, sets)


def feeds_of(inputs: Mapping[str, np.ndarray]) -> list[Feed]:
    """Inputs by name with samples along the first axis, sample by sample; labels are no input."""
    given = {name: values for name, values in inputs.items() if name != "labels"}
    count = len(next(iter(given.values())))
    return [{name: values[i : i + 1] for name, values in given.items()} for i in range(count)]


def held_out_sets(fold: int) -> Iterator[tuple[str, digits.Digits]]:
    """The digits of a fold as they are, and with noise."""
    held = digits.held_out(fold)
    yield PLAIN, held
    images = digits.raw()[0][digits.held_out_indices(fold)] / 16
    noise = np.random.RandomState(fold).standard_normal(images.shape)
    pixels = np.clip(images + NOISE * noise, 0, 1).astype(np.float32)
    inputs = digits.normalised(digits.enlarged(pixels)[:, None])
    yield NOISY, digits.Digits(inputs, held.labels)


def scores(run: Runner, feeds: Sequence[Feed]) -> np.ndarray:
    """Float32 (n, classes), sample by sample: the models have batch 1."""
    return np.concatenate([run(feed) for feed in feeds])


def onnxruntime_static(case: Case, mode: Mode) -> Runner:
    """The file after ONNX Runtime's static quantization."""
    options = {"per_channel": mode.per_channel, "left_float": case.left_float}
    session = int8_session(case.path, case.calibration, **options)
    return lambda feed: np.asarray(session.run(None, dict(feed))[0])


def figures_of(network: str, mode: Mode, ours: Tally, baseline: Tally) -> list[Figure]:
    """The figures of one network in one mode."""
    name = f"{network}_{mode.name}"
    more = ours.counts[PLAIN].net_loss - baseline.counts[PLAIN].net_loss
    figures = [
        *_losses(name, mode, ours.counts[PLAIN], baseline.counts[PLAIN]),
        Figure.at_most(f"{name}_more_than_onnxruntime", more, "images", 0),
        _beside(f"{name}_scores_sqnr", ours.sqnr, "dB", baseline.sqnr),
        Figure.at_most(f"{name}_simulator_different", ours.different, "values", 0),
    ]
    if NOISY in ours.counts:
        figures += _losses(f"{name}_noisy", None, ours.counts[NOISY], baseline.counts[NOISY])
    return figures


def _losses(name: str, mode: Mode | None, ours: Evaluation, peer: Evaluation) -> list[Figure]:
    """Predictions beside float; `mode`: the drop has its target."""
    drop = _beside(f"{name}_drop_points", ours.drop_points, "points", peer.drop_points)
    if mode is not None:
        drop = replace(drop, target=mode.most, ok=drop.value <= mode.most)
    equal, others = ours.share(ours.agreeing), peer.share(peer.agreeing)
    return [
        drop,
        _beside(f"{name}_right_to_wrong", ours.lost, "images", peer.lost),
        _beside(f"{name}_wrong_to_right", ours.gained, "images", peer.gained),
        _beside(f"{name}_agreement", equal, "%", others),
        Figure(f"{name}_float_accuracy", ours.share(ours.against_correct), "%"),
    ]


def _beside(name: str, value: float, unit: str, baseline: float) -> Figure:
    return Figure(name, value, unit, baseline=baseline, baseline_name="onnxruntime")


def main() -> int:
    parser = arguments("Accuracy of quantized trained networks beside float.")
    parser.add_argument("--only", choices=NETWORKS, action="append", help="one network")
    parser.add_argument("--fold", type=int, choices=range(digits.FOLDS), help="one fold only")
    options = parser.parse_args()
    folds = range(digits.FOLDS) if options.fold is None else [options.fold]
    figures: list[Figure] = []
    for network in options.only or NETWORKS:
        tallies = measure(network, folds if network in digits.NETWORKS else [CHECKED_FOLD])
        for mode in MODES:
            figures += figures_of(network, mode, *tallies[mode.name])
    return report("accuracy", figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
