"""Residual nets."""

from .text import Net, snapshots, solver_text


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
