"""Small nets of the kinds that are trained: a perceptron, a convolutional net with BatchNorm, and a
transformer whose output shares its weights with the embedding. With their data, and with what trainings that take
sums in another order may differ by."""

import torch
from torch import nn
from torch.nn import functional as F


class Perceptron(nn.Module):
    """32 features, 10 classes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 10)
        )

    def forward(self, features):
        return self.layers(features)


class RowsByWeight(nn.Module):
    """An embedding whose own forward pass nobody calls."""

    def __init__(self, kind):
        super().__init__()
        self.rows = kind(4, 4)

    def forward(self, features):
        return F.linear(features, self.rows.weight)


class WidePerceptron(nn.Module):
    """As Perceptron, with weights that are more than the factors of a small batch."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256, bias=False), nn.ReLU()
        )
        self.classes = nn.Linear(256, 10)

    def forward(self, features):
        return self.classes(self.layers(features))


class ConvolutionalNet(nn.Module):
    """Images of 1 x 8 x 8, 10 classes."""

    def __init__(self):
        super().__init__()
        self.convolution1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.convolution2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm2 = nn.BatchNorm2d(16)
        self.classes = nn.Linear(16, 10)

    def forward(self, images):
        features = F.relu(self.norm1(self.convolution1(images)))
        features = F.relu(self.norm2(self.convolution2(features)))
        return self.classes(features.mean((2, 3)))


class Block(nn.Module):
    """A transformer's layer with two heads."""

    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens):
        batch, length, width = tokens.shape
        parts = self.attention(self.norm1(tokens)).view(batch, length, 3, 2, width // 2)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return tokens + self.down(F.gelu(self.up(self.norm2(tokens))))


class Transformer(nn.Module):
    """Predicts the next of 40 tokens; its last weights are the embedding's, and one of its modules is
    never used."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 32)
        self.blocks = nn.ModuleList(Block(32) for _ in range(2))
        self.norm = nn.LayerNorm(32)
        self.classes = nn.Linear(32, 40, bias=False)
        self.classes.weight = self.embedding.weight
        self.unused = nn.Linear(4, 4)

    def forward(self, tokens):
        values = self.embedding(tokens)
        for block in self.blocks:
            values = block(values)
        return self.classes(self.norm(values)).flatten(0, 1)


def data_of(kind: type, samples: int):
    """Inputs and targets, always the same ones."""
    random = torch.Generator().manual_seed(5)
    if kind is Transformer:
        tokens = torch.randint(0, 40, (samples, 9), generator=random)
        return tokens[:, :-1], (tokens[:, 1:] + tokens[:, :-1]) % 40
    shape = (samples, 1, 8, 8) if kind is ConvolutionalNet else (samples, 32)
    inputs = torch.randn(shape, generator=random)
    flat = inputs.flatten(1)
    return inputs, (flat @ torch.randn(flat.shape[1], 10, generator=random)).argmax(1)


# Times what one unit in the last place of all first values does to a training, in the same run.
ULPS = 8


def move_by_one_ulp(model):
    """All values go to the next larger float; returns the model."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))
    return model


def difference(ours, theirs):
    """The largest one of losses, relative to theirs."""
    return ((ours - theirs).abs() / theirs.abs()).max().item()


def bound_of(moved, plain):
    """What the losses of a training may differ by from `plain`, if those of `moved` began one unit away."""
    return ULPS * max(difference(moved, plain), torch.finfo(torch.float32).eps)


def loss_of(outputs, targets):
    return F.cross_entropy(outputs.float(), targets.flatten())
