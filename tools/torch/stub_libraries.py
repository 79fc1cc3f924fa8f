"""Libraries that stand for CUDA's where there is no GPU, so that a PyTorch built for CUDA computes on
the processor.

PyTorch's wheels for Linux link CUDA's libraries, which are packages of their own with several
gigabytes. Without them it can't be imported. Each stub has the name, the symbol version and the
functions that PyTorch's libraries ask for; a function does nothing but return 100, which CUDA calls
"no device". For tests only: nothing of them is installed with this project.
"""

import collections
import pathlib
import re
import subprocess
import tempfile

# Which library has a function that begins so; the first pattern counts.
_OWNERS = (
    ("libcublasLt", "cublasLt"),
    ("libcublas", "cublas"),
    ("libcusparseLt", "cusparseLt"),
    ("libcusparse", "cusparse"),
    ("libcudart", "cuda[A-Z]|__cuda"),
    ("libcudnn", "cudnn"),
    ("libcufft", "cufft"),
    ("libcurand", "curand"),
    ("libcusolver", "cusolver"),
    ("libnccl", "p?nccl"),
    ("libnvrtc", "nvrtc"),
    ("libcupti", "cupti"),
    ("libnvshmem_host", "nvshmem|_Z.*nvshmem"),
    ("libcufile", "cuFile"),
    ("libnvJitLink", "_*nvJitLink"),
    ("libnvToolsExt", "nvtx"),
    ("libcuda", "cu[A-Z]"),
)
_NO_DEVICE = 100  # cudaErrorNoDevice


def readelf(path: pathlib.Path, *options: str) -> str:
    return subprocess.run(
        ["readelf", "-W", *options, str(path)], check=True, capture_output=True, text=True
    ).stdout


class _Wanted:
    """What libraries ask others for."""

    def __init__(self):
        self.libraries = set()
        self.symbols = collections.defaultdict(set)  # by library: functions
        self.versions = collections.defaultdict(set)  # by library: symbol versions

    def add(self, path: pathlib.Path) -> None:
        """All that the library at `path` asks for."""
        self.libraries |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(path, "-d")))
        for line in readelf(path, "--dyn-syms").splitlines():
            words = line.split()
            if len(words) >= 8 and words[6] == "UND":
                symbol = words[7].split("@")[0]
                owner = next((name for name, start in _OWNERS if re.match(start, symbol)), None)
                if owner is not None:
                    self.symbols[owner].add(symbol)
        library = None
        for line in readelf(path, "-V").splitlines():
            if match := re.search(r"File: (\S+)", line):
                library = match.group(1)
            elif (match := re.search(r"Name: (\S+)\s+Flags", line)) and library:
                self.versions[library].add(match.group(1))


def _is_of_the_system(name: str) -> bool:
    known = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True)
    return f"\t{name} " in known.stdout or name.startswith("ld-linux")


def _compile(name: str, functions: set, versions: set, folder: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch, "stub.c")
        bodies = (f"int {function}(void) {{ return {_NO_DEVICE}; }}\n" for function in functions)
        source.write_text("".join(sorted(bodies)) or "static int unused;\n")
        command = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name]
        if versions:
            script = pathlib.Path(scratch, "stub.map")
            # A symbol has one version: who asks for several gets the first.
            first, *others = sorted(versions)
            text = f"{first} {{ global: *; }};\n"
            script.write_text(text + "".join(f"{other} {{ }} {first};\n" for other in others))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, source], check=True)


def make(torch_libraries: pathlib.Path, folder: pathlib.Path) -> list:
    """Makes stubs, in `folder`, of what the libraries in `torch_libraries` (site-packages/torch/lib)
    ask for and neither has nor the system. Returns their names."""
    wanted = _Wanted()
    present = set()
    for path in torch_libraries.glob("*.so*"):
        present.add(path.name)
        wanted.add(path)
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in sorted(wanted.libraries - present):
        # The driver's library may be here; its functions are not to find a GPU in one machine only.
        if _is_of_the_system(name) and not name.startswith(("libcu", "libnv", "libnccl")):
            continue
        _compile(name, wanted.symbols[name.split(".so")[0]], wanted.versions[name], folder)
        made.append(name)
    return made
