"""From a run over the page to the next run: what was clicked in a browser is what the next run learns from."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from uniot.datasets import make_toy_domains
from uniot.io.predictions import read_predictions
from uniot.labelling.names import read_names
from uniot.runs.loading import load_model

pytestmark = pytest.mark.browser


def uniot(*arguments: object, folder: Path) -> str:
    command = [sys.executable, "-m", "uniot", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def labelling(run: Path):
    """The address of the page while it is served."""
    command = [sys.executable, "-m", "uniot", "label", str(run)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as server:
        try:
            yield re.search(r"http://\S+", server.stdout.readline())[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=20)


@pytest.mark.slow
def test_named_in_a_browser_learnt_by_the_next_run(chromium_page, tmp_path):
    from playwright.sync_api import expect

    toy = make_toy_domains(seed=1)
    np.savez(tmp_path / "source.npz", x=toy.x_source, y=toy.y_source)
    np.savez(tmp_path / "target.npz", x=toy.x_target, ids=[f"{row}.jpg" for row in range(len(toy.x_target))])
    uniot("adapt", "source.npz", "target.npz", "--private-classes", 2, "--out", "run", folder=tmp_path)
    members = np.flatnonzero(load_model(tmp_path / "run").target.group == 0)

    with labelling(tmp_path / "run") as address:
        page = chromium_page
        page.goto(address)
        page.get_by_role("link", name="Groups").click()
        page.get_by_label("Go to the next unnamed group after saving").uncheck()
        page.get_by_label("Name of this group").fill("kettle")
        page.get_by_role("button", name="Save name").click()
        expect(page.locator("#message")).to_have_text("Group 0 named “kettle”.")
        page.locator(f"#sample-{members[0]}").click()
        page.get_by_role("button", name="Discard", exact=True).click()
        expect(page.locator("#message")).to_have_text("1 sample discarded.")
        page.get_by_role("button", name="Finish").click()
        expect(page.locator("#finish-text")).to_contain_text("labels.csv is written")
        expect(page.locator("#finish-commands code").first).to_have_text(f"uniot adapt --continue {tmp_path / 'run'}")

    names = read_names(tmp_path / "run" / "labels.csv")
    decided = dict(zip(names.names, names.decisions.tolist(), strict=True))
    assert decided == {f"{row}.jpg": "discarded" if row == members[0] else "named" for row in members}

    told = uniot("adapt", "--continue", "run", folder=tmp_path)
    assert (
        f"{len(members) - 1} samples that you labelled keep their labels. 1 sample that you discarded is left" in told
    )
    model = load_model(tmp_path / "run-continued")
    assert sorted(model.classes.tolist()) == sorted([*set(toy.y_source.tolist()), "kettle"])
    answers = read_predictions(tmp_path / "run-continued" / "predictions.csv")
    assert f"{members[0]}.jpg" not in answers.names
    called = dict(zip(answers.names, answers.labels.tolist(), strict=True))
    assert {called[f"{row}.jpg"] for row in members[1:]} == {"kettle"}
