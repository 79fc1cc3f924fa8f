// A node of the job that sends anything under the name of any worker or server: a program gone
// wrong, or somebody who has the job's key. It may end the job. It may not bring a node down, nor
// keep the job from ending.
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "proto/wire.pb.h"
#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuick = 50;
constexpr uint64_t kSlow = 30000;

// Envelopes of the job that a traitor has seen, of which it makes its own.
constexpr size_t kRemembered = 200;

// A job's deadlines come one behind the other (heartbeats 10 s, stalls 5 s, joining 300 s, each up
// to a few times); what lasts longer hangs.
constexpr Duration kHangs = Seconds(3000);

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::unique_ptr<Message> BodyOf(MessageKind kind) {
  switch (kind) {
    case MessageKind::kRegister:
      return std::make_unique<wire::Register>();
    case MessageKind::kRefused:
    case MessageKind::kFailed:
    case MessageKind::kEnd:
      return std::make_unique<wire::End>();
    case MessageKind::kDeclareModel:
      return std::make_unique<wire::Declaration>();
    case MessageKind::kProgress:
      return std::make_unique<wire::Progress>();
    case MessageKind::kFinished:
      return std::make_unique<wire::WorkerReport>();
    case MessageKind::kStalled:
      return std::make_unique<wire::Stalled>();
    case MessageKind::kLayerTimes:
      return std::make_unique<wire::LayerTimes>();
    case MessageKind::kLinkReport:
      return std::make_unique<wire::LinkReport>();
    case MessageKind::kNotice:
      return std::make_unique<wire::Notice>();
    case MessageKind::kHoldings:
      return std::make_unique<wire::Holdings>();
    default:
      return nullptr;
  }
}

class Traitor {
 public:
  Traitor(uint64_t seed, SimulatedClusterOptions& options) : random_(seed) {
    for (const NodeSpec& node : options.layout.nodes) nodes_.push_back(node.id);
    // Only so that the filter is asked, which never says yes.
    options.network.faults.drop = 1;
    options.network.fault_filter = [this](const Envelope& envelope) {
      if (envelope.from.node.rank < 0) return false;
      seen_.push_back(envelope);
      if (seen_.size() > kRemembered) seen_.pop_front();
      return false;
    };
  }

  // Sends `count` envelopes within the first `span` of the job.
  void Disturb(SimulatedCluster& cluster, int count, Duration span) {
    for (int i = 0; i < count; ++i) {
      const Time when = Time(static_cast<int64_t>(random_.Below(span.count())));
      cluster.runtime().At(when, [this, &cluster] { Send(cluster); });
    }
  }

  const std::string& said() const { return said_; }

 private:
  class Sender : public Actor {
   public:
    explicit Sender(Envelope envelope) : envelope_(std::move(envelope)) {}
    void OnStart(Outbox& outbox) override { outbox.Send(envelope_); }
    void OnMessage(const Envelope& /*envelope*/, Outbox& /*outbox*/) override {}

   private:
    Envelope envelope_;
  };

  int Roll(int count) { return static_cast<int>(random_.Below(count)); }
  template <typename Value>
  Value Pick(std::initializer_list<Value> values) {
    return *(values.begin() + Roll(static_cast<int>(values.size())));
  }
  NodeId AnyNode() { return nodes_[Roll(static_cast<int>(nodes_.size()))]; }

  void Send(SimulatedCluster& cluster) {
    if (seen_.empty()) return;
    Envelope envelope = seen_[Roll(static_cast<int>(seen_.size()))];
    for (int changes = Roll(3); changes >= 0; --changes) Change(envelope);
    if (std::ranges::find(nodes_, envelope.to.node) == nodes_.end()) return;
    // Who can speak for the scheduler is obeyed: that a node may do so is not promised against.
    if (envelope.from.node.role == Role::kScheduler) return;
    said_ += envelope.from.ToString() + " to " + envelope.to.ToString() + ": " +
             KindName(envelope.kind) + ", iteration " + std::to_string(envelope.iteration) +
             ", bucket " + std::to_string(envelope.bucket) + ", chunk " +
             std::to_string(envelope.chunk) + ", step " + std::to_string(envelope.step) + ", " +
             std::to_string(envelope.body.size()) + " bytes\n";
    SimRuntime& runtime = cluster.runtime();
    const SimNode self = runtime.AddNode(envelope.from.node, 0);
    runtime.SetRoute(self, envelope.to,
                     runtime.endpoint(cluster.process(envelope.to.node), envelope.to.lane));
    const int lane = std::clamp(envelope.from.lane, 0, kFirstDataLane + 3);
    runtime.Attach(self, lane, std::make_unique<Sender>(envelope));
  }

  void Change(Envelope& envelope) {
    switch (Roll(10)) {
      case 0:
        do {
          envelope.kind = static_cast<MessageKind>(Roll(50));
        } while (!IsWireKind(envelope.kind));  // of another kind a node takes none from outside
        break;
      case 1:
        envelope.from.node = AnyNode();
        break;
      case 2:
        envelope.from.node.rank = Pick({0, 1, 7, 99, std::numeric_limits<int>::max()});
        break;
      case 3:
        envelope.to.node = AnyNode();
        break;
      case 4:
        envelope.to.lane = Roll(kFirstDataLane + 2);
        break;
      case 5:
        envelope.iteration = AnyNumber(envelope.iteration);
        break;
      case 6:
        envelope.bucket = static_cast<uint32_t>(AnyNumber(envelope.bucket));
        break;
      case 7:
        envelope.chunk = static_cast<uint32_t>(AnyNumber(envelope.chunk));
        break;
      case 8:
        envelope.step = static_cast<uint32_t>(AnyNumber(envelope.step));
        break;
      default:
        ChangeBody(envelope);
    }
  }

  int64_t AnyNumber(int64_t from) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    return Pick<int64_t>({from - 1, from + 1, 0, -1, 2 * from, kMost, -kMost, kMost / 4,
                          int64_t{1} << 31, static_cast<int64_t>(random_.Below(1000))});
  }

  void ChangeBody(Envelope& envelope) {
    std::string bytes = envelope.body.ToString();
    const std::unique_ptr<Message> message = BodyOf(envelope.kind);
    if (message != nullptr && message->ParseFromString(bytes) && Roll(4) > 0) {
      for (int changes = Roll(3); changes >= 0; --changes) ChangeField(*message);
      bytes = message->SerializeAsString();
    } else if (Roll(2) == 0) {
      bytes.resize(Roll(static_cast<int>(2 * bytes.size()) + 9), '\x7f');
    } else {
      for (char& byte : bytes) {
        if (Roll(8) == 0) byte = static_cast<char>(Roll(256));
      }
    }
    envelope.body = Payload::FromString(std::move(bytes));
  }

  // Of the message or of one of those in it.
  void ChangeField(Message& message) {
    const auto* const descriptor = message.GetDescriptor();
    if (descriptor->field_count() == 0) return;
    const FieldDescriptor* const field = descriptor->field(Roll(descriptor->field_count()));
    const auto* const reflection = message.GetReflection();
    if (field->is_repeated()) return ChangeRepeated(message, *field);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetInt32(
            &message, field, static_cast<int32_t>(AnyNumber(reflection->GetInt32(message, field))));
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection->SetUInt32(
            &message, field,
            static_cast<uint32_t>(AnyNumber(reflection->GetUInt32(message, field))));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->SetInt64(&message, field,
                                    AnyNumber(reflection->GetInt64(message, field)));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetUInt64(&message, field,
                                     static_cast<uint64_t>(AnyNumber(static_cast<int64_t>(
                                         reflection->GetUInt64(message, field)))));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetDouble(&message, field, AnyReal());
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection->SetFloat(&message, field, static_cast<float>(AnyReal()));
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->SetBool(&message, field, !reflection->GetBool(message, field));
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->SetString(&message, field, AnyText());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ChangeField(*reflection->MutableMessage(&message, field));
      default:
        return reflection->ClearField(&message, field);
    }
  }

  void ChangeRepeated(Message& message, const FieldDescriptor& field) {
    const auto* const reflection = message.GetReflection();
    const int size = reflection->FieldSize(message, &field);
    if (size == 0 || Roll(4) == 0) return reflection->ClearField(&message, &field);
    if (Roll(3) == 0) return reflection->RemoveLast(&message, &field);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
    Message* const one = reflection->MutableRepeatedMessage(&message, &field, Roll(size));
    if (Roll(3) > 0) return ChangeField(*one);
    const std::unique_ptr<Message> copy(one->New());
    copy->CopyFrom(*one);
    reflection->AddMessage(&message, &field)->CopyFrom(*copy);
  }

  double AnyReal() {
    return Pick({0.0, -1.0, 1e300, -1e300, std::numeric_limits<double>::infinity(),
                 std::numeric_limits<double>::quiet_NaN(), 1e-300});
  }

  std::string AnyText() {
    return Pick<std::string>({"", "?", std::string(100, 'x'), "tcp://nowhere", "sim://999999/0",
                              std::string("\0\xff", 2), "layer0"});
  }

  Random random_;
  std::vector<NodeId> nodes_;
  std::deque<Envelope> seen_;
  std::string said_;
};

// Whether the job has ended well for all.
bool ExpectTheJobEnds(SimulatedClusterOptions options, uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  options.job.mutable_communication()->set_stall_deadline_seconds(5);
  SimulatedCluster undisturbed(options);
  EXPECT_TRUE(undisturbed.Run(kForever));
  const Duration span = undisturbed.runtime().now();
  Traitor traitor(seed, options);
  SimulatedCluster cluster(options);
  traitor.Disturb(cluster, 1 + static_cast<int>(seed % 20), span);
  EXPECT_TRUE(cluster.Run(Time(kHangs + span))) << traitor.said();
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    if (!cluster.node(i).end || cluster.node(i).end->exit_code() != 0) return false;
  }
  return true;
}

void TryTraitors(uint64_t begin, uint64_t end) {
  int good = 0;
  int bad = 0;
  for (uint64_t seed = begin; seed < end && !testing::Test::HasFailure(); ++seed) {
    for (const auto& options : {RandomTraining(seed), RecoveringTraining(seed)}) {
      ++(ExpectTheJobEnds(options, seed) ? good : bad);
    }
  }
  std::cout << good << " jobs ended well, " << bad << " badly\n";
  // What is said is neither always nonsense nor always believed.
  EXPECT_GT(good, 0);
  EXPECT_GT(bad, 0);
}

TEST(TraitorTest, MayEndTheJobAndNothingElse) { TryTraitors(0, kQuick); }
TEST(TraitorTest, SlowMayEndTheJobAndNothingElse) { TryTraitors(kQuick, kSlow); }

}  // namespace
}  // namespace poseidon
