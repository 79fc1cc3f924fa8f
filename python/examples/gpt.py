#!/usr/bin/env python3
"""Trains a small GPT to write on, letter by letter, what the project's own documentation begins.

    torchrun --nproc-per-node=4 python/examples/gpt.py          # four processes, by poseidon_torch
    torchrun --nproc-per-node=4 python/examples/gpt.py --ddp    # by DistributedDataParallel and gloo
    python3 python/examples/gpt.py --plain                      # one process, the whole batch

All three are the same training. What makes a plain program one of many processes are the three places
marked "1.", "2." and "3."; the loop between them stays as it is.

With --checkpoint=FILE the training is saved there, and the next run with it goes on from where it was
saved, in whichever of the three ways: the file is plain PyTorch's. On several machines each needs it.
"""

import argparse
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python"))  # where the package is, unless it is installed

import poseidon_torch as psd

HEADS = 4
TEST_WINDOWS = 64


class Block(nn.Module):
    """Attention to what came before, then a perceptron for each letter."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.attention(self.norm1(x)).view(batch, length, 3, HEADS, width // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """The last weights are those of the first layer ("tied"): a letter's row is what it looks like, both
    where it is read and where it is foretold."""

    def __init__(self, letters, context, width, blocks):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.next = nn.Linear(width, letters, bias=False)
        self.next.weight = self.letters.weight
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, text):
        x = self.letters(text) + self.positions(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.next(self.norm(x))


def loss_of(outputs, targets):
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def windows(text, starts, context):
    """Pieces of the text, and the same one letter on: what is to be foretold."""
    rows = torch.stack([text[start : start + context + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


def draw(text, count, context, seed):
    """Where `count` pieces begin; the same ones on every process."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(0, len(text) - context, (count,), generator=random)


def parse(words):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--plain", action="store_true", help="one process")
    way.add_argument("--ddp", action="store_true", help="DistributedDataParallel over gloo")
    parser.add_argument("--text", nargs="+", type=pathlib.Path, help="files; docs/*.md")
    parser.add_argument("--steps", type=int, default=300, help="in all; 300")
    parser.add_argument("--batch", type=int, default=32, help="pieces of all processes; 32")
    parser.add_argument("--context", type=int, default=64, help="letters of a piece; 64")
    parser.add_argument("--width", type=int, default=128, help="of a letter's vector; 128")
    parser.add_argument("--blocks", type=int, default=4, help="4")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate; 0.001")
    parser.add_argument("--every", type=int, default=50, help="steps from test to test; 50")
    parser.add_argument("--write", type=int, default=200, help="letters to write at the end; 200")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="a file to save to and go on from")
    options = parser.parse_args(words)
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # as torchrun says
    if options.plain and processes > 1:
        parser.error("--plain is for one process; start it by python3, not by torchrun")
    if min(options.steps, options.batch, options.context, options.blocks, options.every) < 1:
        parser.error("--steps, --batch, --context, --blocks and --every must be at least 1")
    if options.width < 1 or options.width % HEADS:
        parser.error(f"--width must be a multiple of {HEADS}")
    if options.batch % processes:
        parser.error(f"--batch={options.batch} can't be shared evenly by {processes} processes")
    options.text = options.text or sorted((ROOT / "docs").glob("*.md"))
    if not options.text:
        parser.error("there are no pages of documentation here; name some files by --text")
    return options


def main(words=None):
    """Returns process 0's losses in its tests; the others' are empty."""
    options = parse(words)

    # 1. Which of how many processes this is.
    if options.plain:
        rank, size = 0, 1
    elif options.ddp:
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
    else:
        psd.init()
        rank, size = psd.rank(), psd.size()

    letters = "".join(path.read_text(encoding="utf-8") for path in options.text)
    alphabet = sorted(set(letters))
    number_of = {letter: number for number, letter in enumerate(alphabet)}
    text = torch.tensor([number_of[letter] for letter in letters])
    text, unseen = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    test_batch = windows(
        unseen, draw(unseen, TEST_WINDOWS, options.context, seed=0), options.context
    )

    torch.manual_seed(1)
    model = GPT(len(alphabet), options.context, options.width, options.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    first = load(options.checkpoint, model, optimizer)

    # 2. From here on backward() ends with the mean of all processes' gradients.
    train = model
    if options.ddp:
        train = DistributedDataParallel(model)
    elif not options.plain:
        optimizer = psd.distribute(model, optimizer, batch_size=options.batch // size)

    losses = []
    seconds, seen = 0.0, 0
    for step in range(first, options.steps):
        begin = time.perf_counter()
        starts = draw(text, options.batch, options.context, seed=step + 1)
        inputs, targets = windows(text, starts[rank::size], options.context)
        optimizer.zero_grad()
        loss_of(train(inputs), targets).backward()
        optimizer.step()
        seconds += time.perf_counter() - begin
        seen += options.batch * options.context
        last = step + 1 == options.steps
        if rank == 0 and (last or (step + 1) % options.every == 0):
            with torch.no_grad():
                losses.append(loss_of(model(test_batch[0]), test_batch[1]).item())
            print(
                f"step {step + 1}/{options.steps}  test loss {losses[-1]:.4f}  "
                f"{seen / seconds:.0f} letters/s",
                flush=True,
            )
            save(options.checkpoint, model, optimizer, step + 1)

    # 3. All processes have finished.
    if options.ddp:
        dist.destroy_process_group()
    elif not options.plain:
        psd.shutdown()

    if rank == 0 and losses:
        print("".join(alphabet[number] for number in write(model, text[:1], options)))
        print(
            f"GPT, processes: {size}, test loss {losses[-1]:.4f}, {seen / seconds:.0f} letters/s, "
            f"{sum(parameter.numel() for parameter in model.parameters())} parameters"
        )
    elif rank == 0:
        print(f"{options.checkpoint} has done {first} steps; more than those are asked by --steps")
    return losses


def load(path, model, optimizer):
    """The step to go on from: 0 if there is nothing to go on from."""
    if path is None or not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def save(path, model, optimizer, step):
    if path is None:
        return
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
    }
    new = path.with_name(path.name + ".new")  # what is half written is never loaded
    torch.save(state, new)
    new.replace(path)


@torch.no_grad()
def write(model, text, options):
    """Draws one letter after the other, each as likely as the model says."""
    random = torch.Generator().manual_seed(1)
    for _ in range(options.write):
        likely = model(text[None, -options.context :])[0, -1].softmax(0)
        text = torch.cat([text, torch.multinomial(likely, 1, generator=random)])
    return text.tolist()


if __name__ == "__main__":
    main()
