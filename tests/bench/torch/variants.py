"""What peers.py measures: ways to train, each with what it is compared by."""

import dataclasses
import importlib.util
from typing import Dict, List

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Variant:
    """`bytes`: those of equal kind are compared with one another ("dense", "half", "fewer",
    "low rank").
    `means`: how exact its means are ("exact", "rounded", or "" where they are not means)."""

    name: str
    system: str
    options: dict
    bytes: str = "dense"
    means: str = "exact"


ALONE = Variant("no exchange", "alone", {}, "none", "")


def ddp() -> List[Variant]:
    """Over gloo. powerSGD_hook has one bucket: over several gloo ends some of its trainings, as sizes of
    all-reduces on different ranks do not match."""
    found = [Variant("DDP", "ddp", {})]
    for size in (4, 1):
        found.append(Variant(f"DDP, buckets of {size} MiB", "ddp", {"bucket_cap_mb": size}))
    found += [
        Variant(
            "DDP, buckets of 4 MiB that gradients are views of",
            "ddp",
            {"bucket_cap_mb": 4, "gradient_as_bucket_view": True},
        ),
        Variant(
            "DDP, bf16_compress_hook, 4 MiB",
            "ddp",
            {"bucket_cap_mb": 4, "hook": "bf16"},
            "half",
            "rounded",
        ),
        # What it sends is an approximation of the mean, of rank 1.
        Variant(
            "DDP, powerSGD_hook, one bucket",
            "ddp",
            {"bucket_cap_mb": 1 << 20, "hook": "powersgd"},
            "low rank",
            "",
        ),
    ]
    return found


def torchft() -> List[Variant]:
    """Where it is installed. It is not DDP's best by which all others are judged: what it gives beside speed, a
    training that outlives its ranks, DDP does not give."""
    if importlib.util.find_spec("torchft") is None:
        return []
    return [
        Variant("torchft", "torchft", {}),
        Variant("torchft, buckets of 4 MiB", "torchft", {"bucket_cap_mb": 4}),
    ]


def poseidon(link: str) -> List[Variant]:
    """`link`: the bandwidth that the planner is told; without, it measures."""
    found = []

    def add(name, kind="dense", means="exact", **options):
        found.append(Variant(f"ours, {name}", "poseidon", options, kind, means))

    for overlap in ("backward", "forward"):
        add(f"{overlap}, default", overlap=overlap)
        for policy in ("ALL_PS", "ALL_RING"):
            for label, size in (("0", 0), ("1 MiB", MIB), ("4 MiB", 4 * MIB)):
                add(
                    f"{overlap}, {policy}, buckets of {label}",
                    overlap=overlap,
                    policy=policy,
                    bucket_bytes=size,
                )
        add(f"{overlap}, default, bandwidth given", overlap=overlap, bandwidth=link)
        add(f"{overlap}, BF16", "half", "rounded", overlap=overlap, codec="BF16")
        add(f"{overlap}, factors", "fewer", overlap=overlap, factors=True)
    return found


def chosen(link: str, patterns: List[str], net: str) -> List[Variant]:
    """Those whose names contain one of `patterns`; all, without any. The first is ALONE."""
    every = ddp() + torchft() + poseidon(link)
    if net != "vgg19":  # no other has linear layers that compute
        every = [variant for variant in every if "factors" not in variant.name]
    if patterns:
        every = [one for one in every if any(pattern in one.name for pattern in patterns)]
    return [ALONE, *every]


def as_json(variants: List[Variant]) -> List[Dict]:
    """For the ranks."""
    return [dataclasses.asdict(variant) for variant in variants]
