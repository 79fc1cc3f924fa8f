"""Inception-V3."""

from .text import Net, snapshots, solver_text


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
