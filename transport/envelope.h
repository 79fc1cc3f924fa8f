// Envelope: one message between actors, as they see it.
//
// On the wire an envelope is a frame header (proto/wire.proto) and, if the body is not empty, the
// body as a raw frame. docs/protocol.md says who sends which kind when.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/payload.h"
#include "core/time.h"
#include "transport/address.h"
#include "transport/departure.h"

namespace poseidon {

// Numbers are the wire's (wire::FrameHeader.kind). A kind's body is named beside it.
enum class MessageKind : int {
  kUnknown = 0,

  // Control lane.
  kRegister = 1,      // node -> scheduler: wire::Register
  kView = 2,          // scheduler -> node: wire::View; tells the node its rank
  kRefused = 3,       // scheduler -> node: wire::End, why it is not admitted, or has left
  kDeclareModel = 4,  // worker -> scheduler: wire::Declaration
  kPlan = 5,          // scheduler -> all: wire::PlanAndModel
  kReady = 6,         // node -> scheduler: no body; memory is there
  // scheduler -> all: no body; every node is ready. `iteration`: from which on the scheduler wants
  // to hear again how iterations went that have been done before.
  kStart = 7,
  kProgress = 8,     // worker -> scheduler: wire::Progress, one iteration done
  kFinished = 9,     // worker -> scheduler: wire::WorkerReport
  kFailed = 10,      // node -> scheduler: wire::End, why this node can't go on
  kStalled = 11,     // server or worker -> scheduler: wire::Stalled, who is missing for what
  kEnd = 12,         // scheduler -> all: wire::End, the job is over
  kLayerTimes = 13,  // worker -> scheduler: wire::LayerTimes
  // A switch of plans. No bodies; kPauseOffer and kPauseAt set iteration.
  kPauseRequest = 14,  // scheduler -> workers: before which iteration can you pause?
  kPauseOffer = 15,    // worker -> scheduler: that one; it does not begin it before kPauseAt
  kPauseAt = 16,  // scheduler -> workers: pause before this one; end training if step is kStopThere
  kPaused = 17,   // worker -> scheduler: everything up to there is done
  kLinkReport = 18,     // worker -> scheduler: wire::LinkReport; within a worker, lane -> control
  kNotice = 19,         // worker -> scheduler: wire::Notice, for people
  kWriteSnapshot = 23,  // scheduler -> worker 0: no body; before its next iteration
  // worker -> scheduler: no body; it wants to leave the job. Or from who is no node of it:
  // wire::LeaveRequest, and back to there: wire::End, whether the worker will. Between ranks of a
  // Communicator: no body; `iteration` is the last call that the rank has made.
  kLeave = 24,
  // Recovery. Of a hold, its number is `step`, also in the two kinds that answer it.
  // scheduler -> workers, and servers that keep what the job goes on from: no body; a node is lost,
  // the exchange stops
  kHold = 26,
  kHoldings = 22,  // answer: wire::Holdings; it has stopped
  // worker -> first data lane of a worker that has taken a lost one's place: floats, what its net
  // has beside the model
  kStatistics = 25,

  // Heartbeat lane; between ranks of a Communicator, control lane.
  kHeartbeat = 20,     // node -> scheduler: no body
  kHeartbeatAck = 21,  // scheduler -> node: no body

  // Data lanes; bucket, chunk and iteration are set.
  kInitialValues = 30,  // worker -> server or worker: worker 0's floats of one chunk; also between
                        // the two servers that keep it
  kGradient = 31,       // worker -> server: floats of one chunk
  kValues = 32,         // server -> worker: floats of one chunk, for the forward of `iteration`
  kFactors = 33,      // worker -> worker (SFB): chunk 2 w is u (rows x outputs) of worker w, chunk
                      // 2 w + 1 is v, packed by the bucket's codec; worker -> server (Adam): chunk
                      // 0 is u, 1 is v; server -> its backup (Adam): chunks as of SFB
  kReduce = 34,       // worker -> worker: floats of a range of a chunk; step is set
  kGradientSum = 35,  // server -> worker: sum of all workers' gradients of one chunk
  // A switch of plans.
  // likewise: the optimizer state of one chunk
  kInitialOptimizerState = 36,
  kFetchOptimizerState = 37,  // worker 0 -> server: no body; wants kOptimizerState of one chunk
  kOptimizerState = 38,       // server -> worker 0: what it keeps of one chunk besides the values
  // Between the two servers that keep a chunk, in a job that recovers.
  kReplica = 41,     // owner -> backup (PS): the sum of all workers' gradients of one chunk
  kReplicated = 42,  // backup -> owner: no body; it has the chunk for the forward of `iteration`
  // Before there is a plan; step is set.
  kProbe = 39,      // worker -> worker: floats that nobody reads; step 0: no echo is wanted
  kProbeEcho = 40,  // worker -> worker: no body; the probe has come

  // Within a node; never accepted from the wire.
  kGradientReady = 50,   // application -> data lane: the bucket's gradient is in its buffer
  kPublishInitial = 51,  // application -> data lane: worker 0's initial values are in place
  kBucketFresh = 52,     // data lane -> application: this lane's part of the bucket is up to date
  kLocalReady = 53,      // application or server's lanes -> control: memory is there
  kPeerSilent = 54,      // heartbeat lane -> control: wire::Silent
  kJoined = 55,          // control lane -> application: wire::View
  kStop = 56,            // application -> scheduler's control lane: wire::End, end the job so
  kTraining = 57,        // control lane -> data lanes: training starts, with initial values
  kLaneStalled = 58,     // data lane -> control: wire::Stalled, who is missing for what
  // application -> data lane: have the bucket's servers send their kOptimizerState
  kCollectOptimizerState = 59,
  kSwitchPlan = 60,  // application -> scheduler's control lane: wire::PlanAndModel to go over to
  kLaneHeld = 61,    // data lane -> control: no body; the lane touches no memory of the plan's
  kRecovered = 62,   // scheduler's control lane -> application: wire::Recovered
  // Within the scheduler's node; `iteration` numbers the records of a process, from 1.
  kJournal = 63,      // control lane -> application: wire::JournalRecord, to be written down
  kJournaled = 64,    // application -> control lane: no body; records up to this one are
  kLostProcess = 65,  // application -> scheduler's control lane: wire::LostProcess
  // application -> scheduler's control lane: no body; worker 0 is to write a snapshot, all workers
  // are to end training before the same iteration
  kAskSnapshot = 66,
  kStopTraining = 67,
  // Transport -> the lane that asked for it (Outbox::Route): no body; `from` was connected, and is
  // beyond reach.
  kConnectionLost = 68,
  kJobPhase = 69,  // scheduler's control lane -> application: wire::JobPhase
  kOverdue = 70,   // scheduler's heartbeat lane -> application: wire::Silent
  kCutOff = 71,  // scheduler's heartbeat lane -> control: wire::CutOff, when its state has changed
  // scheduler's control lane -> heartbeat lane: wire::Node, which asks to join, or whether it still
  // belongs to the job
  kRegistering = 72,
};

// `step` of a kPauseAt before whose iteration training ends, instead of going over to another plan.
inline constexpr uint32_t kStopThere = 1;

// "gradient", "heartbeat ack", ...: for logs. Unknown numbers get "kind N".
std::string KindName(MessageKind kind);
// Whether the kind may come from another node.
bool IsWireKind(MessageKind kind);

// Smaller goes first. Control goes before everything; data what PriorityOf says
// (proto/bucket.h): what a forward pass needs first overtakes the rest.
constexpr int64_t kControlPriority = -1;

struct Envelope {
  MessageKind kind = MessageKind::kUnknown;
  // The runtime fills `from` in when it sends.
  Address from;
  Address to;
  // The epoch of the sender's view; 0 before there is one. The first epoch of a job is drawn
  // at random, so that frames of another job are as foreign as those of an old view.
  uint64_t epoch = 0;
  int64_t iteration = 0;
  uint32_t bucket = 0;  // index of the layer (or of consecutive layers synchronized as one)
  uint32_t chunk = 0;
  // kReduce: see collectives/schedule.h; probes: their round; kReady, kStart, kPaused: the plan's
  // number.
  uint32_t step = 0;
  int64_t priority = kControlPriority;
  // Within a node only: when what the envelope tells happened. Not on the wire.
  Time happened{};
  // In the sender's node only; null: nobody wants to hear of it.
  std::shared_ptr<Departure> departure = nullptr;
  // kGradientReady, kGradient, kReplica: UpdateSettings, where the model's update rule is one of
  // torch.optim's. Part of the header on the wire, so a few hundred bytes at most.
  Payload settings = {};
  Payload body;
};

// An envelope with a Protobuf message as its body.
template <typename Message>
Envelope MakeEnvelope(MessageKind kind, const Address& to, const Message& message) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = to;
  envelope.body = Payload::FromString(message.SerializeAsString());
  return envelope;
}

}  // namespace poseidon
