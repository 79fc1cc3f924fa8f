"""What time it is where a model computes: on the processor its clock's, on a GPU that of events in the stream."""

import time
from typing import List, Optional, Union

import torch

from ._layers import Layer

# Of the process' clock, in seconds; or an event of a GPU's, which is there when the GPU comes to it.
Moment = Union[float, torch.cuda.Event]


def timed_device(model: torch.nn.Module, layers: List[Layer]) -> Optional[torch.device]:
    """That all parameters are on, if it is one and what it computes can be timed. Of a scripted model, which takes no
    hooks of its passes, nothing can."""
    if isinstance(model, torch.jit.ScriptModule):
        return None
    devices = {slot.parameter.device for layer in layers for slot in layer.slots}
    device = devices.pop()
    return device if not devices and device.type in ("cpu", "cuda") else None


def now(device: torch.device) -> Moment:
    """When all is computed that this thread has asked for; does not wait for it."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def seconds(began: Moment, ended: Moment) -> float:
    """Between two moments of one device that have both come."""
    if isinstance(began, float):
        return ended - began
    return 1e-3 * began.elapsed_time(ended)


def wait_for(moment: Moment) -> None:
    """Until it has come."""
    if not isinstance(moment, float):
        moment.synchronize()
