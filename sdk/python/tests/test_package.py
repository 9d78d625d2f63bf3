"""The package as users install it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 10)
USE = """
import hookgate, hookgate.agent, hookgate.agent.sync, hookgate.testing
assert hookgate.__file__.startswith(__import__("sys").prefix), hookgate.__file__
"""


def run(*command: str | Path) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def version_of(python: Path) -> tuple[int, ...] | None:
    """The version of an interpreter that can make virtual environments."""
    ask = "import ensurepip, sys; print(*sys.version_info[:2])"
    ran = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return tuple(map(int, ran.stdout.split())) if ran.returncode == 0 else None


def interpreters() -> list[Path]:
    """The oldest and the newest supported Python that this machine has."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    folders += Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    found = {(3, int(python.name[8:])): python for folder in folders for python in folder.glob("python3.[0-9][0-9]")}
    versions = {version_of(python): python for version, python in found.items() if version >= OLDEST}
    versions[sys.version_info[:2]] = Path(sys.executable)
    supported = sorted((version, python) for version, python in versions.items() if version is not None)
    return [supported[0][1], supported[-1][1]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_the_wheel_installs_into_a_clean_environment_and_imports(which: str, wheel: Path, tmp_path: Path) -> None:
    oldest, newest = interpreters()
    run(oldest if which == "oldest" else newest, "-m", "venv", tmp_path)
    python = tmp_path / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    run(python, "-c", USE)
    assert "--listen" in run(python, "-m", "hookgate", "run", "--help")
    assert (next(tmp_path.glob("lib/python3*/site-packages/hookgate")) / "py.typed").exists()
