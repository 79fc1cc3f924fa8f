#include "tests/simulation/recovery/traitor.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "proto/wire.pb.h"

namespace poseidon {
namespace {

// Envelopes of the job that a traitor has seen, of which it makes its own.
constexpr size_t kRemembered = 200;

// Above the numbers of all kinds (transport/envelope.h).
constexpr int kMostKinds = 100;

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

class Sender : public Actor {
 public:
  explicit Sender(Envelope envelope) : envelope_(std::move(envelope)) {}
  void OnStart(Outbox& outbox) override { outbox.Send(envelope_); }
  void OnMessage(const Envelope& /*envelope*/, Outbox& /*outbox*/) override {}

 private:
  Envelope envelope_;
};

}  // namespace

Traitor::Traitor(Draw draw, SimulatedClusterOptions& options) : draw_(std::move(draw)) {
  // Of another kind a node takes none from outside.
  for (int kind = 0; kind < kMostKinds; ++kind) {
    if (IsWireKind(static_cast<MessageKind>(kind)))
      kinds_.push_back(static_cast<MessageKind>(kind));
  }
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

void Traitor::Disturb(SimulatedCluster& cluster, int count, Duration span) {
  for (int i = 0; i < count; ++i) {
    const Time when = Time(static_cast<int64_t>(draw_(static_cast<uint64_t>(span.count()))));
    cluster.runtime().At(when, [this, &cluster] { Send(cluster); });
  }
}

void Traitor::Send(SimulatedCluster& cluster) {
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
  Say(cluster, envelope);
}

void Traitor::Say(SimulatedCluster& cluster, const Envelope& envelope) {
  SimRuntime& runtime = cluster.runtime();
  const SimNode self = runtime.AddNode(envelope.from.node, 0);
  runtime.SetRoute(self, envelope.to,
                   runtime.endpoint(cluster.process(envelope.to.node), envelope.to.lane));
  const int lane = std::clamp(envelope.from.lane, 0, kFirstDataLane + 3);
  runtime.Attach(self, lane, std::make_unique<Sender>(envelope));
}

void Traitor::Change(Envelope& envelope) {
  switch (Roll(10)) {
    case 0:
      envelope.kind = kinds_[Roll(static_cast<int>(kinds_.size()))];
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

int64_t Traitor::AnyNumber(int64_t from) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto number = static_cast<uint64_t>(from);  // for which too large is no error
  return Pick<int64_t>({static_cast<int64_t>(number - 1), static_cast<int64_t>(number + 1), 0, -1,
                        static_cast<int64_t>(2 * number), kMost, -kMost, kMost / 4,
                        int64_t{1} << 31, static_cast<int64_t>(draw_(1000))});
}

void Traitor::ChangeBody(Envelope& envelope) {
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

void Traitor::ChangeField(Message& message) {
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
          &message, field, static_cast<uint32_t>(AnyNumber(reflection->GetUInt32(message, field))));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(&message, field, AnyNumber(reflection->GetInt64(message, field)));
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

void Traitor::ChangeRepeated(Message& message, const FieldDescriptor& field) {
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

double Traitor::AnyReal() {
  return Pick({0.0, -1.0, 1e300, -1e300, std::numeric_limits<double>::infinity(),
               std::numeric_limits<double>::quiet_NaN(), 1e-300});
}

std::string Traitor::AnyText() {
  return Pick<std::string>({"", "?", std::string(100, 'x'), "tcp://nowhere", "sim://999999/0",
                            std::string("\0\xff", 2), "layer0"});
}

}  // namespace poseidon
