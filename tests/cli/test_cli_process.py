"""The command line as a process: interrupts, closed pipes, names that would steer a terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from cli_runs import cli, refused, save
from onnx import TensorProto, helper
from small_models import Net

from vta_byoc.base.arrays import load_named
from vta_byoc.cli.consoles import console
from vta_byoc.hw.printable import printable
from vta_byoc.reports.html.page import script_json, template
from vta_byoc.reports.tables import plain_table

EVIL = "\x1b]0;pwn\x07\x1b[31m[red]\u202e"
SHOWN = "\\x1b]0;pwn\\x07\\x1b[31m[red]\\u202e"
ENTRY = "import sys; sys.argv[0] = 'vta-byoc'; from vta_byoc.cli import main; main()"
WAITING = """
import sys, tempfile, time
sys.argv[0] = "vta-byoc"
import vta_byoc
from vta_byoc.cli import files
from pathlib import Path
with files.replacing(Path(sys.argv[1]) / "y.so") as file, files.workspace() as folder:
    {block}
"""


def started(code: str, *args: object) -> subprocess.Popen[bytes]:
    """A process that a terminal would have started: what runs in the background of a shell ignores
    interrupts, and its children with it."""
    command = [sys.executable, "-c", code, *map(str, args)]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "block",
    [
        "print('ready', flush=True); time.sleep(60)",
        "import subprocess; child = subprocess.Popen(['sleep', '60']); "
        "print('ready', flush=True); child.wait()",
    ],
    ids=["alone", "with a child"],
)
def test_an_interrupt_leaves_nothing_behind(block: str, tmp_path: Path) -> None:
    process = started(WAITING.format(block=block), tmp_path)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert len(os.listdir(tmp_path)) == 1
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == b"\nerror: interrupted\n"
    assert process.returncode == 130
    assert os.listdir(tmp_path) == []


def test_an_interrupt_while_tvm_is_imported(tmp_path: Path) -> None:
    net = Net(data=(1, 4))
    path = net.save(tmp_path / "net.onnx", net.node("Relu", "data"))
    process = started(ENTRY, "run", path)
    assert process.stderr is not None and process.stderr.readline().startswith(b"importing")
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == b"\nerror: interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("args", [("--help",), ("configs",)])
def test_a_reader_that_has_gone(args: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", ENTRY, *args]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
@pytest.mark.parametrize("args", [("--help",), ("configs",)])
def test_a_standard_output_without_room(args: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", ENTRY, *args]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "error: what is written finds no room: No space left on device; make room where the output "
        f'goes, or write elsewhere (temporary files go to "{tempfile.gettempdir()}", or where '
        "TMPDIR says)\n"
    )


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    samples = save(tmp_path / "x.npy", np.zeros((1, 4), "float32"))
    archive = tmp_path / "samples.npz"
    np.savez(archive, data=np.zeros((1, 4), "float32"))
    hard, soft = tmp_path / "hard.npz", tmp_path / "soft.npz"
    os.link(archive, hard)
    soft.symlink_to(archive)
    before = archive.read_bytes()
    for output in (archive, hard, soft):
        assert refused("run", "x.onnx", "--calibration", archive, "--output", output) == (
            f'output "{output}" is the calibration file "{archive}", which would be lost; choose '
            "another path"
        )
    model = tmp_path / "net.onnx"
    model.write_bytes(b"model")
    assert refused("disasm", model, "-o", model) == (
        f'output "{model}" is the model file "{model}", which would be lost; choose another path'
    )
    assert refused("report", model, "-o", "x.html", "--config", "none.json").startswith(
        "configuration file none.json cannot be read"
    )
    named = tmp_path / "named.npz"
    os.link(samples, named)
    assert refused("run", model, "--input", f"x={samples}", "--output", named) == (
        f'output "{named}" is the input file "{samples}", which would be lost; choose another path'
    )
    assert archive.read_bytes() == before and model.read_bytes() == b"model"


# ---------------------------------------------------------------- names
def test_what_is_harmful_is_shown() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("größe\n\tµ [x]") == "größe\n\tµ [x]"


def test_tables_show_names_as_they_are() -> None:
    made = console(file=io.StringIO(), width=80)
    table = plain_table()
    table.add_column("[bold]name")
    table.add_row("\x1b[31m[red] :smile:")
    made.print(table)
    made.print("[red]\x1b[0m")
    lines = [line.rstrip() for line in made.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines[0] == "[bold]name"
    assert lines[2:] == ["\\x1b[31m[red] :smile:", "[red]\\x1b[0m"]


def test_pages_show_names_as_they_are() -> None:
    assert script_json({EVIL: ["</script>"]}) == (
        '{"\\\\x1b]0;pwn\\\\x07\\\\x1b[31m[red]\\\\u202e":["\\u003c/script\\u003e"]}'
    )
    page = template("report.html").environment.from_string("{{ name }}")
    assert page.render(name=EVIL + "<b>") == SHOWN + "&lt;b&gt;"


def test_an_error_shows_names_as_they_are(tmp_path: Path) -> None:
    net = Net()
    net.inputs = [helper.make_tensor_value_info(EVIL, TensorProto.UINT32, (1, 4))]
    path = net.save(tmp_path / "net.onnx", net.node("Relu", EVIL))
    assert refused("run", path) == (
        f'input "{SHOWN}" has dtype uint32; inputs must be tensors of float, int8, uint8, int32, '
        "int64, bool; export the model with one of these"
    )


def test_outputs_keep_their_names(tmp_path: Path) -> None:
    net = Net(data=(1, 4))
    names = ("file", "allow_pickle", "../x", EVIL)
    for name in names:
        net.nodes.append(helper.make_node("Relu", ["data"], [name], name="n"))
    path, output = net.save(tmp_path / "net.onnx", *names), tmp_path / "y.npz"
    result = cli("run", path, "--output", output)
    assert result.exit_code == 0, result.stderr
    assert SHOWN.replace("\\x07", "") in result.stdout and "\x1b" not in result.output
    assert list(load_named(output)) == list(names)
