"""A model's layers in a session: what all ways of training together do with them."""

import contextlib
from typing import Callable, Dict, List, Optional, Sequence, Union

import torch

from ._layers import Layer
from ._errors import ConfigError, PoseidonError
from ._library import LayerMemory, LayerSpec, Session
from ._recovery import RecoveringSession
from ._server_update import ServerUpdate


def samples_of(batch_size: Optional[int], steps: int = 1) -> int:
    """That a worker computes in an iteration of so many steps; 0: the program does not say. Raises ConfigError."""
    if batch_size is None:
        return 0
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; it must be at least 1, or not given")
    return steps * batch_size


class SharedModel:
    """The layers of a model, of which layer i is number i + len(extra) of the session's. One thread at a time."""

    def __init__(
        self,
        name: str,
        layers: List[Layer],
        session: Union[Session, RecoveringSession],
        samples: int,
        extra: Sequence[LayerSpec] = (),
        servers: Optional[ServerUpdate] = None,
    ):
        """Declares the layers behind the `extra` ones; worker 0's parameters become everybody's.

        `samples`: of samples_of. `servers`: these update the parameters; else workers get mean gradients.

        Raises PoseidonError.
        """
        self.session = session
        self.layers = layers
        # Whether the job has gone back since the last iteration ended. Values that were taken before may be other bits
        # than those that the servers have come to since.
        self._went_back = False
        if isinstance(session, RecoveringSession):
            session.on_move = self._on_move
        self._extra = len(extra)
        self._together: Dict[int, range] = {}  # by layer, as the plan says
        own = servers.specs() if servers is not None else [layer.spec() for layer in layers]
        specs = [*extra, *own]
        if servers is None:
            session.declare(name, specs, samples)
        else:
            session.declare(name, specs, samples, servers.rule, servers.first_iteration)
        if session.rank == 0:
            self._put_values()
            if servers is not None:
                servers.restore(session)
        session.begin()
        for number in range(len(specs)):
            session.wait_fresh(number)
        # Rank 0's, too, are others where its process has taken a lost one's place.
        self._take_values()

    def memory(self, index: int) -> LayerMemory:
        """Of layer `index`, in this iteration."""
        return self.session.memory(index + self._extra)

    def gradient(self, index: int) -> List[torch.Tensor]:
        """Where layer `index`'s gradients of this iteration are to be written, by parameter."""
        return self.layers[index].views(self.session.gradient_memory(index + self._extra))

    def ready(self, index: int) -> None:
        """They are there."""
        self.session.gradient_ready(index + self._extra)

    def wait_fresh(self, index: int) -> None:
        """For the exchange of layer `index` of the iteration before; raises what has ended the session."""
        self.session.wait_fresh(index + self._extra)

    def wait_for_mean(self, index: int) -> List[torch.Tensor]:
        """The mean of all workers' gradients of the iteration before, by parameter, when it is there."""
        self.wait_fresh(index)
        return self.layers[index].views(self.session.mean_gradient_memory(index + self._extra))

    def wait_for_values(self, index: int) -> List[torch.Tensor]:
        """The new values, by parameter, where servers update."""
        self.wait_fresh(index)
        return self._values(index)

    def sent_with(self, index: int) -> range:
        """The layers that come back together with layer `index`, which is one of them."""
        known = self._together.get(index)
        if known is None:
            together = self.session.layers_sent_with(index + self._extra)
            known = range(max(0, together.start - self._extra), together.stop - self._extra)
            self._together[index] = known
        return known

    def report_layer_times(self, forward_ms: List[float], backward_ms: List[float]) -> None:
        """Of the layers, without the extra ones; once."""
        nothing = [0.0] * self._extra
        self.session.report_layer_times(nothing + forward_ms, nothing + backward_ms)

    def end_iteration(self, loss: Union[float, torch.Tensor]) -> bool:
        """True: the plan has changed, and with it all memory. Waits for a loss that is on a device."""
        self._went_back = False
        changed = self.session.end_iteration(float(loss))
        if changed:
            self._forget_memory()
        return changed

    def finish(self) -> None:
        """After the last iteration: waits for the others, whose parameters the scheduler compares."""
        if not self._went_back:
            self._put_values()
        self.session.finish()
        if self._went_back:
            self._take_values()
        self._forget_memory()
        self.session.close()

    def give_up(self, reason: str, before_freeing: Callable[[], None] = lambda: None) -> None:
        """The others hear why, and at once: `before_freeing`, called before the memory is freed, may take its time."""
        with contextlib.suppress(PoseidonError):
            self.session.fail(reason)
        before_freeing()
        self._forget_memory()
        self.session.close()

    def _values(self, index: int) -> List[torch.Tensor]:
        return self.layers[index].views(self.session.memory(index + self._extra).values)

    def _put_values(self) -> None:
        for index, layer in enumerate(self.layers):
            for view, slot in zip(self._values(index), layer.slots):
                view.copy_(slot.parameter.detach())

    def _take_values(self) -> None:
        for index, layer in enumerate(self.layers):
            for view, slot in zip(self._values(index), layer.slots):
                slot.parameter.detach().copy_(view)

    def _on_move(self) -> None:
        self._went_back = True
        self._forget_memory()

    def _forget_memory(self) -> None:
        self._together.clear()
        for layer in self.layers:
            layer.forget_views()
