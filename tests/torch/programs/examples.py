"""Runs each program of python/examples on two ranks by poseidon_torch and by DistributedDataParallel, which come to the
same bits, and on rank 0 as one process.

    examples.py OUT [others]    with others for one epoch more

How far the latter may be off comes from the same run: a few times what a unit in the last place of all first values
does.
"""

import contextlib
import io
import os
import pathlib
import sys
import tempfile

import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "python/examples"
sys.path.insert(0, str(EXAMPLES))
import digits
import gpt
import resnet50

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from models import bound_of, difference, move_by_one_ulp

RANK = int(os.environ["RANK"])
GPT = ["--batch=8", "--context=16", "--width=32", "--blocks=2", "--every=6", "--write=5"]
GPT += ["--steps=12", f"--text={EXAMPLES.parent / 'README.md'}"]


@contextlib.contextmanager
def one_process():
    """The environment without torchrun's variables."""
    size = os.environ.pop("WORLD_SIZE")
    yield
    os.environ["WORLD_SIZE"] = size


@contextlib.contextmanager
def moved(nets, name):
    """nets[name] makes models whose values are one unit in the last place higher."""
    make = nets[name]

    nets[name] = lambda *arguments: move_by_one_ulp(make(*arguments))
    yield
    nets[name] = make


def together(example, words):
    """A training of all ranks. Each has a store of its own, since the one before may still be closing."""
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    return torch.tensor(example.main(words))


def plainly(example, words):
    """Rank 0's losses; the others do nothing."""
    if RANK != 0:
        return None
    with one_process():
        return torch.tensor(example.main(["--plain", *words]))


def train(example, words):
    """By poseidon_torch and by DDP; returns the losses. Two ranks' sums have one order, and half of a float is exact:
    all bits are the same."""
    ours = together(example, words)
    ddp = together(example, ["--ddp", *words])
    assert ours.equal(ddp), f"{example.__name__} {words}: {ours}, by DDP {ddp}"
    return ours


def compare_with_one_process(example, words, ours, nets, name):
    """Returns the bound, on rank 0."""
    plain = plainly(example, words)
    with moved(nets, name):
        ulp = plainly(example, words)
    if RANK != 0:
        return None
    off, bound = difference(ours, plain), bound_of(ulp, plain)
    print(f"{name}: off one process {off:.1e} (bound {bound:.1e})", flush=True)
    assert off <= bound, f"{name}: {ours}, by one process {plain}, bound {bound}"
    return bound


def check_a_mistake(words, bound, losses):
    """That the bound is one: a rate that is off by a thousandth is beyond it."""
    other = plainly(digits, [*words, "--rate=0.1001"])
    assert RANK != 0 or difference(other, losses) > bound, f"{other}, {losses}, {bound}"


def check_checkpoints(folder, bound, losses):
    """A training that stops half-way and goes on in any way."""
    half = [*GPT, "--steps=6"]
    plain, ours = folder / "plain.pt", folder / "ours.pt"
    plainly(gpt, [*half, f"--checkpoint={plain}"])
    together(gpt, [*half, f"--checkpoint={ours}"])  # ends on all when rank 0 has written both

    def rest_of(file):
        # Each run goes on from a copy of its rank's own, since it writes to it.
        copy = folder / f"{RANK}.pt"
        copy.write_bytes(file.read_bytes())
        return [*GPT, "--every=100", f"--checkpoint={copy}"]  # one test, at the end

    # Two ranks' sums are the same bits in any order.
    by_ours = together(gpt, rest_of(ours))
    by_plain = plainly(gpt, rest_of(ours))
    from_plain = together(gpt, rest_of(plain))
    if RANK == 0:
        assert by_ours.equal(losses[-1:]), f"{by_ours} after a checkpoint, {losses} without"
        for other in (by_plain, from_plain):
            assert difference(other, losses[-1:]) <= bound, f"{other}, {losses}, bound {bound}"


def check_mistakes():
    """What a user mistypes is said by its name, with what there is."""
    for example, words, said in (
        (digits, ["--epocs=3"], "unrecognized arguments: --epocs=3"),
        (digits, ["--net=rnn"], "invalid choice: 'rnn' (choose from"),
        (digits, ["--batch=61"], "--batch=61 can't be shared evenly by 2 processes"),
        (digits, ["--plain"], "start it by python3, not by torchrun"),
        (gpt, ["--steps=many"], "invalid int value: 'many'"),
        (gpt, ["--width=30"], "--width must be a multiple of 4"),
        (resnet50, ["--plain", "--ddp"], "not allowed with argument --plain"),
        (resnet50, ["--batch=1"], "--batch must be at least 2"),
    ):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            try:
                example.main(words)
                raise AssertionError(f"{words} was accepted")
            except SystemExit as end:
                assert end.code == 2, end.code
        assert said in errors.getvalue(), errors.getvalue()


def main() -> None:
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    tempfile.tempdir = str(folder)  # for the jobs' logs
    check_mistakes()
    words = ["--epochs=2", "--net=mlp"]
    losses = train(digits, words)
    bound = compare_with_one_process(digits, words, losses, digits.NETS, "mlp")
    check_a_mistake(words, bound, losses)
    # At higher rates the last bit of a ReLU's input soon decides what becomes of this net.
    epochs = 2 if sys.argv[2:] == ["others"] else 1
    words = [f"--epochs={epochs}", "--net=cnn", "--rate=0.02"]
    compare_with_one_process(digits, words, train(digits, words), digits.NETS, "cnn")
    losses = train(gpt, GPT)
    bound = compare_with_one_process(gpt, GPT, losses, vars(gpt), "GPT")
    check_checkpoints(folder, bound, losses)
    # Each process has its own images, so that one alone is another training.
    small = ["--width=4", "--image=32", "--batch=4", "--iterations=3", "--warm-up=1"]
    train(resnet50, small)
    plainly(resnet50, small)
    print("equal", flush=True)


main()
