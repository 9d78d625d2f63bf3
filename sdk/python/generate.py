"""Generates src/hookgate/_proto from the .proto files. With --check it fails where what is in git differs."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "proto"
COMMITTED = HERE / "src" / "hookgate" / "_proto"
SERVICES = ["types", "plugin", "gateway", "host"]


def generate(out: Path) -> None:
    """Writes the modules of all services, as a package of its own: `hookgate` is the SDK's."""
    out.mkdir(exist_ok=True)
    sources = [str(PROTO / "hookgate" / name / "v1" / f"{name}.proto") for name in SERVICES]
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        plugins = [
            f"--plugin=protoc-gen-{kind}={Path(sys.executable).parent}/protoc-gen-{kind}"
            for kind in ("mypy", "mypy_grpc")
        ]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}", *plugins, *options, *sources]
        subprocess.run(command, check=True)
        for file in sorted(Path(folder, "hookgate").rglob("*.py*")):
            if not file.stem.startswith("types_pb2_grpc"):  # it has no service
                (out / file.name).write_text(private(file.read_text()))
    (out / "__init__.py").write_text('"""Generated from the .proto files by generate.py."""\n')


def private(text: str) -> str:
    """The module with imports of its package in place of `hookgate.types.v1` and the like."""
    text = re.sub(r"from hookgate\.\w+\.v1 import (\w+)", r"from hookgate._proto import \1", text)
    text = re.sub(r"import hookgate\.\w+\.v1\.(\w+)(?= as|$)", r"import hookgate._proto.\1", text, flags=re.M)
    return re.sub(r"\bhookgate\.(?:types|plugin|gateway|host)\.v1\.(\w+_pb2)", r"hookgate._proto.\1", text)


def files(folder: Path) -> dict[str, str]:
    """The modules of a folder, by name."""
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.glob("*.py*"))}


def check() -> None:
    """Fails if what is in git differs from what the .proto files say."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        before, after = files(COMMITTED), files(Path(folder))
    different = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if different:
        sys.exit(f"{', '.join(different)}: differ from the .proto files. Run `generate.py`.")


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        check()
    else:
        generate(COMMITTED)
