from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from uniot.errors import SettingsError
from uniot.training.processes import Processes, start_processes

SCRIPT = Path(__file__).parents[1] / "shared_run.py"
# A mean over the whole batch and a mean of two means differ in the last bits, and thirty steps carry that on.
TOLERANCE = 1e-4


def run_script(folder: Path, count: int, *launcher: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MASTER_", "LOCAL_", "RANK"))}
    environment |= {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, *launcher, str(SCRIPT), str(folder), str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def ended_with(tmp_path_factory) -> dict[str, dict[str, torch.Tensor]]:
    """What one process ends with, and each of two that fabric starts, and each of two that torchrun starts."""
    folder, by_torchrun = tmp_path_factory.mktemp("shared"), tmp_path_factory.mktemp("torchrun")
    run_script(folder, 1)
    run_script(folder, 2)
    run_script(by_torchrun, 2, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = {file.stem: load_file(file) for file in sorted(folder.iterdir())}
    return found | {f"torchrun {file.stem}": load_file(file) for file in sorted(by_torchrun.iterdir())}


@pytest.mark.slow
def test_two_processes_end_with_the_same_bits(ended_with):
    for launcher in ("", "torchrun "):
        first, second = ended_with[f"{launcher}0-of-2"], ended_with[f"{launcher}1-of-2"]
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["", "torchrun "])
def test_two_processes_have_the_losses_and_weights_of_one(ended_with, launcher):
    one, two = ended_with["0-of-1"], ended_with[f"{launcher}0-of-2"]
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(
            two[name], one[name], rtol=TOLERANCE, atol=TOLERANCE, msg=lambda text, n=name: f"{n}: {text}"
        )
    # The comparison means something only if training moved the weights and detection was on.
    assert one["losses"][1, -1] > 0
    for known in (one["known"], one["universal.known"]):
        assert 0 < known.sum() < len(known)


def test_parts_of_all_processes_make_up_the_whole():
    for count in range(1, 6):
        for size in range(12):
            items = list(range(size))
            parts = []
            for rank in range(count):
                processes = Processes()
                processes.rank, processes.count = rank, count
                parts += items[processes.part(size)]
            assert parts == items


def test_one_process_needs_nothing_to_start():
    processes = start_processes(1)
    assert (processes.rank, processes.count, processes.device) == (0, 1, torch.device("cpu"))
    rows = torch.ones(2, 3)
    assert processes.gather(rows) is rows
    assert processes.add(rows) is rows


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_mixed_precision_without_a_gpu_is_refused():
    with pytest.raises(SettingsError, match="precision is 'bf16-mixed' and there is no GPU here"):
        start_processes(1, precision="bf16-mixed")
