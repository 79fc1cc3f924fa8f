"""Jobs that go on when a process dies (docs/recovery.md), without the training program noticing it.

The servers have the parameters and the optimizer's state, so a worker that dies takes nothing with it that is nowhere
else. The scheduler lets all go back to an iteration for which the others still have every gradient: the present one or
the one before. So what a worker has sent in these two is kept here, and sent once more. The program goes on where it
was: with the same gradients the servers come to the same parameters.
"""

import dataclasses
from typing import Callable, Dict, List, Sequence

import torch

from ._buffers import NamedBuffers, SentBuffers
from ._layers import view_of
from ._errors import Rewound
from ._library import Floats, LayerMemory, LayerSpec, ParameterGroup, Session


@dataclasses.dataclass
class _Sent:
    """What this worker has sent of an iteration."""

    iteration: int = -1
    groups: Sequence[ParameterGroup] = ()
    layers: List[int] = dataclasses.field(default_factory=list)  # in the order in which they went
    gradients: Dict[int, torch.Tensor] = dataclasses.field(default_factory=dict)  # kept memory
    loss: float = float("nan")


class RecoveringSession:
    """A Session of which no call raises Rewound: it goes back, sends again what is to be sent again, and goes on.

    Costs two copies of the gradients. One thread at a time. All that is not told here is Session's.
    """

    def __init__(self, session: Session, buffers: Callable[[], NamedBuffers]):
        """`buffers` tells the model's, as BatchNorm's, which may be other tensors each time, and what else is no layer's;
        whoever takes a lost one's place gets another's."""
        self._session = session
        self._buffers = SentBuffers(buffers)
        self._sent = (_Sent(), _Sent())  # of even and of odd iterations
        self._iteration = 0  # the program's; the session's goes back
        self._layers = 0
        # Called when the layers' memory is elsewhere.
        self.on_move: Callable[[], None] = lambda: None

    @property
    def rank(self) -> int:
        """Session's."""
        return self._session.rank

    @property
    def workers(self) -> int:
        """Session's."""
        return self._session.workers

    @property
    def iteration(self) -> int:
        """The program's, which does not go back."""
        return self._iteration

    def takes_a_place(self) -> bool:
        """After declare: whether the job is under way, and this process gets all that it needs from the others."""
        return self._session.awaits_statistics()

    def declare(self, name: str, layers: Sequence[LayerSpec], *arguments) -> None:
        """Session's."""
        self._layers = len(layers)
        self._session.declare(name, layers, *arguments)

    def begin(self) -> None:
        """Session's. In a job that is under way iteration is then the one that is done next."""
        try:
            self._session.begin()
            self._exchange_statistics()
        except Rewound:
            self._go_back(lambda: None)
        self._iteration = self._session.iteration

    def memory(self, layer: int) -> LayerMemory:
        """Session's."""
        return self._session.memory(layer)

    def gradient_memory(self, layer: int) -> Floats:
        """Session's."""
        return self._session.gradient_memory(layer)

    def set_groups(self, groups: Sequence[ParameterGroup]) -> None:
        """Session's, in every iteration."""
        sent = self._sent[self._iteration % 2]
        sent.iteration = self._iteration
        sent.groups = list(groups)
        sent.layers = []
        sent.loss = float("nan")
        self._session.set_groups(groups)

    def gradient_ready(self, layer: int) -> None:
        """Session's."""
        gradient = view_of(self._session.gradient_memory(layer))
        sent = self._sent[self._iteration % 2]
        kept = sent.gradients.get(layer)
        if kept is None:
            sent.gradients[layer] = gradient.clone()
        else:
            kept.copy_(gradient)
        sent.layers.append(layer)
        try:
            self._session.gradient_ready(layer)
        except Rewound:
            self._go_back(self._send_again)

    def wait_fresh(self, layer: int) -> None:
        """Session's."""
        self._until_done(lambda: self._session.wait_fresh(layer))

    def layers_sent_with(self, layer: int) -> range:
        """Session's."""
        return self._session.layers_sent_with(layer)

    def end_iteration(self, loss: float = float("nan")) -> bool:
        """Session's; the plan of a job whose servers update never changes otherwise than by going back."""
        self._sent[self._iteration % 2].loss = loss
        self._iteration += 1
        try:
            return self._session.end_iteration(loss)
        except Rewound:
            self._go_back(self._send_again)
            return False

    def restore_optimizer_state(self, state: Floats) -> None:
        """Session's; ignored in a job that is under way."""
        if not self.takes_a_place():
            self._session.restore_optimizer_state(state)

    def collect_optimizer_state(self, state: Floats) -> None:
        """Session's."""
        self._until_done(lambda: self._session.collect_optimizer_state(state))

    def wants_layer_times(self) -> bool:
        """Session's."""
        return self._session.wants_layer_times()

    def finish(self) -> None:
        """Session's."""
        self._until_done(self._session.finish)

    def fail(self, reason: str) -> None:
        """Session's."""
        self._session.fail(reason)

    def close(self) -> None:
        """Session's."""
        self._session.close()

    def _until_done(self, call: Callable[[], None]) -> None:
        while True:
            try:
                call()
                return
            except Rewound:
                self._go_back(self._send_again)

    def _go_back(self, go_on: Callable[[], None]) -> None:
        """Another process may be lost on the way; then all begins anew."""
        while True:
            try:
                self._session.go_back()
                self.on_move()
                self._exchange_statistics()
                go_on()
                return
            except Rewound:
                pass

    def _send_again(self) -> None:
        while self._session.iteration < self._iteration:
            sent = self._send_iteration_again()
            self._session.end_iteration(sent.loss)
        if self._sent[self._iteration % 2].iteration == self._iteration:
            self._send_iteration_again()

    def _send_iteration_again(self) -> _Sent:
        sent = self._sent[self._session.iteration % 2]
        # A server takes no gradient before it has the values that it is of.
        for layer in range(self._layers):
            self._session.wait_fresh(layer)
        self._session.set_groups(sent.groups)
        for layer in sent.layers:
            view_of(self._session.gradient_memory(layer)).copy_(sent.gradients[layer])
            self._session.gradient_ready(layer)
        return sent

    def _exchange_statistics(self) -> None:
        if self._session.sends_statistics():
            packed = self._buffers.pack()
            self._session.send_statistics(Floats(packed.data_ptr(), packed.numel()))
        if self._session.awaits_statistics():
            packed = self._buffers.room()
            self._session.await_statistics(Floats(packed.data_ptr(), packed.numel()))
            self._buffers.unpack(packed)
