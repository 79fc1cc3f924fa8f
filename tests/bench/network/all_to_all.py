"""All nodes send a message to each other one at the same time, over plain TCP connections, again
and again: what KV pairs do that every server answers at once, without anything of ours. With equal
shares for all connections it would take what the bytes need at line rate. Two nodes, of which each
has the other's link for itself, show what else there is.

run.py --part=all-to-all runs it on testbeds; started as a program it is one of the nodes."""

import json
import os
import selectors
import socket
import statistics
import sys
import time

import testbed

PORT = 5000
# Ethernet, IP and TCP headers leave this share of the rate, which
# configs/experiments/kv_pairs.prototxt has, too.
GOODPUT_SHARE = 0.955
# Two cores are enough for eight nodes: kv_pairs.prototxt's 1 Gb/s in its five times slow motion.
BITS_PER_SECOND = 2 * 10**8
# (nodes, bytes of a message)
CASES = [(2, 4 << 20)] + [(nodes, mib << 20) for nodes in (4, 8) for mib in (1, 4, 16)]
# How long nodes may take to find each other.
CONNECT_SECONDS = 4
# A message is read and written in such pieces, so that all connections have their turns.
PIECE_BYTES = 1 << 17


def bound_seconds(nodes, size):
    """What the bytes need on each node's link, in each direction, but for what an idle link lets
    through at once."""
    return 8 * (size * (nodes - 1) / GOODPUT_SHARE - testbed.BURST_BYTES) / BITS_PER_SECOND


def connect(address):
    """A connection to a node that may not listen yet."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((address, PORT), CONNECT_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def connect_all(node, addresses):
    """({node: connection to it}, {node: connection from it}), of all others."""
    with socket.create_server((addresses[node], PORT), backlog=len(addresses)) as server:
        server.settimeout(CONNECT_SECONDS)
        others = [other for other in range(len(addresses)) if other != node]
        to_others = {other: connect(addresses[other]) for other in others}
        for connection in to_others.values():
            connection.sendall(bytes([node]))
        from_others = {}
        while len(from_others) < len(others):
            connection, _ = server.accept()
            from_others[connection.recv(1)[0]] = connection
    for connection in (*to_others.values(), *from_others.values()):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
    return to_others, from_others


def exchange(to_others, from_others, size):
    """One message to each other node, and one from each."""
    piece = memoryview(bytearray(PIECE_BYTES))
    left = {}
    with selectors.DefaultSelector() as selector:
        for connections, event in (
            (to_others, selectors.EVENT_WRITE),
            (from_others, selectors.EVENT_READ),
        ):
            for connection in connections.values():
                selector.register(connection, event)
                left[connection] = size
        while left:
            for key, event in selector.select():
                connection = key.fileobj
                part = piece[: min(left[connection], PIECE_BYTES)]
                done = (
                    connection.send(part)
                    if event == selectors.EVENT_WRITE
                    else connection.recv_into(part)
                )
                if done == 0:
                    raise ConnectionError("another node has ended")
                left[connection] -= done
                if left[connection] == 0:
                    del left[connection]
                    selector.unregister(connection)


def run_node(node, addresses, size, begins):
    """Prints when each exchange, which begins at one of these times, had ended, as JSON."""
    to_others, from_others = connect_all(node, addresses)
    seconds = []
    for begin in begins:
        left = begin - time.monotonic()
        if left < 0:
            raise TimeoutError("the exchange before took longer than was planned for")
        time.sleep(left)
        exchange(to_others, from_others, size)
        seconds.append(time.monotonic() - begin)
    print(json.dumps(seconds))


def measure(nodes, size, rounds):
    """By round, how long the last of all nodes took."""
    # Each is over when the next begins, and the machine's queues are empty.
    period = 2 * bound_seconds(nodes, size) + 0.3
    with testbed.Testbed(nodes, BITS_PER_SECOND) as bed:
        first = time.monotonic() + CONNECT_SECONDS
        begins = [first + period * number for number in range(rounds)]
        processes = [
            bed.start(
                node,
                [
                    sys.executable,
                    os.path.abspath(__file__),
                    json.dumps([node, bed.addresses, size, begins]),
                ],
                f"node-{node}.log",
            )
            for node in range(nodes)
        ]
        bed.wait(processes, CONNECT_SECONDS + period * rounds + 30)
        by_node = []
        for process in processes:
            with open(process.log, encoding="ascii") as file:
                by_node.append(json.load(file))
    return [max(seconds) for seconds in zip(*by_node)]


def report(cases, rounds):
    """Measures and prints a Markdown table."""
    print(
        f"\nAll to all over plain TCP at {BITS_PER_SECOND / 1e6:g} Mb/s "
        f"({testbed.CONGESTION_CONTROL}): the last node's time, of what the bytes take at "
        f"{100 * GOODPUT_SHARE:g}% of the rate\n"
    )
    print("| nodes | message | least | median | most |")
    print("|---|---|---|---|---|")
    for nodes, size in cases:
        bound = bound_seconds(nodes, size)
        ratios = [seconds / bound for seconds in measure(nodes, size, rounds)]
        print(
            f"| {nodes} | {size >> 20} MiB | {min(ratios):.2f} | {statistics.median(ratios):.2f} | "
            f"{max(ratios):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    run_node(*json.loads(sys.argv[1]))
