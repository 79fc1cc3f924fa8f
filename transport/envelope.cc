#include "transport/envelope.h"

#include <array>

namespace poseidon {
namespace {

struct Name {
  MessageKind kind;
  const char* name;
};

constexpr std::array kNames = {
    Name{MessageKind::kRegister, "register"},
    Name{MessageKind::kView, "view"},
    Name{MessageKind::kRefused, "refused"},
    Name{MessageKind::kDeclareModel, "declare model"},
    Name{MessageKind::kPlan, "plan"},
    Name{MessageKind::kReady, "ready"},
    Name{MessageKind::kStart, "start"},
    Name{MessageKind::kProgress, "progress"},
    Name{MessageKind::kFinished, "finished"},
    Name{MessageKind::kFailed, "failed"},
    Name{MessageKind::kStalled, "stalled"},
    Name{MessageKind::kEnd, "end"},
    Name{MessageKind::kLayerTimes, "layer times"},
    Name{MessageKind::kPauseRequest, "pause request"},
    Name{MessageKind::kPauseOffer, "pause offer"},
    Name{MessageKind::kPauseAt, "pause at"},
    Name{MessageKind::kPaused, "paused"},
    Name{MessageKind::kHeartbeat, "heartbeat"},
    Name{MessageKind::kHeartbeatAck, "heartbeat ack"},
    Name{MessageKind::kInitialValues, "initial values"},
    Name{MessageKind::kGradient, "gradient"},
    Name{MessageKind::kValues, "values"},
    Name{MessageKind::kFactors, "factors"},
    Name{MessageKind::kReduce, "reduce"},
    Name{MessageKind::kGradientSum, "gradient sum"},
    Name{MessageKind::kInitialOptimizerState, "initial optimizer state"},
    Name{MessageKind::kFetchOptimizerState, "fetch optimizer state"},
    Name{MessageKind::kOptimizerState, "optimizer state"},
    Name{MessageKind::kReplica, "replica"},
    Name{MessageKind::kReplicated, "replicated"},
    Name{MessageKind::kProbe, "probe"},
    Name{MessageKind::kProbeEcho, "probe echo"},
    Name{MessageKind::kLinkReport, "link report"},
    Name{MessageKind::kNotice, "notice"},
    Name{MessageKind::kWriteSnapshot, "write snapshot"},
    Name{MessageKind::kLeave, "leave"},
    Name{MessageKind::kHold, "hold"},
    Name{MessageKind::kHoldings, "holdings"},
    Name{MessageKind::kStatistics, "statistics"},
    Name{MessageKind::kGradientReady, "gradient ready"},
    Name{MessageKind::kPublishInitial, "publish initial values"},
    Name{MessageKind::kBucketFresh, "bucket fresh"},
    Name{MessageKind::kLocalReady, "local ready"},
    Name{MessageKind::kPeerSilent, "peer silent"},
    Name{MessageKind::kJoined, "joined"},
    Name{MessageKind::kStop, "stop"},
    Name{MessageKind::kTraining, "training"},
    Name{MessageKind::kLaneStalled, "lane stalled"},
    Name{MessageKind::kCollectOptimizerState, "collect optimizer state"},
    Name{MessageKind::kSwitchPlan, "switch plan"},
    Name{MessageKind::kLaneHeld, "lane held"},
    Name{MessageKind::kRecovered, "recovered"},
    Name{MessageKind::kJournal, "journal"},
    Name{MessageKind::kJournaled, "journaled"},
    Name{MessageKind::kLostProcess, "lost process"},
    Name{MessageKind::kAskSnapshot, "ask for a snapshot"},
    Name{MessageKind::kStopTraining, "stop training"},
    Name{MessageKind::kConnectionLost, "connection lost"},
    Name{MessageKind::kJobPhase, "job phase"},
    Name{MessageKind::kOverdue, "overdue"},
    Name{MessageKind::kCutOff, "cut off"},
    Name{MessageKind::kRegistering, "registering"},
};

constexpr bool AllDiffer() {
  for (size_t i = 0; i < kNames.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (kNames[i].kind == kNames[j].kind) return false;
    }
  }
  return true;
}
static_assert(AllDiffer(), "a number means two kinds");

}  // namespace

std::string KindName(MessageKind kind) {
  for (const Name& entry : kNames) {
    if (entry.kind == kind) return entry.name;
  }
  return "kind " + std::to_string(static_cast<int>(kind));
}

bool IsWireKind(MessageKind kind) {
  if (kind >= MessageKind::kGradientReady) return false;
  for (const Name& entry : kNames) {
    if (entry.kind == kind) return true;
  }
  return false;
}

}  // namespace poseidon
