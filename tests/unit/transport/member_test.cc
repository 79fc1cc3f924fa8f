// The membership protocol's halves, call by call. That they fit together in every order of events
// is tests/simulation/membership_test.cc.
#include "transport/membership/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace poseidon {
namespace {

constexpr uint64_t kEpoch = 5;
constexpr Address kSchedulerControl{{Role::kScheduler, 0}, kControlLane};

MemberOptions Options() {
  MemberOptions options;
  options.role = Role::kWorker;
  options.host = "here";
  options.pid = 3;
  options.endpoints = {"control", "heartbeat", "data"};
  options.scheduler = "tcp://there:9700";
  options.scheduler_control_endpoint = "tcp://there:9700";
  options.scheduler_heartbeat_endpoint = "tcp://there:9701";
  options.incarnation = 11;
  options.job_fingerprint = 12;
  options.build = "1.2.0+aa";
  return options;
}

// Two workers; the receiver is the second.
wire::View CompleteView() {
  wire::View view;
  view.set_epoch(kEpoch);
  view.set_your_rank(1);
  for (int rank = 0; rank < 2; ++rank) {
    wire::Node* node = view.add_nodes();
    node->set_role(static_cast<uint32_t>(Role::kWorker));
    node->set_rank(rank);
    for (const char* lane : {"/control", "/heartbeat", "/data"}) {
      node->add_endpoints(std::to_string(rank) + lane);
    }
  }
  return view;
}

template <typename Message>
Envelope FromScheduler(MessageKind kind, const Message& message, uint64_t epoch) {
  Envelope envelope = MakeEnvelope(kind, Here(kControlLane), message);
  envelope.from = kSchedulerControl;
  envelope.epoch = epoch;
  return envelope;
}

class MemberTest : public testing::Test {
 protected:
  MemberTest() { member_.Start(outbox_); }

  void Receive(const Envelope& envelope) {
    outbox_.Clear();
    member_.OnMessage(envelope, outbox_);
  }
  // The job's end that the application was told of in the last call; empty if it was not.
  std::string End() const {
    for (const Envelope& envelope : outbox_.messages) {
      if (envelope.kind != MessageKind::kEnd) continue;
      EXPECT_EQ(envelope.to, Here(kApplicationLane));
      wire::End end;
      EXPECT_TRUE(end.ParseFromString(envelope.body.ToString()));
      return std::to_string(end.exit_code()) + " " + end.reason();
    }
    return "";
  }

  Outbox outbox_;
  Member member_{Options()};
};

TEST_F(MemberTest, RegistersAgainAndAgain) {
  ASSERT_EQ(outbox_.routes.size(), 2u);
  EXPECT_EQ(outbox_.routes[0].endpoint, "tcp://there:9700");
  EXPECT_EQ(outbox_.routes[1].endpoint, "tcp://there:9701");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(outbox_.messages.size(), 1u);
    EXPECT_EQ(outbox_.messages[0].to, kSchedulerControl);
    wire::Register request;
    ASSERT_TRUE(request.ParseFromString(outbox_.messages[0].body.ToString()));
    EXPECT_EQ(Describe(request.node()), "worker (no rank yet) (here, process 3)");
    EXPECT_EQ(request.incarnation(), 11u);
    EXPECT_EQ(request.job_fingerprint(), 12u);
    EXPECT_EQ(request.build(), "1.2.0+aa");
    EXPECT_EQ(request.node().endpoints_size(), 3);
    ASSERT_EQ(outbox_.timers.size(), 1u);
    const Outbox::Timer timer = outbox_.timers[0];
    outbox_.Clear();
    outbox_.now += *timer.delay;
    member_.OnTimer(timer.id, outbox_);
  }
}

// It may wait for a scheduler that is not there yet, which would find all that has been sent.
TEST_F(MemberTest, DoesNotRegisterAgainWhileItsRegistrationWaits) {
  const auto fire_timer = [&] {
    const Outbox::Timer timer = outbox_.timers.back();
    outbox_.Clear();
    outbox_.now += *timer.delay;
    member_.OnTimer(timer.id, outbox_);
    return outbox_.messages.size();
  };
  {
    const Envelope waits = outbox_.messages.at(0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(fire_timer(), 0U);
  }
  EXPECT_EQ(fire_timer(), 1U) << "what has left may be lost with its connection";
}

// A member whose scheduler's name leads to `address` whenever it is looked up; runs its timers
// until it goes there.
class FollowingMember {
 public:
  // As it is looked up the first time, the second, ...; the last one from then on.
  explicit FollowingMember(std::vector<std::string> addresses)
      : member_(WithName(std::move(addresses))) {
    outbox_.now = Time(Seconds(1000));
    member_.Start(outbox_);
    outbox_.routes.clear();
  }

  Member& member() { return member_; }
  Outbox& outbox() { return outbox_; }
  // Those of the scheduler, as they were set then; none if they stay as they are.
  std::vector<Outbox::Route> RunTimers() {
    for (int fired = 0; outbox_.routes.empty() && !outbox_.timers.empty() && fired < 500; ++fired) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::vector<Outbox::Timer> timers = std::exchange(outbox_.timers, {});
      for (const Outbox::Timer& timer : timers) {
        if (!timer.delay) continue;
        outbox_.now += *timer.delay;
        member_.OnTimer(timer.id, outbox_);
      }
    }
    return std::exchange(outbox_.routes, {});
  }

 private:
  static MemberOptions WithName(std::vector<std::string> addresses) {
    Cluster cluster;
    cluster.set_scheduler_host("there");
    cluster.set_scheduler_port(9700);
    MemberOptions options = Options();
    options.join_deadline = Seconds(1e6);
    options.scheduler_address = std::make_shared<SchedulerAddress>(
        cluster, "10.0.0.1",
        [addresses = std::move(addresses),
         asked = std::make_shared<std::atomic<size_t>>()](const std::string&) {
          return std::vector{addresses[std::min((*asked)++, addresses.size() - 1)]};
        });
    return options;
  }

  Member member_;
  Outbox outbox_;
};

void ExpectRoutesTo(const std::string& address, const std::vector<Outbox::Route>& routes) {
  ASSERT_EQ(routes.size(), 2U);
  EXPECT_EQ(routes[0].to, kSchedulerControl);
  EXPECT_EQ(routes[0].endpoint, "tcp://" + address + ":9700");
  EXPECT_TRUE(routes[0].lost_after) << "as of the first address";
  EXPECT_EQ(routes[1].to.lane, kHeartbeatLane);
  EXPECT_EQ(routes[1].endpoint, "tcp://" + address + ":9701");
}

TEST_F(MemberTest, FollowsTheSchedulersNameWhileItIsSilent) {
  FollowingMember following({"10.0.0.1", "10.0.0.2"});
  ExpectRoutesTo("10.0.0.2", following.RunTimers());
  EXPECT_TRUE(following.RunTimers().empty()) << "it is there";
}

TEST_F(MemberTest, FollowsTheSchedulersNameWhenAnotherOneHasTakenItsPlace) {
  FollowingMember following({"10.0.0.2"});
  wire::View view = CompleteView();
  view.set_base(kEpoch);
  following.member().OnMessage(FromScheduler(MessageKind::kView, view, kEpoch), following.outbox());
  following.outbox().Clear();
  EXPECT_TRUE(following.RunTimers().empty()) << "the scheduler is not silent";
  view.set_epoch(kEpoch + 1);
  following.member().OnMessage(FromScheduler(MessageKind::kView, view, kEpoch + 1),
                               following.outbox());
  following.outbox().routes.clear();
  following.outbox().messages.clear();
  ExpectRoutesTo("10.0.0.2", following.RunTimers());
  ASSERT_EQ(following.outbox().messages.size(), 1U);
  EXPECT_EQ(following.outbox().messages[0].kind, MessageKind::kJoined) << "to be said again";
}

// The scheduler repeats its view until all have answered, and a name server may learn late.
TEST_F(MemberTest, LooksForTheSchedulerAsLongAsViewsAreRepeated) {
  FollowingMember following({"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"});
  wire::View view = CompleteView();
  view.set_base(kEpoch);
  following.member().OnMessage(FromScheduler(MessageKind::kView, view, kEpoch), following.outbox());
  view.set_epoch(kEpoch + 1);
  std::vector<Outbox::Route> routes;
  int views = 0;
  for (; routes.empty() && views < 20; ++views) {
    following.outbox().Clear();
    following.outbox().now += Seconds(1);
    following.member().OnMessage(FromScheduler(MessageKind::kView, view, kEpoch + 1),
                                 following.outbox());
    following.outbox().routes.clear();
    routes = following.RunTimers();
  }
  ExpectRoutesTo("10.0.0.2", routes);
  EXPECT_EQ(views, 4);
}

TEST_F(MemberTest, JoinsWithTheCompleteViewOnce) {
  wire::View incomplete;
  incomplete.set_your_rank(1);
  Receive(FromScheduler(MessageKind::kView, incomplete, 0));
  EXPECT_FALSE(member_.joined());
  Receive(FromScheduler(MessageKind::kView, CompleteView(), kEpoch));
  EXPECT_TRUE(member_.joined());
  EXPECT_EQ(member_.self().ToString(), "worker 1");
  EXPECT_EQ(outbox_.identity, member_.self());
  ASSERT_EQ(outbox_.routes.size(), 1u);  // to the other's data lane
  EXPECT_EQ(outbox_.routes[0].endpoint, "0/data");
  EXPECT_EQ(outbox_.routes[0].to, (Address{{Role::kWorker, 0}, kFirstDataLane}));
  ASSERT_EQ(outbox_.attachments.size(), 1u);
  EXPECT_EQ(outbox_.attachments[0].lane, kHeartbeatLane);
  ASSERT_EQ(outbox_.messages.size(), 1u);
  EXPECT_EQ(outbox_.messages[0].kind, MessageKind::kJoined);
  Receive(FromScheduler(MessageKind::kView, CompleteView(), kEpoch));
  EXPECT_TRUE(outbox_.messages.empty());
}

TEST_F(MemberTest, EndsOnceAndOnlyOnTheSchedulersWord) {
  const wire::End end = MakeEnd(ExitCode::kPeerLost, "lost worker 0");
  Envelope stranger = FromScheduler(MessageKind::kEnd, end, 0);
  stranger.from.node = {Role::kWorker, 0};
  Receive(stranger);
  EXPECT_EQ(End(), "");
  Receive(FromScheduler(MessageKind::kView, CompleteView(), kEpoch));
  Receive(FromScheduler(MessageKind::kEnd, end, kEpoch + 1));
  EXPECT_EQ(End(), "");
  Receive(FromScheduler(MessageKind::kEnd, end, kEpoch));
  EXPECT_EQ(End(), "3 lost worker 0");
  Receive(FromScheduler(MessageKind::kEnd, end, kEpoch));
  EXPECT_EQ(End(), "");
  EXPECT_TRUE(member_.ended());
}

TEST_F(MemberTest, AReasonThatQuotesBytesArrives) {
  Receive(FromScheduler(MessageKind::kView, CompleteView(), kEpoch));
  Receive(FromScheduler(MessageKind::kEnd, MakeEnd(ExitCode::kDataError, "key \xff\x1b"), kEpoch));
  EXPECT_EQ(End(), "6 key \\xff\\x1b");
}

TEST_F(MemberTest, UnreadableBodiesAreIgnored) {
  for (const MessageKind kind : {MessageKind::kView, MessageKind::kEnd, MessageKind::kRefused}) {
    Envelope envelope = FromScheduler(kind, wire::End(), 0);
    envelope.body = Payload::FromString("\xff\xff\xff");
    Receive(envelope);
    EXPECT_TRUE(outbox_.messages.empty());
    EXPECT_FALSE(member_.ended());
  }
}

TEST_F(MemberTest, ASilentSchedulerEndsIt) {
  wire::Silent silent;
  silent.add_nodes();
  silent.add_silent_seconds(9.3);
  Receive(MakeEnvelope(MessageKind::kPeerSilent, Here(kControlLane), silent));
  EXPECT_EQ(End(), "3 lost the scheduler at tcp://there:9700: no heartbeat for 9 s");
}

TEST_F(MemberTest, ASchedulerThatWasThereAndIsBeyondReachEndsIt) {
  EXPECT_EQ(outbox_.routes[0].lost_after, HeartbeatTiming().allowed_silence());
  EXPECT_TRUE(outbox_.routes[0].tells_loss);
  EXPECT_EQ(outbox_.routes[1].lost_after, HeartbeatTiming().reconnect_after());
  Envelope lost;
  lost.kind = MessageKind::kConnectionLost;
  lost.from = kSchedulerControl;
  Member answered(Options());
  answered.Start(outbox_);
  wire::View incomplete;
  incomplete.set_your_rank(1);
  answered.OnMessage(FromScheduler(MessageKind::kView, incomplete, 0), outbox_);
  answered.OnMessage(lost, outbox_);
  EXPECT_FALSE(answered.ended()) << "it counts itself since when it has heard nothing";
  MemberOptions options = Options();
  options.scheduler_deadline = Seconds(300);
  Member patient(options);
  patient.Start(outbox_);
  patient.OnMessage(lost, outbox_);
  EXPECT_FALSE(patient.ended()) << "another scheduler may come";
  Member joined(Options());
  joined.Start(outbox_);
  joined.OnMessage(FromScheduler(MessageKind::kView, CompleteView(), kEpoch), outbox_);
  outbox_.Clear();
  joined.OnMessage(lost, outbox_);
  ASSERT_EQ(outbox_.messages.size(), 1u) << "the application is to say again what has gone with it";
  EXPECT_EQ(outbox_.messages[0].kind, MessageKind::kJoined);
  Receive(lost);
  EXPECT_THAT(End(),
              testing::StartsWith("3 lost the scheduler at tcp://there:9700: it was there and "
                                  "has not answered, and for 9 s its machine has confirmed "
                                  "nothing"));
}

// When a member that the scheduler has admitted, and that then hears nothing, ends.
Duration PatienceOnceAdmitted(const MemberOptions& options) {
  Member member(options);
  Outbox outbox;
  member.Start(outbox);
  wire::View incomplete;
  incomplete.set_your_rank(1);
  member.OnMessage(FromScheduler(MessageKind::kView, incomplete, 0), outbox);
  while (!member.ended() && !outbox.timers.empty()) {
    const Outbox::Timer timer = outbox.timers.back();
    outbox.Clear();
    outbox.now += *timer.delay;
    member.OnTimer(timer.id, outbox);
    if (member.ended()) break;
  }
  EXPECT_TRUE(member.ended());
  return outbox.now;
}

TEST(GatheredMemberTest, WaitsForAnotherSchedulerWhereOneMayCome) {
  MemberOptions options = Options();
  const Duration alone = PatienceOnceAdmitted(options);
  EXPECT_GT(alone, options.heartbeat.allowed_silence());
  options.scheduler_deadline = Seconds(300);
  EXPECT_GT(PatienceOnceAdmitted(options), Seconds(300));
  EXPECT_LT(alone, Seconds(20));
}

TEST_F(MemberTest, SaysOfWhichJobItIsWhenItsSchedulerIsSilent) {
  MemberOptions options = Options();
  options.scheduler_deadline = Seconds(300);
  Member member(options);
  member.Start(outbox_);
  wire::View view = CompleteView();
  view.set_base(kEpoch);
  member.OnMessage(FromScheduler(MessageKind::kView, view, kEpoch), outbox_);
  outbox_.Clear();
  wire::Silent silent;
  silent.add_nodes();
  silent.add_silent_seconds(9.3);
  member.OnMessage(MakeEnvelope(MessageKind::kPeerSilent, Here(kControlLane), silent), outbox_);
  wire::Register request;
  ASSERT_EQ(outbox_.messages.size(), 1u);
  ASSERT_TRUE(request.ParseFromString(outbox_.messages[0].body.ToString()));
  EXPECT_EQ(request.base(), kEpoch);
  // A scheduler with a later view of the job is its own from then on.
  view.set_epoch(kEpoch + (uint64_t{1} << 48));
  member.OnMessage(FromScheduler(MessageKind::kView, view, view.epoch()), outbox_);
  EXPECT_EQ(member.epoch(), view.epoch());
  EXPECT_FALSE(member.ended());
}

// What it was told by the scheduler before was lost. The next one does not know its view.
TEST_F(MemberTest, HearsFromTheNextSchedulerThatItHasLeft) {
  MemberOptions options = Options();
  options.scheduler_deadline = Seconds(300);
  Member member(options);
  member.Start(outbox_);
  member.OnMessage(FromScheduler(MessageKind::kView, CompleteView(), kEpoch), outbox_);
  wire::Silent silent;
  silent.add_nodes();
  silent.add_silent_seconds(9.3);
  member.OnMessage(MakeEnvelope(MessageKind::kPeerSilent, Here(kControlLane), silent), outbox_);
  outbox_.Clear();
  const wire::End left = MakeEnd(ExitCode::kSuccess, "left the job");
  member.OnMessage(FromScheduler(MessageKind::kRefused, left, 0), outbox_);
  EXPECT_EQ(End(), "0 left the job");
}

TEST_F(MemberTest, ReportsStallsOfItsLanesToTheScheduler) {
  Receive(FromScheduler(MessageKind::kView, CompleteView(), kEpoch));
  wire::Stalled stalled;
  stalled.set_waiting_for("tea");
  Receive(MakeEnvelope(MessageKind::kLaneStalled, Here(kControlLane), stalled));
  ASSERT_EQ(outbox_.messages.size(), 1u);
  EXPECT_EQ(outbox_.messages[0].kind, MessageKind::kStalled);
  EXPECT_EQ(outbox_.messages[0].to, kSchedulerControl);
  EXPECT_EQ(outbox_.messages[0].epoch, kEpoch);
  // That of another node is not passed on as if it were its own.
  Receive(MakeEnvelope(MessageKind::kStalled, Here(kControlLane), stalled));
  EXPECT_TRUE(outbox_.messages.empty());
}

TEST(MemberTextTest, DescribesNodes) {
  wire::View view = CompleteView();
  view.mutable_nodes(1)->set_host("node7");
  view.mutable_nodes(1)->set_pid(4711);
  EXPECT_EQ(Describe(FindNode(view, {Role::kWorker, 1})), "worker 1 (node7, process 4711)");
  EXPECT_EQ(Describe(FindNode(view, {Role::kServer, 8})), "server 8");
}

TEST(SharedMessagesTest, MembersOfASimulationGetTheSameRoutes) {
  MemberOptions options = Options();
  options.shared = std::make_shared<SharedMessages>();
  wire::View view = CompleteView();
  view.set_your_rank(-1);
  const Envelope to_all = FromScheduler(MessageKind::kView, view, kEpoch);
  std::vector<std::shared_ptr<const std::vector<Outbox::Route>>> routes;
  for (int rank = 0; rank < 2; ++rank) {
    wire::View own;
    own.set_your_rank(rank);
    Member member(options);
    Outbox outbox;
    member.Start(outbox);
    member.OnMessage(FromScheduler(MessageKind::kView, own, 0), outbox);
    EXPECT_FALSE(member.joined());
    outbox.Clear();
    member.OnMessage(to_all, outbox);
    EXPECT_TRUE(member.joined());
    EXPECT_TRUE(outbox.routes.empty());
    routes.push_back(outbox.shared_routes);
  }
  ASSERT_NE(routes[0], nullptr);
  EXPECT_EQ(routes[0], routes[1]);
  ASSERT_EQ(routes[0]->size(), 2u);
  EXPECT_EQ(routes[0]->at(1).to, (Address{{Role::kWorker, 1}, kFirstDataLane}));
  EXPECT_EQ(routes[0]->at(1).endpoint, "1/data");
}

TEST(SharedMessagesTest, MembersOfASimulationDoNotWarnOfASilentScheduler) {
  const auto said = [](const MemberOptions& options) {
    Member member(options);
    Outbox outbox;
    member.Start(outbox);
    testing::internal::CaptureStderr();
    while (outbox.now < Seconds(20)) {
      const Outbox::Timer timer = outbox.timers.back();
      outbox.Clear();
      outbox.now += *timer.delay;
      member.OnTimer(timer.id, outbox);
    }
    return testing::internal::GetCapturedStderr();
  };
  MemberOptions options = Options();
  EXPECT_THAT(said(options),
              testing::HasSubstr("no answer from the scheduler at tcp://there:9700 for 5 s"));
  options.shared = std::make_shared<SharedMessages>();
  EXPECT_EQ(said(options), "");
}

TEST(SharedMessagesTest, ParsesABodyOnceAndOthersForThemselves) {
  ParseCache<wire::View> cache;
  const Payload first = Payload::FromString(CompleteView().SerializeAsString());
  const auto parsed = cache.Parse(first);
  ASSERT_NE(parsed, nullptr);
  EXPECT_EQ(parsed->nodes_size(), 2);
  EXPECT_EQ(cache.Parse(first), parsed);
  const auto again = cache.Parse(Payload::FromString(wire::View().SerializeAsString()));
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->nodes_size(), 0);
  EXPECT_EQ(cache.Parse(Payload::FromString("no view")), nullptr);
  EXPECT_NE(cache.Parse(first), nullptr);
}

// A view of the same job after so many losses; another process has rank 0.
wire::View LaterView(uint64_t number) {
  wire::View view = CompleteView();
  view.set_base(kEpoch);
  view.set_epoch(kEpoch + (number << 32));
  view.mutable_nodes(0)->set_endpoints(kFirstDataLane, "another/data");
  return view;
}

TEST_F(MemberTest, GoesOverToALaterViewOfItsJobAndToNoOther) {
  wire::View first = CompleteView();
  first.set_base(kEpoch);
  Receive(FromScheduler(MessageKind::kView, first, kEpoch));
  const wire::View second = LaterView(2);
  Receive(FromScheduler(MessageKind::kView, second, second.epoch()));
  EXPECT_EQ(member_.epoch(), kEpoch + (2ULL << 32));
  EXPECT_EQ(member_.base(), kEpoch);
  EXPECT_THAT(outbox_.routes,
              testing::Contains(testing::Field(&Outbox::Route::endpoint, "another/data")));
  // An earlier one that was late, and one of another job.
  const wire::View earlier = LaterView(1);
  Receive(FromScheduler(MessageKind::kView, earlier, earlier.epoch()));
  wire::View foreign = LaterView(7);
  foreign.set_base(kEpoch + 1);
  Receive(FromScheduler(MessageKind::kView, foreign, foreign.epoch()));
  EXPECT_EQ(member_.epoch(), kEpoch + (2ULL << 32));
  EXPECT_TRUE(outbox_.routes.empty());
}

}  // namespace
}  // namespace poseidon
