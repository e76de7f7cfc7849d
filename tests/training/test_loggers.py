"""Logging of a training: to any logger, to real TensorBoard, MLflow and W&B files, and not where nothing is trained."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from uniot import UniDAClassifier, UniOT
from uniot.datasets import make_toy_domains
from uniot.errors import MissingPackageError, NumericalError, SettingsError
from uniot.training.history import open_logger

SMALL = {"method": "uniot", "steps": 12, "hidden_size": 16, "feature_size": 8, "queue_size": 72, "random_state": 0}


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.settings, self.steps, self.ends = {}, [], []

    def log_hyperparams(self, params):
        self.settings |= params

    def log_metrics(self, metrics, step=None):
        self.steps.append((step, metrics))

    def finalize(self, status):
        self.ends.append(status)


@pytest.fixture(scope="module")
def toy():
    return make_toy_domains(seed=1)


def fit(toy, logger, **changes) -> UniDAClassifier:
    return UniDAClassifier(**(SMALL | changes), logger=logger).fit(toy.x_source, toy.y_source, toy.x_target)


def test_losses_settings_and_estimates_are_logged(toy):
    logger = Recorder()
    model = fit(toy, logger)
    assert logger.settings["steps"] == 12
    assert logger.settings["learning_rate"] == model.settings_.learning_rate
    assert [step for step, _ in logger.steps] == [*range(1, 13), 12]
    for name in ("loss", "loss_source", "learning_rate"):
        assert [row[name] for _, row in logger.steps[:-1]] == model.history_[name]
    assert not any(np.isnan(value) for _, row in logger.steps for value in row.values())
    assert logger.steps[-1][1]["private_prior"] == model.private_prior_
    assert logger.ends == ["success"]


def test_logging_does_not_change_the_result(toy):
    assert (fit(toy, Recorder()).labels_ == fit(toy, None).labels_).all()


def test_training_that_fails_is_ended_as_failed(toy):
    logger = Recorder()

    def fails(step, steps, row):
        raise NumericalError("the loss is nan")

    with pytest.raises(NumericalError):
        UniDAClassifier(**SMALL, logger=logger).fit(toy.x_source, toy.y_source, toy.x_target, on_step=fails)
    assert logger.ends == ["failed"]


def test_closed_form_method_says_that_nothing_is_trained(toy):
    with pytest.raises(SettingsError, match="logger does nothing for the method 'unincm'"):
        UniDAClassifier("unincm", logger=Recorder())


def test_object_that_is_no_logger_is_refused(toy):
    with pytest.raises(SettingsError, match="logger is 'list', which has no log_hyperparams"):
        fit(toy, [])


def test_logger_is_a_parameter_that_clones_keep():
    assert isinstance(clone(UniOT(logger=Recorder())).logger, Recorder)


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb")]
)
def test_missing_package_is_named_with_what_to_install(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"needs {package}, .*Run `pip install 'uniot\[{name}\]'`"):
        open_logger(name, tmp_path)


def test_command_logs_losses_and_scores_to_tensorboard(uniot, toy, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    np.savez(tmp_path / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(tmp_path / "target.npz", x=toy.x_target)
    np.savez(tmp_path / "truth.npz", y=toy.oracle_y_target)
    (tmp_path / "small.toml").write_text('method = "uniot"\nsteps = 12\nhidden_size = 16\nfeature_size = 8\n')
    command = ("adapt", tmp_path / "source.npz", tmp_path / "target.npz", "--settings", tmp_path / "small.toml")
    more = ("--out", tmp_path / "run", "--target-labels", tmp_path / "truth.npz", "--log", "tensorboard")
    done = uniot(*command, *more)
    assert done.code == 0, done.stderr
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    history = (tmp_path / "run" / "history.csv").read_text().splitlines()
    place = history[0].split(",").index("loss_source")
    logged = {event.step: event.value for event in events.Scalars("loss_source")}
    assert logged == {n: pytest.approx(float(row.split(",")[place]), rel=1e-5) for n, row in enumerate(history[1:], 1)}
    assert 0 <= events.Scalars("score_h_score")[0].value <= 1
    assert "_hparams_/session_start_info" in events.PluginTagToContent("hparams")


def test_command_says_that_nothing_was_logged(uniot, toy, tmp_path):
    pytest.importorskip("tensorboard")
    np.savez(tmp_path / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(tmp_path / "target.npz", x=toy.x_target)
    files = (tmp_path / "source.npz", tmp_path / "target.npz")
    done = uniot("adapt", *files, "--out", tmp_path / "run", "--log", "tensorboard")
    assert "Nothing was logged: unincm trains nothing here." in done.stdout
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_mlflow_run_holds_losses_and_settings(toy, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    uri = (tmp_path / "server").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(uri)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # files are MLflow's way without a database
        fit(toy, open_logger("mlflow", tmp_path / "run"))
        client = mlflow.MlflowClient(uri)
        (run,) = client.search_runs([client.get_experiment_by_name("uniot").experiment_id])
        assert run.data.params["steps"] == "12"
        assert len(client.get_metric_history(run.info.run_id, "loss")) == 12
        assert run.info.status == "FINISHED"


def test_wandb_logs_offline(toy, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    fit(toy, open_logger("wandb", tmp_path / "run"))
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
