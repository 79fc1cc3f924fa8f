"""What a training step costs without any of this project: ResNet-50 and VGG19 as configs/models has
them, in plain PyTorch, on one batch that stays on the device.

    python3 tests/gpu/plain_torch.py resnet50|vgg19 BATCH ITERATIONS [cpu|cuda] [PRECISION]

Prints the milliseconds of an iteration: forward, backward and the update by SGD with momentum, the
mean over the iterations after WARM_UP. PRECISION is FLOAT32, TF32, or FLOAT16 or BFLOAT16: autocast,
with images' channels innermost and for float16 a GradScaler, as PyTorch advises. cuDNN's own choice
of convolutions, as the worker's.
"""

import sys
import time

import torch
from torch import nn

# Memory is found and kernels are loaded in the first ones.
WARM_UP = 5


class Bottleneck(nn.Module):
    """He et al., arXiv 1512.03385, figure 5; the stride is the first convolution's."""

    def __init__(self, inputs, middle, stride):
        super().__init__()
        outputs = 4 * middle
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, middle, 1, stride, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(True),
            nn.Conv2d(middle, middle, 3, 1, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(True),
            nn.Conv2d(middle, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, data):
        return torch.relu(self.branch(data) + self.shortcut(data))


def resnet50():
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, ceil_mode=True),
    ]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        middle = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(inputs, middle, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def vgg19():
    layers = []
    inputs = 3
    for outputs, convolutions in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.ReLU(True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2, 2))
    layers.append(nn.Flatten())
    for inputs in (512 * 7 * 7, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


def main(name, batch, iterations, device="cuda", precision="FLOAT32"):
    torch.backends.cuda.matmul.allow_tf32 = precision == "TF32"
    torch.backends.cudnn.allow_tf32 = precision == "TF32"
    half = {"FLOAT16": torch.float16, "BFLOAT16": torch.bfloat16}.get(precision)
    order = torch.channels_last if half else torch.contiguous_format
    net = {"resnet50": resnet50, "vgg19": vgg19}[name]().to(device, memory_format=order)
    update = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)
    loss_of = nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler(device, enabled=precision == "FLOAT16")
    data = torch.randn(int(batch), 3, 224, 224, device=device).to(memory_format=order)
    labels = torch.zeros(int(batch), dtype=torch.long, device=device)

    def train(count):
        for _ in range(count):
            update.zero_grad()
            with torch.autocast(device, half, enabled=half is not None):
                loss = loss_of(net(data), labels)
            scaler.scale(loss).backward()
            scaler.step(update)
            scaler.update()
        if device == "cuda":
            torch.cuda.synchronize()

    train(WARM_UP)
    begin = time.perf_counter()
    train(int(iterations))
    print(1000 * (time.perf_counter() - begin) / int(iterations))


if __name__ == "__main__":
    main(*sys.argv[1:])
