#!/usr/bin/env python3
"""Writes the nets and solvers of this directory that repeat themselves.

    python3 configs/models/make.py            # all of them, beside this file
    python3 configs/models/make.py --check    # says which differ from what it would write

lenet and cifar10_quick are written by hand. Layer names, shapes and counts are those of layers.csv in
each model's directory, which a test compares layer by layer (tests/unit/caffe_adapter/models_test.cc).
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# As in lenet and cifar10_quick.
DEPLOYED_INPUT = """\
# What a trained net reads in a program of its own, without a database (phase TEST, stage "deploy"); also
# what `poseidon plan` knows the images' shape from.
"""
IMAGENET_MEAN = (104, 117, 123)  # of ILSVRC's images: blue, green, red


class Net:
    """A net as text, layer by layer. Layers are named as their tops, unless they work in place."""

    def __init__(
        self, name, comment, data, crop, train_batch, test_batch, means=IMAGENET_MEAN, images=None
    ):
        """`images`: channels, height and width of the data, for a net that does not crop them. Such a
        net also has a deployed form."""
        self.deployed = images is not None
        self.text = "".join(f"# {line}".rstrip() + "\n" for line in comment) + f'name: "{name}"\n'
        for phase, batch, mirror in (("TRAIN", train_batch, True), ("TEST", test_batch, False)):
            rule = self.test_rule() if phase == "TEST" else "phase: TRAIN"
            transform = "".join(f"    mean_value: {mean}\n" for mean in means)
            transform += f"    crop_size: {crop}\n" if crop else ""
            transform += "    mirror: true\n" if mirror and crop else ""
            self.text += f"""layer {{
  name: "data"
  type: "Data"
  top: "data"
  top: "label"
  include {{ {rule} }}
  transform_param {{
{transform}  }}
  data_param {{
    source: "{data}/{phase.lower()}_lmdb"
    batch_size: {batch}
    backend: LMDB
  }}
}}
"""
        if self.deployed:
            extents = " ".join(f"dim: {extent}" for extent in (1, *images))
            self.text += DEPLOYED_INPUT
            self.layer(
                "Input",
                "data",
                [],
                body='include { phase: TEST stage: "deploy" }\n'
                f"input_param {{ shape {{ {extents} }} }}",
            )

    def test_rule(self):
        """For layers that only test with labels."""
        return "phase: TEST" + (' not_stage: "deploy"' if self.deployed else "")

    def layer(self, kind, name, bottoms, top=None, body=""):
        top = top or name
        bottoms = [bottoms] if isinstance(bottoms, str) else bottoms
        lines = "".join(f'  bottom: "{bottom}"\n' for bottom in bottoms)
        body = "".join(f"  {line}\n" for line in body.strip().splitlines())
        self.text += (
            f'layer {{\n  name: "{name}"\n  type: "{kind}"\n{lines}  top: "{top}"\n{body}}}\n'
        )
        return top

    @staticmethod
    def rates(bias, decay=1):
        """Learning rates as usual: twice as fast and without decay for biases."""
        weights = f"param {{ lr_mult: 1 decay_mult: {decay} }}\n"
        return weights + ("param { lr_mult: 2 decay_mult: 0 }\n" if bias else "")

    def convolution(
        self,
        name,
        bottom,
        outputs,
        kernel,
        stride=1,
        pad=0,
        group=1,
        bias=True,
        filler='type: "xavier"',
        bias_value=None,
        decay=1,
    ):
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        pad_height, pad_width = pad if isinstance(pad, tuple) else (pad, pad)
        fields = [f"num_output: {outputs}"]
        if height == width:
            fields += [f"kernel_size: {height}"] + ([f"pad: {pad_height}"] if pad_height else [])
        else:
            fields += [
                f"kernel_h: {height}",
                f"kernel_w: {width}",
                f"pad_h: {pad_height}",
                f"pad_w: {pad_width}",
            ]
        fields += [f"stride: {stride}"] if stride != 1 else []
        fields += [f"group: {group}"] if group != 1 else []
        fields += [f"weight_filler {{ {filler} }}"]
        if bias:
            value = f" value: {bias_value}" if bias_value is not None else ""
            fields += [f'bias_filler {{ type: "constant"{value} }}']
        else:
            fields += ["bias_term: false"]
        inner = "\n".join("  " + field for field in fields)
        return self.layer(
            "Convolution",
            name,
            bottom,
            body=self.rates(bias, decay) + f"convolution_param {{\n{inner}\n}}",
        )

    def inner_product(
        self, name, bottom, outputs, filler='type: "xavier"', bias_value=None, decay=1
    ):
        value = f" value: {bias_value}" if bias_value is not None else ""
        return self.layer(
            "InnerProduct",
            name,
            bottom,
            body=self.rates(True, decay)
            + f"""
inner_product_param {{
  num_output: {outputs}
  weight_filler {{ {filler} }}
  bias_filler {{ type: "constant"{value} }}
}}""".lstrip(),
        )

    def relu(self, name, blob):
        return self.layer("ReLU", name, blob, blob)

    def pool(self, name, bottom, how, kernel, stride, pad=0):
        padding = f"  pad: {pad}\n" if pad else ""
        return self.layer(
            "Pooling",
            name,
            bottom,
            body=f"""
pooling_param {{
  pool: {how}
  kernel_size: {kernel}
  stride: {stride}
{padding}}}""",
        )

    def global_pool(self, name, bottom):
        return self.layer(
            "Pooling", name, bottom, body="pooling_param {\n  pool: AVE\n  global_pooling: true\n}"
        )

    def lrn(self, name, bottom, size=5, alpha="0.0001", within=False):
        region = "  norm_region: WITHIN_CHANNEL\n" if within else ""
        return self.layer(
            "LRN",
            name,
            bottom,
            body=f"""
lrn_param {{
  local_size: {size}
  alpha: {alpha}
  beta: 0.75
{region}}}""",
        )

    def dropout(self, name, blob, ratio):
        return self.layer(
            "Dropout", name, blob, blob, f"dropout_param {{\n  dropout_ratio: {ratio}\n}}"
        )

    def normalize(self, batch_norm, scale, blob, relu=None):
        """BatchNorm, Scale with a bias and, if it has a name, ReLU, all in place."""
        self.layer("BatchNorm", batch_norm, blob, blob)
        self.layer(
            "Scale",
            scale,
            blob,
            blob,
            """
param { lr_mult: 1 decay_mult: 0 }
param { lr_mult: 1 decay_mult: 0 }
scale_param {
  bias_term: true
}""",
        )
        return self.relu(relu, blob) if relu else blob

    def classify(self, scores, prefix="", weight=None, top_5=True):
        """Loss in both phases, accuracy in TEST."""
        loss = f"{prefix}loss"
        body = f"loss_weight: {weight}" if weight is not None else ""
        if self.deployed:
            body += 'exclude { stage: "deploy" }'
        self.layer("SoftmaxWithLoss", loss, [scores, "label"], body=body)
        if self.deployed:
            self.layer("Softmax", "prob", scores, body='include { phase: TEST stage: "deploy" }')
        for k in (1, 5) if top_5 else (1,):
            body = f"include {{ {self.test_rule()} }}"
            body += f"\naccuracy_param {{\n  top_k: {k}\n}}" if k > 1 else ""
            name = f"{prefix}top-{k}" if top_5 else "accuracy"
            self.layer("Accuracy", name, [scores, "label"], body=body)


def solver_text(model, comment, **fields):
    text = f"# {comment} Paths are relative to the repository root.\n"
    text += f'net: "configs/models/{model}/net.prototxt"\n'
    for key, value in fields.items():
        values = value if isinstance(value, list) else [value]
        for one in values:
            is_text = isinstance(one, str) and not one.startswith("!")
            text += f'{key}: "{one}"\n' if is_text else f"{key}: {str(one).lstrip('!')}\n"
    return text


def snapshots(model):
    return {"snapshot": 10000, "snapshot_prefix": f"out/{model}/{model}"}


def cifar10_full():
    net = Net(
        "CIFAR10_full",
        [
            "CIFAR-10 full: three convolutions with local response normalisation and one inner product,",
            "for colour images of 32 x 32 pixels, after A. Krizhevsky's cuda-convnet.",
            "",
            "`poseidon convert cifar10` makes the databases.",
        ],
        "out/cifar10",
        0,
        100,
        100,
        means=(113, 123, 125),
        images=(3, 32, 32),
    )
    top = net.convolution("conv1", "data", 32, 5, pad=2, filler='type: "gaussian" std: 0.0001')
    top = net.relu("relu1", net.pool("pool1", top, "MAX", 3, 2))
    top = net.lrn("norm1", top, 3, "5e-05", within=True)
    top = net.relu(
        "relu2", net.convolution("conv2", top, 32, 5, pad=2, filler='type: "gaussian" std: 0.01')
    )
    top = net.lrn("norm2", net.pool("pool2", top, "AVE", 3, 2), 3, "5e-05", within=True)
    top = net.relu(
        "relu3", net.convolution("conv3", top, 64, 5, pad=2, filler='type: "gaussian" std: 0.01')
    )
    top = net.pool("pool3", top, "AVE", 3, 2)
    # The classifier decays much faster than the rest.
    net.classify(
        net.inner_product("ip1", top, 10, 'type: "gaussian" std: 0.01', decay=250), top_5=False
    )
    solver = solver_text(
        "cifar10_full",
        "Trains CIFAR-10 full.",
        test_iter=100,
        test_interval=1000,
        base_lr=0.001,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[60000, 65000],
        momentum=0.9,
        weight_decay=0.004,
        display=200,
        max_iter=70000,
        **snapshots("cifar10_full"),
    )
    return net.text, solver


def alexnet():
    net = Net(
        "AlexNet",
        [
            "AlexNet on ILSVRC's images: five convolutions, two of them in two groups, and three inner",
            "products. After A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet classification with deep",
            "convolutional neural networks, 2012.",
        ],
        "out/imagenet",
        227,
        256,
        50,
    )

    def convolution(name, bottom, outputs, kernel, bias, **more):
        top = net.convolution(
            name,
            bottom,
            outputs,
            kernel,
            filler='type: "gaussian" std: 0.01',
            bias_value=bias,
            **more,
        )
        return net.relu("relu" + name[-1], top)

    top = net.lrn("norm1", convolution("conv1", "data", 96, 11, 0, stride=4))
    top = net.pool("pool1", top, "MAX", 3, 2)
    top = net.lrn("norm2", convolution("conv2", top, 256, 5, 0.1, pad=2, group=2))
    top = net.pool("pool2", top, "MAX", 3, 2)
    top = convolution("conv3", top, 384, 3, 0, pad=1)
    top = convolution("conv4", top, 384, 3, 0.1, pad=1, group=2)
    top = convolution("conv5", top, 256, 3, 0.1, pad=1, group=2)
    top = net.pool("pool5", top, "MAX", 3, 2)
    for number in (6, 7):
        top = net.inner_product(f"fc{number}", top, 4096, 'type: "gaussian" std: 0.005', 0.1)
        top = net.dropout(f"drop{number}", net.relu(f"relu{number}", top), 0.5)
    net.classify(net.inner_product("fc8", top, 1000, 'type: "gaussian" std: 0.01', 0))
    solver = solver_text(
        "alexnet",
        "Trains AlexNet.",
        test_iter=1000,
        test_interval=1000,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        momentum=0.9,
        weight_decay=0.0005,
        display=20,
        max_iter=450000,
        **snapshots("alexnet"),
    )
    return net.text, solver


# Outputs of 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
GOOGLENET = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet():
    net = Net(
        "GoogLeNet",
        [
            "GoogLeNet on ILSVRC's images, with its two auxiliary classifiers. After C. Szegedy et al.,",
            "Going deeper with convolutions, arXiv 1409.4842.",
        ],
        "out/imagenet",
        224,
        32,
        50,
    )

    def convolution(name, bottom, outputs, kernel, **more):
        top = net.convolution(name, bottom, outputs, kernel, bias_value=0.2, **more)
        stage, part = name.rsplit("/", 1)
        return net.relu(f"{stage}/relu_{part}", top)

    def inception(name, bottom):
        prefix = f"inception_{name}/"
        one, three_reduce, three, five_reduce, five, pool = GOOGLENET[name]
        parts = [convolution(prefix + "1x1", bottom, one, 1)]
        top = convolution(prefix + "3x3_reduce", bottom, three_reduce, 1)
        parts.append(convolution(prefix + "3x3", top, three, 3, pad=1))
        top = convolution(prefix + "5x5_reduce", bottom, five_reduce, 1)
        parts.append(convolution(prefix + "5x5", top, five, 5, pad=2))
        top = net.pool(prefix + "pool", bottom, "MAX", 3, 1, 1)
        parts.append(convolution(prefix + "pool_proj", top, pool, 1))
        return net.layer("Concat", prefix + "output", parts)

    def auxiliary(number, bottom):
        prefix = f"loss{number}/"
        top = net.pool(prefix + "ave_pool", bottom, "AVE", 5, 3)
        top = convolution(prefix + "conv", top, 128, 1)
        top = net.inner_product(prefix + "fc", top, 1024, bias_value=0.2)
        top = net.dropout(prefix + "drop_fc", net.relu(prefix + "relu_fc", top), 0.7)
        net.classify(net.inner_product(prefix + "classifier", top, 1000, bias_value=0), prefix, 0.3)

    top = convolution("conv1/7x7_s2", "data", 64, 7, stride=2, pad=3)
    top = net.lrn("pool1/norm1", net.pool("pool1/3x3_s2", top, "MAX", 3, 2))
    top = convolution("conv2/3x3", convolution("conv2/3x3_reduce", top, 64, 1), 192, 3, pad=1)
    top = net.pool("pool2/3x3_s2", net.lrn("conv2/norm2", top), "MAX", 3, 2)
    top = inception("3b", inception("3a", top))
    top = inception("4a", net.pool("pool3/3x3_s2", top, "MAX", 3, 2))
    auxiliary(1, top)
    top = inception("4d", inception("4c", inception("4b", top)))
    auxiliary(2, top)
    top = net.pool("pool4/3x3_s2", inception("4e", top), "MAX", 3, 2)
    top = net.pool("pool5/7x7_s1", inception("5b", inception("5a", top)), "AVE", 7, 1)
    top = net.dropout("pool5/drop_7x7_s1", top, 0.4)
    net.classify(net.inner_product("loss3/classifier", top, 1000, bias_value=0), "loss3/", 1)
    solver = solver_text(
        "googlenet",
        "Trains GoogLeNet.",
        test_iter=1000,
        test_interval=4000,
        base_lr=0.01,
        lr_policy="poly",
        power=0.5,
        momentum=0.9,
        weight_decay=0.0002,
        display=40,
        max_iter=2400000,
        **snapshots("googlenet"),
    )
    return net.text, solver


def vgg19(model, name, classes, data):
    comment = [
        "VGG19: sixteen convolutions and three inner products. After K. Simonyan, A. Zisserman,",
        "Very deep convolutional networks for large-scale image recognition, arXiv 1409.1556.",
    ]
    if classes != 1000:
        comment.append(f"With a classifier for the {classes} classes of the whole of ImageNet.")
    net = Net(name, comment, data, 224, 32, 10)
    top = "data"
    for stage, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)), 1):
        for number in range(1, count + 1):
            # Without normalisation xavier, which lets pixels' large values fade from layer to layer.
            top = net.convolution(f"conv{stage}_{number}", top, outputs, 3, pad=1)
            top = net.relu(f"relu{stage}_{number}", top)
        top = net.pool(f"pool{stage}", top, "MAX", 2, 2)
    for number in (6, 7):
        top = net.inner_product(f"fc{number}", top, 4096, 'type: "gaussian" std: 0.005', 0.1)
        top = net.dropout(f"drop{number}", net.relu(f"relu{number}", top), 0.5)
    net.classify(net.inner_product("classifier", top, classes, 'type: "gaussian" std: 0.01'))
    solver = solver_text(
        model,
        f"Trains {name}.",
        test_iter=1000,
        test_interval=2500,
        base_lr=0.001,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        momentum=0.9,
        weight_decay=0.0005,
        display=20,
        max_iter=370000,
        **snapshots(model),
    )
    return net.text, solver


class InceptionV3:
    """C. Szegedy et al., Rethinking the inception architecture, arXiv 1512.00567."""

    def __init__(self):
        self.net = Net(
            "Inception-V3",
            [
                "Inception-V3 on ILSVRC's images of 299 x 299 pixels. After C. Szegedy et al., Rethinking",
                "the inception architecture for computer vision, arXiv 1512.00567, without the auxiliary",
                "classifier.",
            ],
            "out/imagenet",
            299,
            32,
            10,
        )

    def convolution(self, name, bottom, outputs, kernel, stride=1, pad=0):
        top = self.net.convolution(name, bottom, outputs, kernel, stride, pad, bias=False)
        return self.net.normalize(f"{name}_bn", f"{name}_scale", top, f"{name}_relu")

    def concat(self, name, parts):
        return self.net.layer("Concat", f"{name}_concat", parts)

    def chain(self, prefix, bottom, *steps):
        """Convolutions one after the other; each (name, outputs, kernel, stride or padding...)."""
        for name, outputs, kernel, *more in steps:
            bottom = self.convolution(prefix + name, bottom, outputs, kernel, *more)
        return bottom

    def pooled(self, prefix, bottom, name, outputs):
        top = self.net.pool(prefix + "pool", bottom, "AVE", 3, 1, 1)
        return self.convolution(prefix + name, top, outputs, 1)

    def block_a(self, number, bottom, projection):
        prefix = f"inception_a{number}_"
        return self.concat(
            prefix[:-1],
            [
                self.chain(prefix, bottom, ("1x1", 64, 1)),
                self.chain(prefix, bottom, ("5x5_reduce", 48, 1), ("5x5", 64, 5, 1, 2)),
                self.chain(
                    prefix,
                    bottom,
                    ("3x3_reduce", 64, 1),
                    ("3x3_1", 96, 3, 1, 1),
                    ("3x3_2", 96, 3, 1, 1),
                ),
                self.pooled(prefix, bottom, "pool_proj", projection),
            ],
        )

    def reduction_a(self, bottom):
        prefix = "reduction_a_"
        return self.concat(
            prefix[:-1],
            [
                self.chain(prefix, bottom, ("3x3", 384, 3, 2)),
                self.chain(
                    prefix,
                    bottom,
                    ("3x3_2_reduce", 64, 1),
                    ("3x3_2", 96, 3, 1, 1),
                    ("3x3_3", 96, 3, 2),
                ),
                self.net.pool(prefix + "pool", bottom, "MAX", 3, 2),
            ],
        )

    def block_b(self, number, bottom, width):
        prefix = f"inception_b{number}_"
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        return self.concat(
            prefix[:-1],
            [
                self.chain(prefix, bottom, ("1x1_2", 192, 1)),
                self.chain(
                    prefix,
                    bottom,
                    ("1x7_reduce", width, 1),
                    ("1x7", width, *row),
                    ("7x1", 192, *column),
                ),
                self.chain(
                    prefix,
                    bottom,
                    ("7x1_reduce", width, 1),
                    ("7x1_2", width, *column),
                    ("1x7_2", width, *row),
                    ("7x1_3", width, *column),
                    ("1x7_3", 192, *row),
                ),
                self.pooled(prefix, bottom, "1x1", 192),
            ],
        )

    def reduction_b(self, bottom):
        prefix = "reduction_b_"
        return self.concat(
            prefix[:-1],
            [
                self.chain(prefix, bottom, ("3x3_reduce", 192, 1), ("3x3", 320, 3, 2)),
                self.chain(
                    prefix,
                    bottom,
                    ("1x7_reduce", 192, 1),
                    ("1x7", 192, (1, 7), 1, (0, 3)),
                    ("7x1", 192, (7, 1), 1, (3, 0)),
                    ("3x3_2", 192, 3, 2),
                ),
                self.net.pool(prefix + "pool", bottom, "MAX", 3, 2),
            ],
        )

    def block_c(self, number, bottom):
        prefix = f"inception_c{number}_"
        row, column = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
        one = self.chain(prefix, bottom, ("1x1_2", 320, 1))
        top = self.chain(prefix, bottom, ("1x3_reduce", 384, 1))
        second = [
            self.chain(prefix, top, ("1x3", 384, *row)),
            self.chain(prefix, top, ("3x1", 384, *column)),
        ]
        top = self.chain(prefix, bottom, ("3x3_reduce", 448, 1), ("3x3", 384, 3, 1, 1))
        third = [
            self.chain(prefix, top, ("1x3_2", 384, *row)),
            self.chain(prefix, top, ("3x1_2", 384, *column)),
        ]
        return self.concat(
            prefix[:-1], [one, *second, *third, self.pooled(prefix, bottom, "1x1", 192)]
        )

    def make(self):
        top = self.chain(
            "",
            "data",
            ("conv1_3x3_s2", 32, 3, 2),
            ("conv2_3x3_s1", 32, 3),
            ("conv3_3x3_s1", 64, 3, 1, 1),
        )
        top = self.net.pool("pool1_3x3_s2", top, "MAX", 3, 2)
        top = self.chain("", top, ("conv4_3x3_reduce", 80, 1), ("conv4_3x3", 192, 3))
        top = self.net.pool("pool2_3x3_s2", top, "MAX", 3, 2)
        for number, projection in enumerate((32, 64, 64), 1):
            top = self.block_a(number, top, projection)
        top = self.reduction_a(top)
        for number, width in enumerate((128, 160, 160, 192), 1):
            top = self.block_b(number, top, width)
        top = self.reduction_b(top)
        for number in (1, 2):
            top = self.block_c(number, top)
        top = self.net.dropout("drop", self.net.global_pool("pool_8x8_s1", top), 0.2)
        self.net.classify(self.net.inner_product("classifier", top, 1000))
        solver = solver_text(
            "inception_v3",
            "Trains Inception-V3.",
            test_iter=1000,
            test_interval=5000,
            base_lr=0.045,
            lr_policy="step",
            gamma=0.94,
            stepsize=80000,
            type="RMSProp",
            rms_decay=0.9,
            delta=1.0,
            weight_decay=0.00004,
            display=40,
            max_iter=4000000,
            **snapshots("inception_v3"),
        )
        return self.net.text, solver


def block_names(count, letters):
    """a, b, c, ... or, as deeper nets do, a, b1, b2, ..."""
    if letters or count <= 3:
        return [chr(ord("a") + i) for i in range(count)]
    return ["a"] + [f"b{i}" for i in range(1, count)]


def resnet(model, name, counts, classes, data):
    depth = sum(counts) * 3 + 2
    comment = [
        f"ResNet-{depth}: residual blocks of three convolutions. After K. He, X. Zhang, S. Ren,",
        "J. Sun, Deep residual learning for image recognition, arXiv 1512.03385.",
    ]
    if classes != 1000:
        comment.append(f"With a classifier for the {classes} classes of the whole of ImageNet.")
    net = Net(name, comment, data, 224, 32, 10)
    filler = 'type: "msra"'

    def convolution(block, branch, bottom, outputs, kernel, stride, pad, relu):
        top = net.convolution(
            f"res{block}_{branch}", bottom, outputs, kernel, stride, pad, bias=False, filler=filler
        )
        relu_name = f"res{block}_{branch}_relu" if relu else None
        return net.normalize(f"bn{block}_{branch}", f"scale{block}_{branch}", top, relu_name)

    # The published ResNet-50 has a bias in its first convolution, the deeper ones none.
    top = net.convolution("conv1", "data", 64, 7, 2, 3, bias=depth == 50, filler=filler)
    top = net.pool(
        "pool1", net.normalize("bn_conv1", "scale_conv1", top, "conv1_relu"), "MAX", 3, 2
    )
    for stage, count in enumerate(counts, 2):
        width = 64 << (stage - 2)
        for index, letter in enumerate(block_names(count, depth == 50)):
            block = f"{stage}{letter}"
            stride = 2 if index == 0 and stage > 2 else 1
            shortcut = top
            if index == 0:
                shortcut = convolution(block, "branch1", top, 4 * width, 1, stride, 0, False)
            branch = convolution(block, "branch2a", top, width, 1, stride, 0, True)
            branch = convolution(block, "branch2b", branch, width, 3, 1, 1, True)
            branch = convolution(block, "branch2c", branch, 4 * width, 1, 1, 0, False)
            top = net.layer("Eltwise", f"res{block}", [shortcut, branch])
            top = net.relu(f"res{block}_relu", top)
    net.classify(net.inner_product("fc1000", net.global_pool("pool5", top), classes, filler))
    solver = solver_text(
        model,
        f"Trains {name}.",
        test_iter=1000,
        test_interval=5000,
        base_lr=0.1,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[300000, 600000, 900000],
        momentum=0.9,
        weight_decay=0.0001,
        display=20,
        max_iter=1000000,
        **snapshots(model),
    )
    return net.text, solver


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
            path = os.path.join(HERE, model, name)
            if check:
                if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
                    differing.append(path)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    for path in differing:
        print(f"{path} is not what make.py writes; run it, or change it instead of the file")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
