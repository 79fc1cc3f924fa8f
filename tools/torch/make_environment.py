#!/usr/bin/env python3
"""Makes a Python environment with a real PyTorch, for the tests of python/poseidon_torch.

  tools/torch/make_environment.py [VERSION]

It becomes out/torch/VERSION and is kept; where it is whole already, nothing is done and nothing said.
PyTorch comes from the Python package index without CUDA's libraries, of which nothing but the names
is needed on a machine without a GPU (stub_libraries.py): 540 MB to download, 1.5 GB on disk. Exit
code 1, with a sentence, if it can't be made.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import time

import stub_libraries

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEFAULT_VERSION = "2.15.0"
# What PyTorch imports on a processor; it names CUDA's packages, too, so that it is installed without
# looking at what it needs.
NEEDED = [
    "filelock",
    "fsspec",
    "jinja2",
    "networkx",
    "numpy",
    "setuptools<81",
    "sympy",
    "typing-extensions",
]
# Written last: without it the environment is half made.
WHOLE = "whole"
CHECK = """
import torch
x = torch.ones(3, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2, 2, 2] and not torch.cuda.is_available()
import torch.distributed
"""


class Failed(Exception):
    """A step that did not work; says what to do."""


def run(what: str, command: list) -> None:
    print(f"tools/setup: {what}", flush=True)
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        lines = result.stdout.strip().splitlines()
        raise Failed(f"{what}: {lines[-1] if lines else f'exit code {result.returncode}'}")


def library_folder(site_packages: pathlib.Path) -> pathlib.Path:
    """Where PyTorch's libraries look for CUDA's: the first folder of their run path beside theirs."""
    for line in stub_libraries.readelf(
        site_packages / "torch/lib/libtorch_cuda.so", "-d"
    ).splitlines():
        if "RUNPATH" in line or "RPATH" in line:
            for entry in line.split("[")[1].rstrip("]").split(":"):
                if "/nvidia/" in entry:
                    relative = entry.replace("$ORIGIN/", "")
                    return (site_packages / "torch/lib" / relative).resolve()
    raise Failed("PyTorch's libraries do not say where they look for CUDA's")


def needed_by(version: str) -> list:
    """What PyTorch `version` needs beside itself."""
    # Up to 2.2 it was built for NumPy 1, and does not find NumPy 2.
    old = tuple(int(part) for part in version.split(".")[:2]) < (2, 3)
    return [f"{name}<2" if old and name == "numpy" else name for name in NEEDED]


def make(version: str, folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    python = folder / "bin/python"
    run(f"making a Python environment in {folder}", [sys.executable, "-m", "venv", folder])
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run("installing what PyTorch needs", [*pip, *needed_by(version)])
    run(
        f"downloading and installing PyTorch {version} (540 MB)",
        [*pip, "--no-cache-dir", "--no-deps", f"torch=={version}"],
    )
    site_packages = next(folder.glob("lib/python3*/site-packages"))
    stub_libraries.make(site_packages / "torch/lib", library_folder(site_packages))
    run("trying it", [python, "-c", CHECK])
    (folder / WHOLE).write_text(version + "\n")
    print(f"tools/setup: PyTorch {version} is there after {time.monotonic() - begin:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("version", nargs="?", default=DEFAULT_VERSION)
    version = parser.parse_args().version
    folder = ROOT / "out/torch" / version
    if (folder / WHOLE).exists():
        return 0
    try:
        make(version, folder)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"tools/setup: no PyTorch for the tests: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
