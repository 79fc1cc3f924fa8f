"""Colored digits in the binary format of CIFAR-10, for trying nets of 32 x 32 color images without
the internet: the digits of digits.csv, enlarged, moved, in random colors on random, noisy
backgrounds. They are easier than CIFAR-10's photographs: no accuracy on them says anything about
those.

    python3 configs/data/color_digits.py out/color_digits
    poseidon convert cifar10 --source=out/color_digits --out=out/cifar10

Writes data_batch_1.bin to data_batch_5.bin and test_batch.bin; the test images are of digits that no
training image shows. The same files on every run. Needs numpy (Debian's python3-numpy)."""

import os
import sys

import numpy

SIDE = 32
TRAINING_DIGITS = 1500  # of 1,797, as for LeNet (README.md)
BATCHES = {**{f"data_batch_{i}.bin": 2000 for i in range(1, 6)}, "test_batch.bin": 1000}


def read_digits():
    """(images of 8 x 8 from 0 to 1, labels) in a random order, always the same."""
    table = numpy.loadtxt(os.path.join(os.path.dirname(__file__), "digits.csv"), delimiter=",")
    table = numpy.random.RandomState(1).permutation(table)
    return table[:, :64].reshape(-1, 8, 8) / 16, table[:, 64].astype(numpy.uint8)


def paint(digit, random):
    """The digit, 24 x 24, somewhere on a background: 3 x 32 x 32 bytes."""
    canvas = numpy.zeros((SIDE, SIDE))
    top, left = random.randint(0, SIDE - 24 + 1, 2)
    canvas[top : top + 24, left : left + 24] = numpy.kron(digit, numpy.ones((3, 3)))
    # Far enough apart to be seen, in each channel or the other way round.
    background = random.uniform(0, 255, 3)
    ink = (background + random.uniform(90, 165, 3)) % 255
    image = background[:, None, None] * (1 - canvas) + ink[:, None, None] * canvas
    noisy = image + random.normal(0, 20, (3, SIDE, SIDE))
    return numpy.clip(noisy, 0, 255).astype(numpy.uint8)


def write_batch(path, count, digits, labels, random):
    """A record is a label and the red, green and blue pixels row by row."""
    with open(path, "wb") as file:
        for index in random.randint(0, len(labels), count):
            file.write(bytes([labels[index]]) + paint(digits[index], random).tobytes())


def main():
    """The directory is the only argument."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    digits, labels = read_digits()
    random = numpy.random.RandomState(2)
    for name, count in BATCHES.items():
        part = slice(TRAINING_DIGITS, None) if name.startswith("test") else slice(TRAINING_DIGITS)
        write_batch(os.path.join(directory, name), count, digits[part], labels[part], random)


if __name__ == "__main__":
    main()
