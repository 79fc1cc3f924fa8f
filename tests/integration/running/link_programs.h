// Programs in Python that fill the links of a testbed, for its tests.
#pragma once

namespace poseidon {

// Takes what comes on one port for as long as somebody sends, and prints how many bytes.
inline constexpr char kSink[] = R"(
import selectors, socket, sys
server = socket.create_server((sys.argv[1], 7000), backlog=64)
server.settimeout(60)
chooser, taken = selectors.DefaultSelector(), 0
chooser.register(server.accept()[0], selectors.EVENT_READ)
chooser.register(server, selectors.EVENT_READ)
while len(chooser.get_map()) > 1:
    for key, _ in chooser.select():
        if key.fileobj is server:
            chooser.register(server.accept()[0], selectors.EVENT_READ)
        elif chunk := key.fileobj.recv(65536):
            taken += len(chunk)
        else:
            chooser.unregister(key.fileobj)
print(taken)
)";
// Sends for SECONDS to each ADDRESS:CONNECTIONS.
inline constexpr char kSource[] = R"(
import selectors, socket, sys, time
chooser = selectors.DefaultSelector()
for address, connections in (peer.split(":") for peer in sys.argv[2:]):
    for _ in range(int(connections)):
        while (connection := socket.socket()).connect_ex((address, 7000)):
            connection.close()  # the sink is not there yet
            time.sleep(0.01)
        connection.setblocking(False)
        chooser.register(connection, selectors.EVENT_WRITE)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for key, _ in chooser.select(0.1):
        key.fileobj.send(bytes(65536))
)";

}  // namespace poseidon
