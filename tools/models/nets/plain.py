"""Nets whose layers follow one another: CIFAR-10 full, AlexNet and VGG19."""

from .text import Net, snapshots, solver_text


def cifar10_full():
    net = Net(
        "CIFAR10_full",
        [
            "CIFAR-10 full: three convolutions with local response normalization and one inner product,",
            "for color images of 32 x 32 pixels, after A. Krizhevsky's cuda-convnet.",
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
            # Without normalization xavier, which lets pixels' large values fade from layer to layer.
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
