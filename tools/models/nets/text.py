"""A net and a solver as text."""

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
