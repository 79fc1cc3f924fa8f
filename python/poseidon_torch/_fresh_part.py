"""A part of a store of torch.distributed's in which nothing is left of an attempt before.

torchrun's agent keeps its store when it starts the ranks anew, and with it what the dead ones have put there. How many
attempts there were is known to nobody: the agent doesn't count those after changes of the machines.
"""

import random
import time
from typing import Iterable

import torch.distributed as dist

from ._errors import DeadlineExceeded

_POLL_SECONDS = 0.01
_NOTHING = "-"


def fresh_part(store: dist.Store, rank: int, ranks: int, seconds: float) -> dist.Store:
    """Returns a part of `store` that only the ranks of this attempt have written to; all of them call this, and rank 0
    waits for the others. Raises DeadlineExceeded there if they don't come for so long; elsewhere the store's timeout
    counts.
    """
    if rank == 0:
        return _make_part(store, ranks, seconds)
    # Only who lives can answer a number that was drawn just now.
    question = _draw()
    store.set(f"ask/{rank}", question)
    part = dist.PrefixStore(store.get(f"answer/{question}").decode(), store)
    part.add(f"here/{rank}", 1)
    return part


def _make_part(store: dist.Store, ranks: int, seconds: float) -> dist.Store:
    end = time.monotonic() + seconds
    name = f"attempt/{_draw()}"
    part = dist.PrefixStore(name, store)
    missing = list(range(1, ranks))
    while True:
        _answer(store, missing, name)
        missing = [rank for rank in missing if part.add(f"here/{rank}", 0) == 0]
        if not missing:
            return part
        if time.monotonic() > end:
            raise DeadlineExceeded(
                f"of {ranks} ranks these have not come after {seconds:g} s: {', '.join(map(str, missing))}; look why "
                "they have not started",
                exit_code=4,
            )
        time.sleep(_POLL_SECONDS)


def _answer(store: dist.Store, asking: Iterable[int], name: str) -> None:
    """Those that have asked; a question of an attempt before is answered, too, and nobody reads that."""
    for rank in asking:
        # A get would wait. Nor can PyTorch 2.1 be asked whether a key is there.
        question = store.compare_set(f"ask/{rank}", "", _NOTHING).decode()
        if question != _NOTHING:
            store.set(f"answer/{question}", name)


def _draw() -> str:
    return str(random.SystemRandom().getrandbits(64))
