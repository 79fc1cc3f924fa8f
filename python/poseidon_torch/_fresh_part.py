"""A part of a store of torch.distributed's in which nothing is left of an attempt before.

torchrun's agent keeps its store when it starts the ranks anew, and with it what the dead ones have put there. How many
attempts there were is known to nobody: the agent doesn't count those after changes of the machines.
"""

import random
import time
from typing import Iterable, List, NoReturn, Sequence

import torch.distributed as dist

from ._errors import DeadlineExceeded, PeerLost

_POLL_SECONDS = 0.01
# How long rank 0 stays to tell those that have not come yet that one does not come.
_TELL_SECONDS = 5
_NOTHING = "-"
_LOST = "!"  # in the place of a question, and of an answer: why a rank does not come


def fresh_part(store: dist.Store, rank: int, ranks: int, seconds: float) -> dist.Store:
    """Returns a part of `store` that only the ranks of this attempt have written to; all of them call this, and rank 0
    waits for the others. Raises DeadlineExceeded there if they don't come for so long; elsewhere the store's timeout
    counts. Raises PeerLost where one has said that it does not come.
    """
    if rank == 0:
        return _make_part(store, ranks, seconds)
    # Only who lives can answer a number that was drawn just now.
    question = _draw()
    store.set(f"ask/{rank}", question)
    answer = store.get(f"answer/{question}").decode()
    if _is_lost(answer):
        raise PeerLost(answer.removeprefix(_LOST), exit_code=3)
    part = dist.PrefixStore(answer, store)
    part.add(f"here/{rank}", 1)
    return part


def say_missing(store: dist.Store, rank: int, reason: str) -> None:
    """Instead of fresh_part, in a store of this attempt alone: the others, who wait in it or come to it, hear why this
    rank does not come. What rank 0 would say nobody could hear, as the store is its own."""
    if rank != 0:
        reason = reason.encode(errors="backslashreplace").decode()
        store.set(f"ask/{rank}", f"{_LOST}rank {rank} has ended before it joined: {reason}")


def _make_part(store: dist.Store, ranks: int, seconds: float) -> dist.Store:
    end = time.monotonic() + seconds
    name = f"attempt/{_draw()}"
    part = dist.PrefixStore(name, store)
    missing = list(range(1, ranks))
    while True:
        said = _said(store, missing)
        if any(map(_is_lost, said)):
            _end_attempt(store, missing)
        # Not before all have asked, as one that comes later may say that it does not.
        if _NOTHING not in said:
            _answer(store, said, name)
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


def _end_attempt(store: dist.Store, ranks: Sequence[int]) -> NoReturn:
    """Raises PeerLost when the others have been told; who comes later finds no store, as this rank has it."""
    end = time.monotonic() + _TELL_SECONDS
    while True:
        said = _said(store, ranks)
        lost = next(filter(_is_lost, said))
        _answer(store, said, lost)
        if _NOTHING not in said or time.monotonic() > end:
            raise PeerLost(lost.removeprefix(_LOST), exit_code=3)
        time.sleep(_POLL_SECONDS)


def _said(store: dist.Store, ranks: Iterable[int]) -> List[str]:
    """Their questions, or what is in their place. A question may be of an attempt before."""
    # A get would wait. Nor can PyTorch 2.1 be asked whether a key is there.
    return [store.compare_set(f"ask/{rank}", "", _NOTHING).decode() for rank in ranks]


def _is_lost(said: str) -> bool:
    return said.startswith(_LOST)


def _answer(store: dist.Store, said: Iterable[str], answer: str) -> None:
    """Those that have asked; that of an attempt before is answered, too, and nobody reads that."""
    for question in said:
        if question != _NOTHING and not _is_lost(question):
            store.set(f"answer/{question}", answer)


def _draw() -> str:
    return str(random.SystemRandom().getrandbits(64))
