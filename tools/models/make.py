#!/usr/bin/env python3
"""Writes the nets and solvers of configs/models that repeat themselves.

    python3 tools/models/make.py            # all of them
    python3 tools/models/make.py --check    # says which differ from what it would write

lenet and cifar10_quick are written by hand. Layer names, shapes and counts are those of layers.csv in
each model's directory, which a test compares layer by layer (tests/unit/caffe_adapter/models_test.cc).
"""

import argparse
import pathlib
import sys

from nets.googlenet import googlenet
from nets.inception_v3 import InceptionV3
from nets.plain import alexnet, cifar10_full, vgg19
from nets.resnet import resnet

MODELS_DIRECTORY = pathlib.Path(__file__).resolve().parents[2] / "configs/models"

MODELS = {
    "cifar10_full": cifar10_full,
    "alexnet": alexnet,
    "googlenet": googlenet,
    "vgg19": lambda: vgg19("vgg19", "VGG19", 1000, "out/imagenet"),
    "vgg19_22k": lambda: vgg19("vgg19_22k", "VGG19-22K", 21841, "out/imagenet22k"),
    "inception_v3": lambda: InceptionV3().make(),
    "resnet50": lambda: resnet("resnet50", "ResNet-50", (3, 4, 6, 3), 1000, "out/imagenet"),
    "resnet101": lambda: resnet("resnet101", "ResNet-101", (3, 4, 23, 3), 1000, "out/imagenet"),
    "resnet101_22k": lambda: resnet(
        "resnet101_22k", "ResNet-101-22K", (3, 4, 23, 3), 21841, "out/imagenet22k"
    ),
    "resnet152": lambda: resnet("resnet152", "ResNet-152", (3, 8, 36, 3), 1000, "out/imagenet"),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file differs")
    check = parser.parse_args().check
    differing = []
    for model, make in MODELS.items():
        for name, text in zip(("net.prototxt", "solver.prototxt"), make()):
            path = MODELS_DIRECTORY / model / name
            if check:
                if not path.exists() or path.read_text(encoding="utf-8") != text:
                    differing.append(path)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in differing:
        print(f"{path} is not what make.py writes; run it, or change it instead of the file")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
