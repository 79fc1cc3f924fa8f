"""Products with the Hessian by backward(create_graph=True), which plain PyTorch has from a copy of the model."""

import copy
import sys

import torch

import poseidon_torch as psd

SAMPLES = 8


def loss_of(model, number: int):
    inputs = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(number))
    return model(inputs).square().sum()


def product_of(gradients, model):
    """Of the Hessian and a vector, by parameter."""
    random = torch.Generator().manual_seed(7)
    vector = [torch.randn(gradient.shape, generator=random) for gradient in gradients]
    slope = sum((gradient * part).sum() for gradient, part in zip(gradients, vector))
    return torch.autograd.grad(slope, list(model.parameters()))


def backward(model, number: int, create_graph: bool):
    model.zero_grad()
    loss_of(model, number).backward(create_graph=create_graph)
    return [parameter.grad for parameter in model.parameters()]


def plainly(model, number: int):
    """The gradients, with their graph, as one process has them."""
    return torch.autograd.grad(loss_of(model, number), list(model.parameters()), create_graph=True)


def expect_equal(ours, plain) -> None:
    # One half of twice the same, and what follows from it in the same way: exact.
    assert all(one.equal(other) for one, other in zip(ours, plain)), f"{ours} is not {plain}"


def main() -> None:
    torch.set_num_threads(1)
    psd.init(out=sys.argv[1])
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    psd.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), policy="ALL_RING")
    plain = copy.deepcopy(model)
    backward(model, 1, create_graph=False)
    for number in (2, 3):
        gradients, expected = backward(model, number, create_graph=True), plainly(plain, number)
        expect_equal(gradients, expected)
        expect_equal(product_of(gradients, model), product_of(expected, plain))
    gradients = backward(model, psd.rank(), create_graph=True)  # other data on each rank
    halves = zip(plainly(plain, 0), plainly(plain, 1))
    expect_equal(gradients, [(one + other) / 2 for one, other in halves])
    expect_equal(
        product_of(gradients, model), product_of(plainly(plain, psd.rank()), plain)
    )  # the means' graph is each rank's own
    expect_equal(backward(model, 4, create_graph=False), plainly(plain, 4))
    psd.shutdown()
    print("equal", flush=True)


main()
