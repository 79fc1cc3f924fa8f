#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "client/c_api/c_call.h"
#include "poseidon/poseidon.h"
#include "tests/free_endpoints.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

// Of `ranks` ranks; the texts must live as long as the options.
poseidon_communicator_options OptionsOf(int rank, const std::vector<const char*>& endpoints) {
  poseidon_communicator_options options{};
  options.rank = rank;
  options.ranks = static_cast<int>(endpoints.size());
  options.endpoints = endpoints.data();
  return options;
}

std::vector<const char*> Texts(const std::vector<std::string>& endpoints) {
  std::vector<const char*> texts;
  for (const std::string& endpoint : endpoints) texts.push_back(endpoint.c_str());
  return texts;
}

TEST(CInterface, RanksAddUpAndGather) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  const std::vector<const char*> texts = Texts(endpoints);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const poseidon_communicator_options options = OptionsOf(rank, texts);
      poseidon_communicator* all = nullptr;
      ASSERT_EQ(poseidon_communicator_create(&options, &all), 0) << poseidon_last_error();
      std::vector<float> floats(1000, static_cast<float>(rank));
      EXPECT_EQ(poseidon_communicator_all_reduce(all, floats.data(), 1000, nullptr), 0);
      EXPECT_EQ(floats, std::vector<float>(1000, 3));
      std::vector<float> blocks = {-1, -1, -1};
      blocks[rank] = static_cast<float>(rank);
      const int64_t counts[] = {1, 1, 1};
      EXPECT_EQ(poseidon_communicator_all_gather(all, blocks.data(), counts, nullptr), 0);
      EXPECT_EQ(blocks, (std::vector<float>{0, 1, 2}));
      EXPECT_EQ(poseidon_communicator_barrier(all), 0);
      poseidon_communicator_destroy(all);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CInterface, MistakesAreCodesWithASentence) {
  poseidon_session* session = nullptr;
  EXPECT_EQ(poseidon_session_create(nullptr, &session), 1);
  EXPECT_THAT(poseidon_last_error(), HasSubstr("null"));
  poseidon_session_options options{};
  EXPECT_EQ(poseidon_session_create(&options, &session), 2);
  EXPECT_THAT(poseidon_last_error(), HasSubstr("job config"));
  options.job_text = "cluster { workres: 2 }";
  EXPECT_EQ(poseidon_session_create(&options, &session), 2);
  EXPECT_THAT(poseidon_last_error(), HasSubstr("workres"));
  options.job_text = "cluster { workers: 2 servers: 1 }";
  options.allocate = [](void*, uint64_t) -> void* { return nullptr; };
  EXPECT_EQ(poseidon_session_create(&options, &session), 2);
  EXPECT_THAT(poseidon_last_error(), HasSubstr("of allocate and release one is a null pointer"));
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(poseidon_session_begin(nullptr), 1);
  EXPECT_THAT(poseidon_last_error(), HasSubstr("the handle is null"));
  EXPECT_EQ(poseidon_session_report_layer_times(nullptr, nullptr, nullptr, 0), 1);
  EXPECT_EQ(poseidon_session_wants_layer_times(nullptr), 0);
  int first = 0;
  int count = 0;
  EXPECT_EQ(poseidon_session_layers_sent_with(nullptr, 0, &first, &count), 1);
  EXPECT_EQ(poseidon_session_rank(nullptr), -1);
  EXPECT_EQ(poseidon_session_iteration(nullptr), -1);
  EXPECT_EQ(poseidon_session_recovers(nullptr), 0);
  EXPECT_EQ(poseidon_session_go_back(nullptr), 1);
  EXPECT_EQ(poseidon_session_sends_statistics(nullptr), 0);
  EXPECT_EQ(poseidon_session_awaits_statistics(nullptr), 0);
  EXPECT_EQ(poseidon_session_send_statistics(nullptr, nullptr, 0), 1);
  EXPECT_EQ(poseidon_session_await_statistics(nullptr, nullptr, 0), 1);
  poseidon_session_destroy(nullptr);

  poseidon_communicator* all = nullptr;
  poseidon_communicator_options ranks{};
  EXPECT_EQ(poseidon_communicator_create(&ranks, &all), 2);
  EXPECT_THAT(poseidon_last_error(), HasSubstr("endpoints"));
  const std::vector<std::string> endpoints = FreeEndpoints(1);
  const std::vector<const char*> texts = Texts(endpoints);
  ranks = OptionsOf(0, texts);
  ranks.deadline_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(poseidon_communicator_create(&ranks, &all), 2);
  ranks.deadline_seconds = 0;
  ranks.networks = 1;
  EXPECT_EQ(poseidon_communicator_create(&ranks, &all), 2);
  EXPECT_THAT(poseidon_last_error(), HasSubstr("allow"));
  const char* const network = "10.0.0.0/8";
  ranks.allow = &network;
  ASSERT_EQ(poseidon_communicator_create(&ranks, &all), 0) << poseidon_last_error();
  EXPECT_EQ(poseidon_communicator_all_reduce(all, nullptr, 3, nullptr), 2);
  float one = 1;
  EXPECT_EQ(poseidon_communicator_all_reduce(all, &one, -1, nullptr), 2);
  poseidon_collective_options collective{};
  collective.scheme = 9;
  EXPECT_EQ(poseidon_communicator_all_reduce(all, &one, 1, &collective), 2);
  EXPECT_EQ(poseidon_communicator_all_gather(all, &one, nullptr, nullptr), 2);
  poseidon_communicator_destroy(all);
}

TEST(CInterface, NullPointersHaveTheCodesOfTheHeader) {
  const std::vector<std::string> endpoints = FreeEndpoints(1);
  const std::vector<const char*> texts = Texts(endpoints);
  const poseidon_communicator_options ranks = OptionsOf(0, texts);
  poseidon_communicator* all = nullptr;
  ASSERT_EQ(poseidon_communicator_create(&ranks, &all), 0) << poseidon_last_error();
  poseidon_communicator* other = nullptr;
  const poseidon_session_options options{};
  poseidon_session* session = nullptr;
  float one = 1;
  const int64_t count = 1;
  struct Call {
    const char* what;
    int code;
    int expected;
  };
  const Call calls[] = {
      {"session_create: options", poseidon_session_create(nullptr, &session), 1},
      {"session_create: result", poseidon_session_create(&options, nullptr), 1},
      {"session_create: both", poseidon_session_create(nullptr, nullptr), 1},
      {"session_declare: handle", poseidon_session_declare(nullptr, nullptr, 0), 1},
      {"session_memory: handle", poseidon_session_memory(nullptr, 0, nullptr), 1},
      {"communicator_create: options", poseidon_communicator_create(nullptr, &other), 1},
      {"communicator_create: result", poseidon_communicator_create(&ranks, nullptr), 1},
      {"communicator_create: both", poseidon_communicator_create(nullptr, nullptr), 1},
      {"all_reduce: handle", poseidon_communicator_all_reduce(nullptr, &one, 1, nullptr), 1},
      {"all_reduce: floats", poseidon_communicator_all_reduce(all, nullptr, 1, nullptr), 2},
      {"all_reduce: no floats", poseidon_communicator_all_reduce(all, nullptr, 0, nullptr), 0},
      {"all_gather: handle", poseidon_communicator_all_gather(nullptr, &one, &count, nullptr), 1},
      {"all_gather: floats", poseidon_communicator_all_gather(all, nullptr, &count, nullptr), 2},
      {"all_gather: counts", poseidon_communicator_all_gather(all, &one, nullptr, nullptr), 2},
      {"barrier: handle", poseidon_communicator_barrier(nullptr), 1},
  };
  for (const Call& call : calls) EXPECT_EQ(call.code, call.expected) << call.what;
  poseidon_communicator_destroy(all);
}

TEST(CInterface, AWaitIsInterrupted) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  const std::vector<const char*> texts = Texts(endpoints);
  poseidon_communicator_options options = OptionsOf(0, texts);
  int asked = 0;
  options.context = &asked;
  options.interrupted = [](void* context) { return ++*static_cast<int*>(context) > 2 ? 1 : 0; };
  poseidon_communicator* all = nullptr;
  EXPECT_EQ(poseidon_communicator_create(&options, &all), 130);  // the other rank never comes
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(all, nullptr);
}

// A process that a data loader forks has the parent's handles, but none of its threads.
TEST(CInterface, AForkCanNeitherUseNorEndAHandle) {
  const std::vector<std::string> endpoints = FreeEndpoints(1);
  const std::vector<const char*> texts = Texts(endpoints);
  const poseidon_communicator_options options = OptionsOf(0, texts);
  poseidon_communicator* all = nullptr;
  ASSERT_EQ(poseidon_communicator_create(&options, &all), 0) << poseidon_last_error();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = poseidon_communicator_barrier(all) == 1 &&
                         std::string(poseidon_last_error()).find("fork") != std::string::npos;
    poseidon_communicator_destroy(all);
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(poseidon_communicator_barrier(all), 0);
  poseidon_communicator_destroy(all);
}

// Who initializes glog twice is ended by it.
TEST(CInterface, AProgramMaySetGlogUpAfterItsFirstHandle) {
  const std::vector<std::string> endpoints = FreeEndpoints(1);
  const std::vector<const char*> texts = Texts(endpoints);
  const poseidon_communicator_options options = OptionsOf(0, texts);
  const auto set_up_and_add = [&] {
    poseidon_communicator* all = nullptr;
    if (poseidon_communicator_create(&options, &all) != 0) return 1;
    google::InitGoogleLogging("program");
    float one = 1;
    return poseidon_communicator_all_reduce(all, &one, 1, nullptr);
  };
  EXPECT_EXIT(_exit(set_up_and_add()), testing::ExitedWithCode(0), "");
}

// Who says 0 there asks for information, though that is what the flag is anyway.
TEST(CInterface, TheEnvironmentMayChooseTheLogLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // each in a process that has not looked yet
  const auto level = [] {
    SetUpLog();
    return FLAGS_minloglevel;
  };
  setenv("GLOG_minloglevel", "0", 1);
  EXPECT_EXIT(_exit(level()), testing::ExitedWithCode(google::GLOG_INFO), "");
  unsetenv("GLOG_minloglevel");
  EXPECT_EXIT(_exit(level()), testing::ExitedWithCode(google::GLOG_WARNING), "");
}

// Whose thread_local objects are gone by then.
TEST(CInterface, AHandlerOfAtexitReadsTheLastErrorAndMakesCallsThatFail) {
  const auto ask_at_exit = [] {
    poseidon_session* session = nullptr;
    poseidon_session_options options{};
    options.job_text = "cluster { workres: 2 }";
    poseidon_session_create(&options, &session);
    static const std::string expected = poseidon_last_error();
    std::atexit([] {
      const bool same = !expected.empty() && poseidon_last_error() == expected;
      const bool fails = poseidon_session_begin(nullptr) == 1;
      const bool says = std::string(poseidon_last_error()).find("is null") != std::string::npos;
      _exit(same && fails && says ? 7 : 1);
    });
    std::exit(0);
  };
  EXPECT_EXIT(ask_at_exit(), testing::ExitedWithCode(7), "");
}

TEST(CInterface, AThreadsLastErrorIsItsOwn) {
  EXPECT_EQ(poseidon_session_begin(nullptr), 1);
  std::thread([] {
    EXPECT_STREQ(poseidon_last_error(), "");
    EXPECT_EQ(poseidon_session_create(nullptr, nullptr), 1);
  }).join();
  EXPECT_THAT(poseidon_last_error(), HasSubstr("the handle is null"));
}

TEST(CInterface, ALastErrorThatIsTooLongEndsBehindACharacter) {
  const std::string fits(4093, 'x');
  EXPECT_EQ(Failed(2, fits + "\u00e9" + "too much"), 2);
  EXPECT_EQ(poseidon_last_error(), fits + "\u00e9");
  Failed(2, fits + "x\u00e9" + "too much");
  EXPECT_EQ(poseidon_last_error(), fits + "x");
  Failed(2, "short");
  EXPECT_STREQ(poseidon_last_error(), "short");
}

struct Number {
  explicit Number(int first) : value(first) {}
  int value;
};

int ValueOf(const CHandle<Number>& handle) {
  return CGet(&handle, -1, [](const Number& number) { return number.value; });
}

TEST(CInterface, WhatAHandleAnswersIsAskedBetweenCalls) {
  CHandle<Number> handle(1);
  std::promise<void> entered;
  std::thread call([&] {
    handle.With([&](Number& number) {
      number.value = 2;  // while the call is going on, as a layer's memory is
      entered.set_value();
      EXPECT_EQ(ValueOf(handle), 2);  // from who asks whether it is interrupted
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      number.value = 3;
    });
  });
  entered.get_future().wait();
  EXPECT_EQ(ValueOf(handle), 3);
  call.join();
  EXPECT_EQ(CGet(static_cast<const CHandle<Number>*>(nullptr), -1, [](const Number&) { return 0; }),
            -1);
  const pid_t child = fork();
  if (child == 0) _exit(ValueOf(handle) == -1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// What a thread in a call uses is destroyed when it has left it.
TEST(CInterface, DestroyingAHandleWaitsForTheCallThatIsGoingOn) {
  std::atomic<bool> left = false;
  struct Watched {
    explicit Watched(std::atomic<bool>* of) : left(of) {}
    ~Watched() { EXPECT_TRUE(*left); }
    std::atomic<bool>* left;
  };
  std::promise<void> entered;
  std::thread call;
  {
    CHandle<Watched> handle(&left);
    call = std::thread([&] {
      handle.With([&](Watched&) {
        entered.set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        left = true;
      });
    });
    entered.get_future().wait();
  }
  call.join();
}

// As a signal's handler of Python's is run, by who is asked whether the call is interrupted.
TEST(CInterface, ACallWithinACallIsRefusedAndADestroyedHandleIsFreedByTheCallThatWaits) {
  struct Flagged {
    explicit Flagged(bool* flag) : is_gone(flag) {}
    ~Flagged() { *is_gone = true; }
    bool* is_gone;
  };
  for (const bool fails : {false, true}) {
    bool is_gone = false;
    auto* const handle = new CHandle<Flagged>(&is_gone);
    const int code = CCallWith(handle, [&](Flagged&) {
      EXPECT_EQ(CCallWith(handle, [](Flagged&) { FAIL() << "the object is in a call"; }), 1);
      EXPECT_THAT(poseidon_last_error(), HasSubstr("called by a signal's handler"));
      CDestroy(handle);
      EXPECT_FALSE(is_gone);
      EXPECT_EQ(CCallWith(handle, [](Flagged&) { FAIL() << "the object is in a call"; }), 1);
      EXPECT_FALSE(is_gone);
      if (fails) throw PeerLost("worker 1");
    });
    EXPECT_EQ(code, fails ? 3 : 0);
    EXPECT_TRUE(is_gone);
  }
}

// What the handler of a signal destroys is still there when the call goes on.
TEST(CInterface, ACommunicatorThatIsDestroyedInItsOwnCallEndsWithIt) {
  struct Interruption {
    poseidon_communicator* all = nullptr;
    int refused = 0;
  };
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  const std::vector<const char*> texts = Texts(endpoints);
  std::promise<void> interrupted;
  std::thread other([&] {
    const poseidon_communicator_options options = OptionsOf(1, texts);
    poseidon_communicator* all = nullptr;
    ASSERT_EQ(poseidon_communicator_create(&options, &all), 0) << poseidon_last_error();
    interrupted.get_future().wait();
    EXPECT_NE(poseidon_communicator_barrier(all), 0);
    EXPECT_THAT(poseidon_last_error(), HasSubstr("rank 0"));
    poseidon_communicator_destroy(all);
  });
  Interruption interruption;
  poseidon_communicator_options options = OptionsOf(0, texts);
  options.context = &interruption;
  options.interrupted = [](void* context) {
    auto& within = *static_cast<Interruption*>(context);
    if (within.all == nullptr) return 0;  // the ranks are still to meet
    within.refused = poseidon_communicator_barrier(within.all);
    poseidon_communicator_destroy(within.all);
    return 1;
  };
  poseidon_communicator* all = nullptr;
  EXPECT_EQ(poseidon_communicator_create(&options, &all), 0) << poseidon_last_error();
  interruption.all = all;
  EXPECT_EQ(poseidon_communicator_barrier(all), 130) << poseidon_last_error();
  EXPECT_EQ(interruption.refused, 1);
  interrupted.set_value();
  other.join();
}

// It may end well, and a caller must be able to tell.
TEST(CInterface, ToHaveLeftIsNeitherSuccessNorAFailure) {
  EXPECT_EQ(CCall([] { throw Left("this worker was not needed: all is done"); }), POSEIDON_LEFT);
  EXPECT_STREQ(poseidon_last_error(), "this worker was not needed: all is done");
}

}  // namespace
}  // namespace poseidon
