"""GoogLeNet."""

from .text import Net, snapshots, solver_text

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
