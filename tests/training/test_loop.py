from __future__ import annotations

import csv
import io
import math
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import uniot.training.loop as training
from uniot.errors import NumericalError, RunFolderError, RunInterrupted
from uniot.io.tensor_files import read_tensors
from uniot.methods.base import Batch, Losses
from uniot.runs import Run, saving
from uniot.training.domains import domains_from_arrays
from uniot.training.fit import fingerprint
from uniot.training.history import History
from uniot.training.loop import learning_rate_factor, train
from uniot.training.samples import PairedBatches, TensorSamples

SCRIPT = Path(__file__).parents[1] / "small_run.py"
small = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


class Stopped(Exception):
    """What a test throws into a run."""


def stop_at(step: int):
    def told(done: int, row: object) -> None:
        if done == step:
            raise Stopped

    return told


def state(method: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items()}


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def same_history(a: History, b: History) -> bool:
    return a.columns == b.columns and repr(a.rows) == repr(b.rows)  # NaN is written as NaN, unlike compared


@pytest.fixture(scope="module")
def uninterrupted():
    method, history = small.run()
    return state(method), history


# --- the schedule -----------------------------------------------------------------------------------------


def test_learning_rate_decays_as_in_the_paper():
    assert learning_rate_factor(0, 500) == 1
    # (1 + 10/2)^-¾ = 6^-¾, and 11^-¾ where the run would end.
    assert learning_rate_factor(250, 500) == pytest.approx(0.260847, abs=1e-6)
    assert learning_rate_factor(500, 500) == pytest.approx(0.165560, abs=1e-6)


def test_every_group_of_weights_decays_from_its_own_rate(monkeypatch):
    rates: list[list[float]] = []

    class Recording(torch.optim.SGD):
        def step(self, closure=None):
            rates.append([group["lr"] for group in self.param_groups])
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "SGD", Recording)
    train_toy(Toy(backbone=nn.Linear(2, 2)), learning_rate=0.4, backbone_learning_rate=0.02, steps=4)
    expected = [[0.4 * learning_rate_factor(i, 4), 0.02 * learning_rate_factor(i, 4)] for i in range(4)]
    assert rates == [pytest.approx(row) for row in expected]


def test_history_tells_the_learning_rate_and_counts_steps_from_one(uninterrupted):
    _, history = uninterrupted
    assert history.column("step") == list(range(1, 31))
    expected = [0.05 * learning_rate_factor(step, 30) for step in range(30)]
    assert history.column("learning_rate") == pytest.approx(expected)


# --- the loop, seen by a method that it does not know -----------------------------------------------------


class Toy(nn.Module):
    """A method of one weight that writes down what it sees."""

    def __init__(self, loss=None, backbone: nn.Module | None = None, prepared_after: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.backbone = backbone or nn.Identity()
        self.loss = loss or (lambda step, weight: weight.square().sum())
        self.seen: list[Batch] = []
        self.events: list[str] = []
        self.left = prepared_after

    def is_prepared(self) -> bool:
        return self.left <= 0

    def prepare(self, target: torch.Tensor, target_ids: torch.Tensor, gather: object) -> None:
        self.left -= len(target_ids)
        self.events.append(f"prepare {'training' if self.training else 'eval'}")

    def step(self, batch: Batch) -> Losses:
        self.seen.append(batch)
        self.events.append(f"step {'training' if self.training else 'eval'}")
        loss = self.loss(batch.step, self.weight)
        return Losses(total=loss, parts={"square": loss}, notes={"note": float(batch.step)})

    def after_step(self) -> None:
        self.events.append("after")

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


def train_toy(method: Toy, **changes) -> History:
    options = {name: changes.pop(name) for name in ("checkpoints", "watch", "on_step") if name in changes}
    source, target = TensorSamples(torch.arange(12.0)[:, None]), TensorSamples(100 + torch.arange(20.0)[:, None])
    settings = small.settings_of(**({"steps": 6, "batch_size": 5} | changes))
    return train(method, source, torch.arange(12) % 3, target, settings, **options)


def test_method_is_prepared_in_eval_mode_then_stepped_in_training_mode():
    method = Toy(prepared_after=8)
    train_toy(method, steps=2)
    assert method.events == ["prepare eval"] * 2 + ["step training", "after"] * 2
    assert not method.training


def test_step_sees_the_batches_of_its_seed_and_number():
    method = Toy()
    train_toy(method, seed=9)
    batches = PairedBatches(torch.arange(12) % 3, 20, 5, 9)
    for step, batch in enumerate(method.seen):
        assert batch.step == step
        assert batch.target_ids.tolist() == batches.target(step).tolist()
        assert batch.target[:, 0].tolist() == (100 + batches.target(step)).tolist()
        assert batch.source[:, 0].tolist() == batches.source(step).tolist()
        assert batch.source_labels.tolist() == (batches.source(step) % 3).tolist()


def test_weights_follow_nesterov_momentum_worked_by_hand():
    # Loss w², gradient 2w; rate 0.1 held constant, momentum 0.5, no decay. Buffer b, update −0.1 (g + 0.5 b).
    #   w = 1:    g = 2,   b = 2,               w −= 0.1 (2 + 1)      → 0.7
    #   w = 0.7:  g = 1.4, b = 0.5·2 + 1.4 = 2.4, w −= 0.1 (1.4 + 1.2)  → 0.44
    method = Toy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "learning_rate_factor", lambda step, steps: 1.0)
        train_toy(method, steps=2, learning_rate=0.1, momentum=0.5, weight_decay=0)
    assert method.weight.tolist() == pytest.approx([0.44, 0.44])


def test_history_holds_loss_parts_notes_and_what_a_watch_adds():
    def watch(ids: torch.Tensor, losses: Losses) -> dict[str, float]:
        return {"seen": float(len(ids))}

    told = []
    history = train_toy(Toy(), steps=3, watch=watch, on_step=lambda step, row: told.append((step, dict(row))))
    assert history.columns == ["step", "learning_rate", "loss", "loss_square", "note", "seen"]
    assert history.column("seen") == [5, 5, 5]
    assert history.column("note") == [0, 1, 2]
    assert history.column("loss") == history.column("loss_square")
    assert [step for step, _ in told] == [1, 2, 3]
    assert [row["loss"] for _, row in told] == history.column("loss")


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_loss_that_leaves_the_numbers_is_named_with_its_step_and_part(wrong):
    method = Toy(loss=lambda step, weight: weight.sum() * (wrong if step == 3 else 1))
    with pytest.raises(NumericalError, match=rf"the loss is {wrong} at step 4 \(part: square\). Lower learning_rate"):
        train_toy(method)
    assert torch.isfinite(method.weight).all()


def test_weights_that_diverge_are_named_with_the_step():
    # A decay of 1 at a rate of 100 multiplies every weight by −99 in each step.
    with pytest.raises(NumericalError, match=r"at step \d+ .*Lower learning_rate"):
        small.run(learning_rate=100.0, weight_decay=1.0, steps=100)


def test_bad_target_values_are_named_with_the_step():
    source, classes, target = small.data()
    target[3] = math.nan
    with pytest.raises(NumericalError, match=r"at step \d+ .*check the embeddings"):
        small.run(values=(source, classes, target))


# --- history on disk --------------------------------------------------------------------------------------


def test_history_comes_back_from_csv(uninterrupted):
    _, history = uninterrupted
    rows = list(csv.DictReader(io.StringIO(history.to_csv())))
    assert len(rows) == 30
    assert list(rows[0]) == history.columns
    for name in history.columns:
        for text, value in zip((row[name] for row in rows), history.column(name), strict=True):
            if math.isnan(value):
                assert text == ""
            else:
                # Nine digits are all that a float32 loss has.
                assert float(text) == pytest.approx(value, rel=1e-8)
                if name.startswith("loss"):
                    assert torch.tensor(float(text)) == torch.tensor(value)


def test_step_before_detection_has_an_empty_cell_for_it(uninterrupted):
    _, history = uninterrupted
    lines = history.to_csv().splitlines()
    place = history.columns.index("detected")
    assert [line.split(",")[place] == "" for line in lines[1:]] == [True] * 5 + [False] * 25


# --- the same to the last bit -----------------------------------------------------------------------------


def test_two_trainings_are_the_same_to_the_last_bit(uninterrupted):
    method, history = small.run()
    assert same_bits(state(method), uninterrupted[0])
    assert same_history(history, uninterrupted[1])


def test_another_seed_is_another_run(uninterrupted):
    method, _ = small.run(seed=1)
    assert not same_bits(state(method), uninterrupted[0])


def test_writing_checkpoints_does_not_change_the_run(uninterrupted, tmp_path):
    method, history = small.run(tmp_path, checkpoint_every=7)
    assert same_bits(state(method), uninterrupted[0])
    assert same_history(history, uninterrupted[1])


@pytest.mark.parametrize("step", [1, 4, 5, 6, 17, 29, 30])
def test_interrupted_run_resumes_to_the_same_weights(step, uninterrupted, tmp_path):
    with pytest.raises(Stopped):
        small.run(tmp_path, stop_at(step))
    told = []
    method, history = small.run(tmp_path, lambda done, row: told.append(done))
    # A step is told before it is saved: a stop at step 5 falls back to what was saved before.
    assert told == list(range((step - 1) // 5 * 5 + 1, 31))
    assert same_bits(state(method), uninterrupted[0])
    assert same_history(history, uninterrupted[1])


def test_run_interrupted_again_and_again_resumes_to_the_same_weights(uninterrupted, tmp_path):
    for step in (3, 8, 8, 14, 22, 30):
        with pytest.raises(Stopped):
            small.run(tmp_path, stop_at(step), checkpoint_every=1 + step % 4)
    method, history = small.run(tmp_path)
    assert same_bits(state(method), uninterrupted[0])
    assert same_history(history, uninterrupted[1])


def test_finished_run_is_not_trained_again(uninterrupted, tmp_path):
    small.run(tmp_path)
    told = []
    method, history = small.run(tmp_path, lambda done, row: told.append(done))
    assert told == []
    assert same_bits(state(method), uninterrupted[0])
    assert same_history(history, uninterrupted[1])


def test_end_of_a_run_is_saved_though_no_checkpoint_is_due(tmp_path):
    history = train_toy(Toy(), checkpoints=Run.writer(tmp_path).checkpoints, steps=6, checkpoint_every=4)
    method = Toy()
    assert (
        train_toy(method, checkpoints=Run.writer(tmp_path).checkpoints, steps=6, checkpoint_every=4).rows
        == history.rows
    )
    assert method.seen == []


def test_crash_while_a_checkpoint_is_written_leaves_the_one_before(uninterrupted, tmp_path, monkeypatch):
    real = saving.write_tensors

    def fails_at_ten(path, tensors, about):
        if about["step"] == 10:
            raise Stopped
        real(path, tensors, about)

    monkeypatch.setattr(saving, "write_tensors", fails_at_ten)
    with pytest.raises(Stopped):
        small.run(tmp_path)
    monkeypatch.undo()
    told = []
    method, _ = small.run(tmp_path, lambda done, row: told.append(done))
    assert told[0] == 6
    assert same_bits(state(method), uninterrupted[0])


# --- a folder of another run ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"epsilon": 0.02}, {"steps": 40}, {"seed": 3}])
def test_other_settings_do_not_continue_a_run(changes, tmp_path):
    with pytest.raises(Stopped):
        small.run(tmp_path, stop_at(6))
    with pytest.raises(
        RunFolderError, match=r"an unfinished run of other data or other settings\. Give another folder, or remove"
    ):
        small.run(tmp_path, **changes)


def test_other_data_do_not_continue_a_run(tmp_path):
    with pytest.raises(Stopped):
        small.run(tmp_path, stop_at(6))
    source, classes, target = small.data()
    target[0, 0] += 1e-3
    with pytest.raises(RunFolderError, match="an unfinished run of other data or other settings"):
        small.run(tmp_path, values=(source, classes, target))


def test_damaged_checkpoint_is_not_continued(tmp_path):
    small.run(tmp_path)
    path = Run.writer(tmp_path).files.checkpoint
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunFolderError, match="cannot be read"):
        small.run(tmp_path)


def test_fingerprint_tells_data_and_settings_apart_but_not_how_often_is_saved():
    x, y, target = np.arange(12.0).reshape(4, 3) + 1, ["a", "b", "a", "b"], np.ones((5, 3))
    settings = small.settings_of()

    def digest(x, y, target):
        return fingerprint(settings, domains_from_arrays(x, y, target, settings).digest)

    first = digest(x, y, target)
    again = domains_from_arrays(x, y, target, settings).digest
    assert fingerprint(small.settings_of(checkpoint_every=3), again) == first
    others = [
        fingerprint(small.settings_of(temperature=0.2), again),
        digest(x[::-1], y, target),
        digest(x, ["a", "b", "b", "a"], target),
        digest(x, y, target[:4]),
        digest(x, y, 1 + np.arange(15.0).reshape(5, 3)),
    ]
    assert len({first, *others}) == 6


# --- Ctrl-C and worse -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_step_saves_and_says_how_to_go_on(uninterrupted, tmp_path):
    def press(done: int, row: object) -> None:
        if done == 12:
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(RunInterrupted, match=r"stopped at step 12 of 30\. .* run the same command again to continue"):
        small.run(tmp_path, press)
    assert signal.getsignal(signal.SIGINT) is handler
    told = []
    method, history = small.run(tmp_path, lambda done, row: told.append(done))
    assert told[0] == 13
    assert same_bits(state(method), uninterrupted[0])
    assert same_history(history, uninterrupted[1])


def test_ctrl_c_that_was_ignored_from_the_start_stays_so(tmp_path):
    seen = []

    def press(done: int, row: object) -> None:
        seen.append(signal.getsignal(signal.SIGINT))
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _, history = small.run(tmp_path, press)
        seen.append(signal.getsignal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(history.rows) == 30
    assert set(seen) == {signal.SIG_IGN}


@pytest.mark.usefixtures("interruptible")
def test_second_ctrl_c_stops_at_once(tmp_path):
    def press_twice(done: int, row: object) -> None:
        if done == 12:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        small.run(tmp_path, press_twice)


def test_what_an_interrupted_run_says_is_saved_is_saved(tmp_path, monkeypatch):
    # Ctrl-C may come at any moment, also between two looks at whether it came.
    from contextlib import contextmanager

    looks = iter([False, True] * 100)

    @contextmanager
    def pressed_between_two_looks(*, enabled):
        yield lambda: next(looks)

    monkeypatch.setattr(training, "_interrupts_noted", pressed_between_two_looks)
    with pytest.raises(RunInterrupted) as caught:
        small.run(tmp_path, checkpoint_every=100)
    _, about = read_tensors(Run.writer(tmp_path).files.checkpoint)
    assert f"stopped at step {about['step']} of 30" in str(caught.value)


@pytest.mark.usefixtures("interruptible")
def test_without_a_folder_ctrl_c_is_left_alone():
    def press(done: int, row: object) -> None:
        if done == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        small.run(None, press)


def start(folder: Path, pause: float) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, SCRIPT, folder, str(pause)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


@pytest.mark.usefixtures("interruptible")
@pytest.mark.slow
def test_ctrl_c_at_a_terminal_says_where_the_run_stands(tmp_path):
    with start(tmp_path, pause=0.05) as process:
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert said.startswith("stopped at step ")
    assert "is saved in the run folder; run the same command again to continue." in said


@pytest.mark.slow
def test_killed_run_resumes_to_the_same_weights(tmp_path):
    moments = random.Random(0)
    reached = []
    for _ in range(3):
        with start(tmp_path, pause=0) as process:
            first = process.stdout.readline()
            # A step takes a few milliseconds, most of them in writing the checkpoint.
            time.sleep(moments.uniform(0, 0.15))
            process.kill()
            process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        reached.append(int(first))
    assert reached == sorted(reached)
    assert 1 < reached[-1] < 120
    method, history = small.run(tmp_path, steps=120, checkpoint_every=1)
    expected, expected_history = small.run(steps=120)
    assert same_bits(state(method), state(expected))
    assert same_history(history, expected_history)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.suffix == ".safetensors"] == [
        "last.safetensors"
    ]
