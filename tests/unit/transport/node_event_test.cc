#include "transport/events/node_event.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "transport/events/tcp_connections.h"

namespace poseidon {
namespace {

NodeEvent Numbered(uint64_t number) {
  NodeEvent event;
  event.number = number;
  event.iteration = static_cast<int64_t>(number);
  event.bytes = static_cast<int64_t>(number);
  event.bucket = static_cast<uint32_t>(number);
  return event;
}

TEST(EventRing, KeepsTheNewest) {
  EventRing ring(8);
  EXPECT_TRUE(ring.Read().empty());
  for (uint64_t i = 1; i <= 5; ++i) ring.Add(Numbered(i));
  EXPECT_EQ(ring.Read().size(), 5U);
  for (uint64_t i = 6; i <= 21; ++i) ring.Add(Numbered(i));
  const std::vector<NodeEvent> events = ring.Read();
  // The oldest might be overwritten just now.
  ASSERT_EQ(events.size(), 7U);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i], Numbered(15 + i));
}

TEST(EventRing, WhoReadsMeanwhileSeesWholeEvents) {
  EventRing ring(64);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i) ring.Add(Numbered(i));
  });
  while (ring.count() < 1000) std::this_thread::yield();
  for (int i = 0; i < 2000; ++i) {
    const std::vector<NodeEvent> events = ring.Read();
    for (size_t k = 0; k < events.size(); ++k) {
      ASSERT_EQ(events[k], Numbered(events[k].number));
      if (k == 0) continue;
      ASSERT_EQ(events[k].number, events[k - 1].number + 1);
    }
  }
  stop = true;
  writer.join();
}

TEST(TcpTable, TellsOfOwnConnections) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:9C40 0200000A:2694 01 00000040:00000000 01:00000019 00000003     0        0 "
      "4711 2 0 20 4 30 10 -1\n"
      "   1: 0100007F:9C41 0200000A:2694 01 00000040:00000000 04:00000019 00000000     0        0 "
      "4712 2 0 20 4 30 10 -1\n"
      "   2: 0100007F:9C42 0200000A:2694 02 00000001:00000000 01:00000019 00000001     0        0 "
      "99 2 0 20 4 30 10 -1\n"
      "   3: 00000000:2694 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "4713 1 0 100 0 0 10 0\n"
      "   4: 00000000000000000000000001000000:9C43 000000FD000000000000000002000000:2694 01 "
      "00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0\n"
      "   5: 0000000000000000FFFF00000100007F:9C44 0000000000000000FFFF00000200000A:2694 01 "
      "00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0\n";
  const auto connections = ParseTcpTable(table, {4711, 4712, 4713});
  ASSERT_EQ(connections.size(), 4U);
  EXPECT_EQ(connections[2].address, "fd00::2");
  EXPECT_EQ(connections[3].address, "10.0.0.2");
  EXPECT_EQ(connections[0].address, "10.0.0.2");
  EXPECT_EQ(connections[0].port, 9876);
  EXPECT_EQ(connections[0].state, TcpConnection::State::kEstablished);
  EXPECT_EQ(connections[0].unconfirmed_bytes, 64);
  EXPECT_EQ(connections[0].retransmissions, 3);
  EXPECT_FALSE(connections[0].window_closed);
  EXPECT_TRUE(connections[1].window_closed);
}

}  // namespace
}  // namespace poseidon
