"""What a model takes on this machine, layer by layer, and from that what it would take on many."""

import dataclasses
import json
import pathlib
import statistics
import subprocess
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import torch

from . import _library
from ._compilation import refuse_scripted
from ._example import Example, Trace, arguments_of, call, unchanged
from ._job import JobOptions, needs_servers
from ._layers import Layer, layers_of
from ._errors import ConfigError
from ._moments import Moment, now, seconds, timed_device, wait_for

# The first passes allocate memory and choose kernels.
_WARM_UP = 2

# What only `poseidon simulate` knows: no jobs of this package.
_PAPERS_SYSTEMS = ("CAFFE_PS", "WFBP", "POSEIDON")


@dataclasses.dataclass(frozen=True)
class LocalSteps:
    """DiLoCo in the place of a policy, for Profile.plan and simulate: what DiLoCo's arguments of these names say."""

    every: int = 100
    fragments: int = 1
    overlap_steps: int = 0
    codec: str = "FP32"
    policy: Optional[str] = None  # as DiLoCo chooses it

    def __str__(self) -> str:
        """As a table's row is called."""
        parts = f"/{self.fragments}" if self.fragments > 1 else ""
        overlap = f"+{self.overlap_steps}" if self.overlap_steps > 0 else ""
        codec = f" {self.codec}" if self.codec != "FP32" else ""
        return f"DiLoCo {self.every}{parts}{overlap}{codec}"

    def flags(self) -> Dict[str, Any]:
        """Of `poseidon plan` and `poseidon simulate`."""
        names = {"FP32": "fp32", "ONE_BIT": "1bit", "TOP_K": "topk"}
        return {
            "policy": self.policy or ("ALL_PS" if needs_servers(self.codec) else "ALL_RING"),
            "codec": names.get(self.codec, self.codec.lower()),
            "local_steps": self.every,
            "fragments": self.fragments,
            "overlap_steps": self.overlap_steps,
        }


class Profile:
    """A model's layers with their times; made by profile().

    Costs are predicted by the project's planner and by its simulator, in which the scheduler, servers and workers of a
    real job run in virtual time (`poseidon plan --help`, `poseidon simulate --help`).
    """

    def __init__(
        self, layers: List[Layer], forward_ms: List[float], backward_ms: List[float], batch: int
    ):
        self.layers = layers
        self.forward_ms = forward_ms
        self.backward_ms = backward_ms
        self.batch = batch

    def __str__(self) -> str:
        width = max(len(layer.name) for layer in self.layers)
        rows = [f"{'layer':{width}}  {'parameters':>12}  {'forward ms':>10}  {'backward ms':>11}"]
        for layer, forward, backward in zip(self.layers, self.forward_ms, self.backward_ms):
            rows.append(f"{layer.name:{width}}  {layer.size:12}  {forward:10.2f}  {backward:11.2f}")
        total = sum(layer.size for layer in self.layers)
        rows.append(
            f"{'all':{width}}  {total:12}  {sum(self.forward_ms):10.2f}  {sum(self.backward_ms):11.2f}"
        )
        return "\n".join(rows)

    def text(self) -> str:
        """As a job config that replays it: what `poseidon plan --profile=FILE` reads."""
        layers = "".join(
            self._layer_text(*entry)
            for entry in zip(self.layers, self.forward_ms, self.backward_ms)
        )
        return f"training {{ engine: REPLAY replay {{ batch: {self.batch}\n{layers}}} }}\n"

    def save(self, path: str) -> None:
        """Writes text() to a file."""
        pathlib.Path(path).write_text(self.text(), encoding="utf-8")

    def plan(
        self,
        workers: int,
        bandwidth: str = "10Gbps",
        policy: Union[str, LocalSteps] = "TIME",
        overlap: str = "backward",
        **options,
    ) -> Dict[str, Any]:
        """How the layers would be exchanged: `poseidon plan`'s JSON. `overlap` is distribute's, `options` are the
        command's other flags, as servers=8. Not given they are as the job's of distribute or DiLoCo: `bucket_bytes`
        1 MiB, and `lanes` 1 unless the policy is TIME, which plans them, as lanes=None does for any policy.
        """
        return self._ask("plan", workers, bandwidth, policy, overlap, options)

    def simulate(
        self,
        workers: Union[int, Sequence[int]],
        bandwidth: str = "10Gbps",
        policies: Union[str, LocalSteps, Sequence[Union[str, LocalSteps]]] = ("TIME",),
        overlap: str = "backward",
        **options,
    ) -> List[Dict[str, Any]]:
        """What training would take on so many workers, one result for each number and policy; of both there may be one
        or a sequence.

        Results are `poseidon simulate`'s: among others iteration_ms, compute_ms, images_per_second, speedup and
        efficiency; with `policy`, and `waiting`, the share of the time that workers do not compute. `overlap` and
        `options` are as plan's. A policy can be LocalSteps(...), for what DiLoCo would give; then an iteration is a
        step. Prints a table, in which MB are what the machine that moves most sends for an iteration.
        """
        chosen = [policies] if isinstance(policies, (str, LocalSteps)) else list(policies)
        for policy in chosen:
            if not isinstance(policy, (str, LocalSteps)):
                raise ConfigError(
                    f"policies has {policy!r}; a policy is a name, as 'TIME', or LocalSteps(...)"
                )
        results = []
        for count in [workers] if isinstance(workers, int) else workers:
            for policy in chosen:
                result = self._ask("simulate", count, bandwidth, policy, overlap, options)
                if not results:  # what is refused comes without a head
                    print(
                        f"{'workers':>7}  {'policy':22}  {'iteration ms':>12}  {'samples/s':>10}  {'speedup':>8}  "
                        f"{'MB':>9}  {'waiting':>7}"
                    )
                waiting = 1 - result["gpu_busy"]
                results.append({**result, "policy": policy, "waiting": waiting})
                print(
                    f"{count:7}  {str(policy):22}  {result['iteration_ms']:12.2f}  "
                    f"{result['images_per_second']:10.0f}  {result['speedup']:8.2f}  "
                    f"{result['bytes_per_node']['sent'] / 1e6:9.3f}  {waiting:7.1%}",
                    flush=True,
                )
        return results

    def _layer_text(self, layer: Layer, forward_ms: float, backward_ms: float) -> str:
        times = f"forward_ms: {forward_ms:.6f} backward_ms: {backward_ms:.6f}"
        name = json.dumps(layer.name, ensure_ascii=False)
        if layer.rows == 0 or layer.rows % self.batch != 0:
            kind = json.dumps(type(layer.module).__name__)
            return f"  layers {{ name: {name} type: {kind} parameters: {layer.size} {times} }}\n"
        outputs, inputs = layer.slots[0].parameter.shape
        bias = str(len(layer.slots) > 1).lower()
        return (
            f'  layers {{ name: {name} type: "InnerProduct" outputs: {outputs} inputs: {inputs} '
            f"rows_per_sample: {layer.rows // self.batch} bias: {bias} {times} }}\n"
        )

    def _ask(
        self,
        verb: str,
        workers: int,
        bandwidth: str,
        policy: Union[str, LocalSteps],
        overlap: str,
        options: dict,
    ) -> dict:
        if overlap not in ("backward", "forward"):
            raise ConfigError(f"overlap is {overlap!r}; it can be 'backward' or 'forward'")
        flags = {"servers": workers, **_flags_of_jobs(policy, overlap), **options}
        flags.update(policy.flags() if isinstance(policy, LocalSteps) else {"policy": policy})
        with tempfile.TemporaryDirectory(prefix="poseidon_torch.") as folder:
            path = f"{folder}/model.profile"
            self.save(path)
            given = [f"--{name}={value}" for name, value in flags.items() if value is not None]
            command = [
                _library.find_program("poseidon"),
                verb,
                f"--profile={path}",
                f"--workers={workers}",
                f"--bandwidth={bandwidth}",
                "--format=json",
                *given,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ConfigError(done.stderr.strip(), done.returncode)
        return json.loads(done.stdout)


def profile(
    model: torch.nn.Module,
    example: Example,
    loss_of: Optional[Callable[[Any], torch.Tensor]] = None,
    batch: Optional[int] = None,
    iterations: int = 5,
) -> Profile:
    """Times forward and backward passes of `model` on this machine and returns a Profile.

    `example` are the arguments of one batch (as distribute's), `loss_of` makes a scalar of the model's result (not
    given: the sum of its floats), `batch` is the number of samples (not given: the first extent of the first tensor).
    On a GPU it is the GPU's time, its waits for the program included. Changes neither parameters nor buffers; gradients
    are left None. Raises ConfigError.

    psd.profile(model, images, loss_of).simulate([1, 8, 64], "1Gbps", ["TIME", "ALL_RING"])
    """
    refuse_scripted(model, "profile")
    layers = Trace(model, example).apply(model, layers_of(model))
    device = timed_device(model, layers)
    if device is None:
        raise ConfigError(
            "the model's parameters are on several devices, of which each has a time of its own; profile it on one"
        )
    if batch is None:
        batch = _first_tensor(example).shape[0]
    for name, count in (("batch", batch), ("iterations", iterations)):
        if count < 1:
            raise ConfigError(f"{name} is {count}; it must be at least 1")
    stopwatch = _Stopwatch(layers, device)
    try:
        with unchanged(model):
            for iteration in range(_WARM_UP + iterations):
                stopwatch.begin(keep=iteration >= _WARM_UP)
                result = call(model, example)
                loss = loss_of(result) if loss_of is not None else _sum_of(result)
                stopwatch.turn()
                loss.backward()
                stopwatch.end()
                for layer in layers:
                    for slot in layer.slots:
                        slot.parameter.grad = None
    finally:
        stopwatch.remove()
    return Profile(layers, stopwatch.forward_ms(), stopwatch.backward_ms(), batch)


def _flags_of_jobs(policy: Union[str, LocalSteps], overlap: str) -> Dict[str, Any]:
    """What a job of distribute or DiLoCo has where nobody says otherwise, and the commands alone would not."""
    local = policy if isinstance(policy, LocalSteps) else None
    name = (local.flags()["policy"] if local else policy).upper()
    if name in _PAPERS_SYSTEMS:
        return {}
    in_turn = local is not None and local.fragments > 1
    flags: Dict[str, Any] = {"bucket_bytes": 0 if in_turn else JobOptions.bucket_bytes}
    if overlap == "backward":
        flags["wait_for_all"] = "true"
    if name != "TIME":
        flags["lanes"] = 1  # nobody else measures the network, and knows what more would gain
    return flags


class _Stopwatch:
    """When each layer's forward pass begins, and when its gradient is complete. What lies between two of them, layers
    without parameters included, is the earlier one's forward pass, and the later one's backward pass.
    """

    def __init__(self, layers: List[Layer], device: torch.device):
        self._layers = layers
        self._device = device
        self._forward: List[List[float]] = []
        self._backward: List[List[float]] = []
        self._starts: Dict[int, Moment] = {}
        self._ready: Dict[int, Moment] = {}
        self._keep = False
        self._begin = self._turn = now(device)
        self._handles = []
        for number, layer in enumerate(layers):
            self._handles.append(layer.module.register_forward_pre_hook(self._starter(number)))
            for slot in layer.slots:
                hook = slot.parameter.register_post_accumulate_grad_hook(self._finisher(number))
                self._handles.append(hook)

    def begin(self, keep: bool) -> None:
        self._starts.clear()
        self._ready.clear()
        self._keep = keep
        self._begin = now(self._device)

    def turn(self) -> None:
        self._turn = now(self._device)

    def end(self) -> None:
        # Also where nothing is kept, so that the next pass does not wait for this one.
        wait_for(now(self._device))
        if not self._keep:
            return
        layers = range(len(self._layers))
        started = {number: self._seconds_at(moment) for number, moment in self._starts.items()}
        ready = {number: self._seconds_at(moment) for number, moment in self._ready.items()}
        starts = [started.get(number) for number in layers]
        turn = self._seconds_at(self._turn)
        following = turn
        forward = [0.0] * len(starts)
        for number in reversed(layers):
            if starts[number] is not None:
                # What comes before the first layer is its own.
                first = all(start is None for start in starts[:number])
                start = 0.0 if first else starts[number]
                forward[number] = max(0.0, following - start)
                following = start
        backward = [0.0] * len(starts)
        previous = turn
        for number in sorted(ready, key=ready.get):
            backward[number] = ready[number] - previous
            previous = ready[number]
        self._forward.append(forward)
        self._backward.append(backward)

    def forward_ms(self) -> List[float]:
        return _medians(self._forward)

    def backward_ms(self) -> List[float]:
        return _medians(self._backward)

    def _seconds_at(self, moment: Moment) -> float:
        return seconds(self._begin, moment)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _starter(self, number: int):
        def start(*_):
            if number not in self._starts:
                self._starts[number] = now(self._device)

        return start

    def _finisher(self, number: int):
        def finish(_):
            self._ready[number] = now(self._device)

        return finish


def _medians(iterations: List[List[float]]) -> List[float]:
    """Milliseconds of each layer, whose seconds these are, by iteration."""
    return [1000 * statistics.median(layer) for layer in zip(*iterations)]


def _first_tensor(example: Example) -> torch.Tensor:
    arguments, named = arguments_of(example)
    for value in (*arguments, *named.values()):
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            return value
    raise ConfigError("the example has no tensor that tells the batch; give batch=")


def _sum_of(result: Any) -> torch.Tensor:
    if isinstance(result, torch.Tensor):
        return result.float().sum()
    raise ConfigError("the model's result is no tensor; give loss_of=, which makes a scalar of it")
