"""Damage to files, drawn at random: cut off, bytes changed, put in or repeated."""


def draw(random, data):
    """A damaged copy of bytes of which there is at least one."""
    place = random.randrange(len(data))
    kind = random.choice(("cut", "change", "insert", "repeat"))
    if kind == "cut":
        return data[:place]
    if kind == "change":
        damaged = bytearray(data)
        for _ in range(random.randrange(1, 6)):
            damaged[random.randrange(len(data))] = random.randrange(256)
        return bytes(damaged)
    if kind == "insert":
        return data[:place] + random.randbytes(random.randrange(1, 30)) + data[place:]
    end = place + random.randrange(1, 60)
    return data[:end] + data[place:end] * random.randrange(1, 5) + data[end:]


def _varint(data, place):
    value, shift = 0, 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place


def boundaries(data):
    """Where the fields of a Protobuf message begin, of those with a length or a varint."""
    place = 0
    found = []
    while place < len(data):
        found.append(place)
        tag, place = _varint(data, place)
        size, place = _varint(data, place)
        if tag & 7 == 2:
            place += size
    return found


def damage_file(random, path):
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(draw(random, data))
