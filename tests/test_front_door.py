"""`import uniot` is enough to reach everything that is public, without waiting for torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import uniot

PACKAGES = [name for name in uniot.__all__ if isinstance(getattr(uniot, name), ModuleType)]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_packages_are_attributes_of_the_import():
    assert {"transport", "losses", "metrics", "datasets", "discovery", "methods"} <= set(PACKAGES)
    code = "import uniot; print(uniot.transport.unbalanced_plan.__name__, uniot.losses.UniOTLoss.__name__)"
    assert python(code) == "unbalanced_plan UniOTLoss"


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_lists_public_names_that_are_there(name):
    package = getattr(uniot, name)
    assert package.__doc__
    public = getattr(package, "__all__", [])
    assert all(getattr(package, one) is not None for one in public)
    # A name that is imported on first use must be found by completion before it is used.
    assert set(public) <= set(dir(package))


@pytest.mark.parametrize("name", ["discovery", "estimators", "runs", "text"])
def test_dir_of_a_package_is_its_public_names(name):
    assert python(f"import uniot; print(*dir(uniot.{name}))").split() == sorted(getattr(uniot, name).__all__)


def test_dir_is_exactly_the_public_names():
    assert dir(uniot) == sorted(uniot.__all__)
    code = "import uniot.cli; print('cli' in dir(uniot))"
    assert python(code) == "False"


def test_star_import_brings_the_public_names_and_nothing_else():
    code = "before = set(globals()); from uniot import *; print(*sorted(set(globals()) - before - {'before'}))"
    assert python(code).split() == sorted(uniot.__all__)


def test_neither_the_import_nor_its_completion_loads_torch():
    code = "import sys, uniot; dir(uniot); print('torch' in sys.modules, 'sklearn' in sys.modules)"
    assert python(code) == "False False"


def test_the_help_does_not_wait_for_torch():
    code = (
        "import sys; sys.argv = ['uniot', '--help']; from uniot.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    )
    assert python(code + "print('torch' in sys.modules)").endswith("False")


def test_completion_of_a_session_knows_the_packages():
    code = "import uniot, rlcompleter; print(*rlcompleter.Completer({'uniot': uniot}).attr_matches('uniot.tran'))"
    assert python(code) == "uniot.transport"


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="module 'uniot' has no attribute 'transprot'"):
        uniot.transprot  # noqa: B018


@pytest.mark.slow
def test_a_type_checker_sees_the_types(tmp_path):
    file = tmp_path / "user.py"
    file.write_text("import uniot\nreveal_type(uniot.transport.unbalanced_plan)\nreveal_type(uniot.UniOT)\n")
    mypy = pytest.importorskip("mypy.api")
    cache = Path(uniot.__file__).parents[2] / ".mypy_cache"
    report, _, _ = mypy.run([str(file), "--cache-dir", str(cache), "--follow-imports", "silent"])
    assert 'Revealed type is "def (similarity:' in report
    assert "uniot.estimators" in report
