"""Commands print wherever they are run: to a terminal or a pipe whose encoding has few letters."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from uniot.cli import main
from uniot.datasets import make_toy_domains

from tiers import slow_unless  # isort: skip

ENCODINGS = ("ascii", "cp1252", "latin-1")
SETTINGS = 'method = "uniot"\nsteps = 5\nhidden_size = 16\nfeature_size = 8\nqueue_size = 40\nn_private_classes = 2\n'


@pytest.fixture(params=slow_unless(ENCODINGS, ["ascii"]))
def printed(request, monkeypatch) -> Callable[..., str]:
    """Run a command whose standard output and error are pipes in an encoding; return what it printed to both."""

    def run(*arguments: object) -> str:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=request.param, write_through=True) for _ in range(2)]
        monkeypatch.setattr(sys, "argv", ["uniot", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "100")
        code = 0
        with mock.patch.multiple(sys, stdout=streams[0], stderr=streams[1]):
            try:
                main()
            except SystemExit as stop:
                code = stop.code or 0
        texts = [stream.buffer.getvalue().decode(request.param) for stream in streams]
        assert code == 0, texts[1]
        return "".join(texts)

    return run


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    toy = make_toy_domains(seed=1)
    folder = tmp_path_factory.mktemp("files")
    labels = np.char.add("größe→狗 ", toy.y_source.astype(str))
    truth = np.char.add("größe→狗 ", toy.oracle_y_target.astype(str))
    np.savez(folder / "source.npz", x=toy.x_source, y=labels)
    np.savez(folder / "target.npz", x=toy.x_target, ids=[f"狗/{row}.jpg" for row in range(len(toy.x_target))])
    np.savez(folder / "truth.npz", x=toy.x_target, y=truth)
    (folder / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    return folder


def test_every_step_from_adapt_on_prints(printed, files, tmp_path):
    run = tmp_path / "run"
    said = printed(
        *("adapt", files / "source.npz", files / "target.npz", "--settings", files / "settings.toml", "--out", run),
        *("--target-labels", files / "truth.npz"),
    )
    assert "\\u72d7" in said  # the class name, of which no encoding here has the last letter
    assert "H-score" in said or "h_score" in said
    table = printed("predict", run, files / "target.npz")
    assert len(table.splitlines()) > 100
    assert "\\u72d7/0.jpg" in table
    assert "h_score" in printed("evaluate", run, "--labels", files / "truth.npz")
    assert "report.html" in printed("report", run)
    assert "Next: uniot pull" in printed("push", run, tmp_path / "shared")
    assert "contains a run with" in printed("pull", tmp_path / "shared", "--out", tmp_path / "copy")


def test_tables_and_help_are_readable(printed):
    methods = printed("methods")
    assert "unincm" in methods
    assert "\\u" not in methods
    for arguments in ([], ["adapt"], ["predict"], ["benchmark"], ["label"], ["data"], ["embed"], ["export"], ["demo"]):
        said = printed(*arguments, "--help")
        assert "Usage" in said
        assert "\\u" not in said, arguments


def test_signs_that_an_encoding_lacks_are_written_in_ascii(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["uniot", "--version"])
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    with mock.patch.object(sys, "stdout", stream), pytest.raises(SystemExit):
        main()
    stream.write("61.2 ± 0.4, 8 × 8, λ → H³ … 狗")
    assert stream.buffer.getvalue().decode("ascii").endswith("61.2 +- 0.4, 8 x 8, lambda -> H^3 ... \\u72d7")


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
@pytest.mark.medium
@pytest.mark.parametrize("closed", [">&-", pytest.param("2>&-", marks=pytest.mark.slow)])
def test_closed_stream_does_not_end_a_command(closed):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        ["sh", "-c", f'"$0" -m uniot methods {closed}', sys.executable], env=environment, check=False
    )
    assert ended.returncode == 0


def test_bytes_of_a_file_name_that_are_no_text_are_escaped(monkeypatch):
    """Written as they are, some of them are control characters: to a terminal, 0x9b is the same as ESC [."""
    monkeypatch.setattr(sys, "argv", ["uniot", "predict", "run", "a\udc9b1m.npz"])
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", write_through=True)
    with mock.patch.object(sys, "stderr", stream), pytest.raises(SystemExit):
        main()
    assert stream.buffer.getvalue().startswith(b"Error: a\\udc9b1m.npz does not exist.")
