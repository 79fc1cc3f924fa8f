#include "transport/membership/member.h"

#include <glog/logging.h>

#include <algorithm>

#include "core/text/utf8.h"

namespace poseidon {
namespace {

constexpr TimerId kRegisterTimer = 1;
constexpr TimerId kFollowTimer = 2;
// While a node waits for the scheduler, its name is looked up so rarely that a name server does not
// notice a thousand nodes.
constexpr Duration kLookUpPause = Seconds(5);
// While views come again and again: the scheduler that sends them gives up within seconds who does
// not answer.
constexpr Duration kViewLookUpPause = Seconds(1);
// From one look for what a name server has answered to the next: much less than a heartbeat's
// deadline, at which a scheduler gives up who does not answer it.
constexpr Duration kFollowInterval = Seconds(0.05);
// Until it is admitted: often enough that nobody waits for it, rarely enough that thousands of
// nodes do not load the scheduler.
constexpr Duration kRegisterInterval = Seconds(1);

// What a node that nobody answers is to look at, too, where the job has a key.
std::string AboutKey(const std::shared_ptr<const Job>& job) {
  const bool has_key = job != nullptr && job->security().mode() == Security::CURVE;
  return has_key ? " Has it the same security.key_file?" : "";
}

// Is there until a registration has left this node.
struct WaitingRegistration : Departure {
  void Left(Time) override {}
};

Address SchedulerControl() { return {{Role::kScheduler, 0}, kControlLane}; }

}  // namespace

NodeId IdOf(const wire::Node& node) { return {static_cast<Role>(node.role()), node.rank()}; }

std::string Describe(const wire::Node& node) {
  std::string text = IdOf(node).ToString();
  if (!node.host().empty())
    text += " (" + node.host() + ", process " + std::to_string(node.pid()) + ")";
  return text;
}

wire::Node FindNode(const wire::View& view, const NodeId& id) {
  for (const wire::Node& node : view.nodes()) {
    if (IdOf(node) == id) return node;
  }
  wire::Node unknown;
  unknown.set_role(static_cast<uint32_t>(id.role));
  unknown.set_rank(id.rank);
  return unknown;
}

wire::End MakeEnd(ExitCode code, const std::string& reason) {
  wire::End end;
  end.set_exit_code(static_cast<int>(code));
  // The wire's texts are UTF-8; a reason may quote a file.
  end.set_reason(Printable(reason));
  return end;
}

std::optional<Error> FailureIn(const Envelope& envelope) {
  if (envelope.kind != MessageKind::kEnd && envelope.kind != MessageKind::kFailed) return {};
  wire::End end;
  if (!end.ParseFromString(envelope.body.ToString()) || end.exit_code() == 0) return {};
  return Error(static_cast<ExitCode>(end.exit_code()), end.reason());
}

void Member::SetSchedulerRoutes(Outbox& outbox) const {
  outbox.routes.push_back({.to = SchedulerControl(),
                           .endpoint = options_.scheduler_control_endpoint,
                           .lost_after = options_.heartbeat.allowed_silence(),
                           .tells_loss = true});
  outbox.routes.push_back({.to = {SchedulerControl().node, kHeartbeatLane},
                           .endpoint = options_.scheduler_heartbeat_endpoint,
                           .lost_after = options_.heartbeat.reconnect_after()});
}

void Member::LookUpScheduler(Outbox& outbox) {
  if (options_.scheduler_address == nullptr) return;
  last_look_up_ = outbox.now;
  options_.scheduler_address->LookUp();
  outbox.SetTimer(kFollowTimer, kFollowInterval);
}

void Member::FollowScheduler(Outbox& outbox) {
  SchedulerAddress* const address = options_.scheduler_address.get();
  if (address->is_looking_up()) return outbox.SetTimer(kFollowTimer, kFollowInterval);
  if (!address->TakeChange()) return;
  options_.scheduler_control_endpoint = address->Endpoint(kControlLane);
  options_.scheduler_heartbeat_endpoint = address->Endpoint(kHeartbeatLane);
  LOG(INFO) << "the scheduler at " << options_.scheduler << " has another address now, "
            << options_.scheduler_control_endpoint;
  SetSchedulerRoutes(outbox);
  if (waits_for_scheduler()) return SendRegister(outbox);
  TellJoined(outbox);  // what the application said when it last heard that has gone elsewhere
}

void Member::Start(Outbox& outbox) {
  SetSchedulerRoutes(outbox);
  last_answer_ = outbox.now;
  SendRegister(outbox);
}

void Member::SendRegister(Outbox& outbox) {
  wire::Register request;
  wire::Node* node = request.mutable_node();
  node->set_role(static_cast<uint32_t>(options_.role));
  node->set_rank(options_.wanted_rank);
  node->set_host(options_.host);
  node->set_pid(options_.pid);
  for (const std::string& endpoint : options_.endpoints) node->add_endpoints(endpoint);
  request.set_incarnation(options_.incarnation);
  request.set_job_fingerprint(options_.job_fingerprint);
  if (options_.job != nullptr) *request.mutable_job() = *options_.job;
  request.set_replaces(options_.replaces);
  request.set_base(base_);
  request.set_build(options_.build);
  Envelope envelope = MakeEnvelope(MessageKind::kRegister, SchedulerControl(), request);
  envelope.departure = std::make_shared<WaitingRegistration>();
  registration_ = envelope.departure;
  outbox.Send(std::move(envelope));
  SetRegisterTimer(outbox);
}

void Member::SetRegisterTimer(Outbox& outbox) const {
  // To the scheduler a node that is gathered is alive as long as it repeats its registration, which
  // then stands for a heartbeat. More often would do harm: each is answered with the view, and
  // views of tens of thousands of nodes, to as many, take minutes to leave.
  const Duration interval = options_.heartbeat.interval;
  outbox.SetTimer(kRegisterTimer, admitted_ ? interval : std::min(kRegisterInterval, interval));
}

void Member::OnTimer(TimerId timer, Outbox& outbox) {
  if (timer == kFollowTimer && !ended_) return FollowScheduler(outbox);
  if (timer != kRegisterTimer || !waits_for_scheduler()) return;
  // Until it is admitted a node waits for a scheduler that may not be started yet; afterwards for
  // one that answers every registration.
  Duration allowed = admitted_ ? options_.heartbeat.allowed_silence() : options_.join_deadline;
  // Another scheduler may take the place of one that died.
  if (admitted_ && options_.scheduler_deadline) allowed = *options_.scheduler_deadline;
  if (outbox.now - last_answer_ > allowed) return GiveUpWaiting(allowed, outbox);
  WarnOfSilence(outbox.now);
  const bool is_silent = outbox.now - last_answer_ >= kLookUpPause;
  if (is_silent && outbox.now - last_look_up_ >= kLookUpPause) LookUpScheduler(outbox);
  // While the last one waits for a connection another is of no use: a scheduler that comes would
  // answer each of them with all it has to say.
  if (!registration_.expired()) return SetRegisterTimer(outbox);
  SendRegister(outbox);
}

void Member::GiveUpWaiting(Duration waited, Outbox& outbox) {
  const std::string where = "the scheduler at " + options_.scheduler;
  const std::string seconds = std::to_string(static_cast<int>(ToSeconds(waited))) + " s";
  if (orphaned_) {
    return End(MakeEnd(ExitCode::kPeerLost, "lost " + where + ": no heartbeat, and for " + seconds +
                                                " no answer to whether this node still belongs to "
                                                "the job"),
               outbox);
  }
  if (admitted_) {
    return End(MakeEnd(ExitCode::kPeerLost, where + " has been silent for " + seconds +
                                                " while the job was gathering its nodes"),
               outbox);
  }
  End(MakeEnd(ExitCode::kDeadlineExceeded,
              where + " did not answer within " + seconds +
                  "; is it running, and does the config's cluster.scheduler_host name it?" +
                  AboutKey(options_.job)),
      outbox);
}

void Member::OnConnectionLost(const Envelope& envelope, Outbox& outbox) {
  if (envelope.from != SchedulerControl()) return;
  if (joined_) return TellJoined(outbox);  // what the application said last may have gone with it
  // From its admission on a node counts itself since when it has heard nothing; and another
  // scheduler may take the place of one that died.
  if (admitted_ || options_.scheduler_deadline) return;
  const Duration silence = options_.heartbeat.allowed_silence();
  End(MakeEnd(
          ExitCode::kPeerLost,
          "lost the scheduler at " + options_.scheduler +
              ": it was there and has not answered, and for " +
              std::to_string(static_cast<int>(ToSeconds(silence))) +
              " s its machine has confirmed nothing that this node sent; is the network between "
              "them whole?"),
      outbox);
}

void Member::WarnOfSilence(Time now) {
  if (options_.shared != nullptr) return;
  const Duration waited = now - last_answer_;
  if (admitted_ || waited < next_warning_) return;
  next_warning_ *= 2;
  LOG(WARNING) << "no answer from the scheduler at " << options_.scheduler << " for "
               << static_cast<int>(ToSeconds(waited))
               << " s; is it running, and does cluster.scheduler_host name its machine?"
               << AboutKey(options_.job) << " Asking for "
               << static_cast<int>(ToSeconds(options_.join_deadline - waited)) << " s more";
}

bool Member::FromScheduler(const Envelope& envelope) const {
  return envelope.from.node.role == Role::kScheduler;
}

bool Member::FromOwnScheduler(const Envelope& envelope) const {
  return joined_ && FromScheduler(envelope) && envelope.epoch == epoch_;
}

void Member::StartLanes(int lanes, Outbox& outbox) const {
  for (int lane = 0; lane < lanes; ++lane) {
    Envelope envelope;
    envelope.kind = MessageKind::kTraining;
    envelope.to = Here(kFirstDataLane + lane);
    envelope.epoch = epoch_;
    outbox.Send(std::move(envelope));
  }
}

void Member::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (ended_) return;
  switch (envelope.kind) {
    case MessageKind::kView:
      return OnViewMessage(envelope, outbox);
    case MessageKind::kRefused:
    case MessageKind::kEnd:
      return OnEnd(envelope, outbox);
    case MessageKind::kPeerSilent:
      return OnSilentScheduler(envelope, outbox);
    case MessageKind::kConnectionLost:
      return OnConnectionLost(envelope, outbox);
    case MessageKind::kLaneStalled: {
      Envelope forward = ToScheduler(MessageKind::kStalled);
      forward.body = envelope.body;
      outbox.Send(std::move(forward));
      return;
    }
    default:
      return;
  }
}

void Member::OnViewMessage(const Envelope& envelope, Outbox& outbox) {
  if (!FromScheduler(envelope)) return;
  // What comes before the epoch is for this node alone.
  SharedMessages* const shared = envelope.epoch == 0 ? nullptr : options_.shared.get();
  if (const auto view = ParseView(envelope.body, shared)) OnView(*view, outbox);
}

void Member::OnEnd(const Envelope& envelope, Outbox& outbox) {
  // Before there is a view both have epoch 0.
  const bool refused = envelope.kind == MessageKind::kRefused && (!joined_ || orphaned_);
  if (!FromScheduler(envelope) || (envelope.epoch != epoch_ && !refused)) return;
  wire::End end;
  if (end.ParseFromString(envelope.body.ToString())) End(end, outbox);
}

void Member::OnSilentScheduler(const Envelope& envelope, Outbox& outbox) {
  wire::Silent silent;
  if (!silent.ParseFromString(envelope.body.ToString())) return;
  if (options_.scheduler_deadline) {
    // Perhaps the job has gone on without this node, which was stopped or cut off.
    orphaned_ = true;
    last_answer_ = outbox.now;
    return SendRegister(outbox);
  }
  End(MakeEnd(ExitCode::kPeerLost,
              "lost the scheduler at " + options_.scheduler + ": no heartbeat for " +
                  std::to_string(static_cast<int>(silent.silent_seconds(0))) + " s"),
      outbox);
}

void Member::OnView(const ViewAndRoutes& answer, Outbox& outbox) {
  const wire::View& view = answer.view;
  // It may be of another scheduler, whom this node has to answer, and who repeats it until then.
  if (joined_ && outbox.now - last_look_up_ >= kViewLookUpPause) LookUpScheduler(outbox);
  if (joined_ && !orphaned_ && !IsLater(view)) return;
  last_answer_ = outbox.now;
  admitted_ = true;
  if (view.your_rank() >= 0) rank_ = view.your_rank();
  // Others are still missing, or this is for all and the answer to the registration was lost: the
  // answer to the next one says both.
  if (view.epoch() == 0 || rank_ < 0) return;
  if (joined_ && view.epoch() != epoch_ && !IsLater(view)) return;
  joined_ = true;
  orphaned_ = false;
  epoch_ = view.epoch();
  base_ = view.base();
  outbox.identity = self();
  outbox.CancelTimer(kRegisterTimer);
  if (options_.shared != nullptr) {
    outbox.shared_routes = answer.routes;
  } else {
    for (const Outbox::Route& route : *answer.routes) {
      if (route.to.node != self()) outbox.routes.push_back(route);
    }
  }
  outbox.Attach(kHeartbeatLane, std::make_unique<HeartbeatSender>(options_.heartbeat, epoch_));
  TellJoined(outbox);
}

void Member::TellJoined(Outbox& outbox) const {
  wire::View joined;
  joined.set_epoch(epoch_);
  joined.set_your_rank(rank_);
  outbox.Send(MakeEnvelope(MessageKind::kJoined, Here(kApplicationLane), joined));
}

bool Member::IsLater(const wire::View& view) const {
  return view.epoch() != 0 && view.base() == base_ && view.epoch() - base_ > epoch_ - base_;
}

Envelope Member::ToScheduler(MessageKind kind) const {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = SchedulerControl();
  envelope.epoch = epoch_;
  return envelope;
}

void Member::End(const wire::End& end, Outbox& outbox) {
  if (ended_) return;
  ended_ = true;
  outbox.CancelTimer(kRegisterTimer);
  outbox.Send(MakeEnvelope(MessageKind::kEnd, Here(kApplicationLane), end));
}

}  // namespace poseidon
