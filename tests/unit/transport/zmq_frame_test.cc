#include "transport/zmq/zmq_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "proto/wire.pb.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

DecodedHeader Decode(const std::string& header, size_t body_bytes) {
  return DecodeHeader(std::as_bytes(std::span(header)), body_bytes);
}

Envelope Sample() {
  Envelope envelope;
  envelope.kind = MessageKind::kGradient;
  envelope.from = {{Role::kWorker, 3}, kFirstDataLane + 1};
  envelope.epoch = std::numeric_limits<uint64_t>::max();
  envelope.iteration = 123456789012;
  envelope.bucket = 17;
  envelope.chunk = std::numeric_limits<uint32_t>::max();
  envelope.priority = -(int64_t{1} << 40);
  envelope.settings = Payload::FromString("settings");
  envelope.body = Payload::FromString("body");
  return envelope;
}

wire::FrameHeader SampleHeader() {
  wire::FrameHeader header;
  header.ParseFromString(EncodeHeader(Sample()));
  return header;
}

TEST(ZmqFrame, CarriesEveryField) {
  const Envelope sent = Sample();
  const DecodedHeader decoded = Decode(EncodeHeader(sent, 4711), 4);
  ASSERT_EQ(decoded.fault, "");
  EXPECT_EQ(decoded.number, 4711);
  const Envelope& got = decoded.envelope;
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.from, sent.from);
  EXPECT_EQ(got.epoch, sent.epoch);
  EXPECT_EQ(got.iteration, sent.iteration);
  EXPECT_EQ(got.bucket, sent.bucket);
  EXPECT_EQ(got.chunk, sent.chunk);
  EXPECT_EQ(got.priority, sent.priority);
  EXPECT_EQ(got.settings.ToString(), "settings");
}

TEST(ZmqFrame, TakesNodesWithoutRankAndTheApplication) {
  Envelope envelope = Sample();
  envelope.from = {{Role::kServer, -1}, kApplicationLane};
  EXPECT_EQ(Decode(EncodeHeader(envelope), 4).envelope.from, envelope.from);
}

TEST(ZmqFrame, SaysWhatIsWrong) {
  wire::FrameHeader header = SampleHeader();
  header.set_version(9);
  EXPECT_THAT(Decode(header.SerializeAsString(), 4).fault, HasSubstr("version 9"));
  header = SampleHeader();
  header.set_kind(static_cast<uint32_t>(MessageKind::kGradientReady));
  EXPECT_THAT(Decode(header.SerializeAsString(), 4).fault,
              HasSubstr("gradient ready, which never crosses the wire"));
  header.set_kind(999);
  EXPECT_THAT(Decode(header.SerializeAsString(), 4).fault, HasSubstr("kind 999"));
  header.set_kind(0xFFFFFFFF);
  EXPECT_THAT(Decode(header.SerializeAsString(), 4).fault, HasSubstr("kind -1"));
  header = SampleHeader();
  header.set_from_role(0);  // would pass for this node itself
  EXPECT_THAT(Decode(header.SerializeAsString(), 4).fault, HasSubstr("role 0"));
  header = SampleHeader();
  header.set_from_rank(-2);
  EXPECT_THAT(Decode(header.SerializeAsString(), 4).fault, HasSubstr("rank -2"));
  header = SampleHeader();
  header.set_from_lane(-2);
  EXPECT_THAT(Decode(header.SerializeAsString(), 4).fault, HasSubstr("lane -2"));
  EXPECT_THAT(Decode(SampleHeader().SerializeAsString(), 5).fault,
              HasSubstr("a body of 5 bytes, its header says 4"));
  EXPECT_THAT(Decode("", 0).fault, HasSubstr("version 0"));
  EXPECT_THAT(Decode("\xff\xff", 0).fault, HasSubstr("not one of this protocol's"));
}

// Headers with bytes changed, cut off and added never crash, and what passes makes sense.
TEST(ZmqFrame, SurvivesMutations) {
  std::mt19937 random(1);
  const std::string good = EncodeHeader(Sample());
  int passed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string header = good;
    for (unsigned changes = random() % 4; changes > 0; --changes) {
      header[random() % header.size()] = static_cast<char>(random());
    }
    header.resize(random() % 8 == 0 ? random() % 64 : header.size());
    const DecodedHeader decoded = Decode(header, 4);
    if (!decoded.fault.empty()) continue;
    ++passed;
    EXPECT_TRUE(IsWireKind(decoded.envelope.kind));
    EXPECT_NE(decoded.envelope.from.node.role, Role::kThisNode);
  }
  EXPECT_GT(passed, 0);
}

}  // namespace
}  // namespace poseidon
