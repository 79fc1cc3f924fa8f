// Programs that use the front door (include/poseidon) over real sockets: what each worker of a job
// hears when one of them makes a mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "poseidon/caffe_worker.h"
#include "poseidon/error.h"
#include "poseidon/poseidon.h"
#include "poseidon/session.h"
#include "tests/simulation/socket_training.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Job TwoPrograms() {
  Job job;
  job.mutable_cluster()->set_workers(2);
  job.mutable_cluster()->set_servers(1);
  return job;
}

Model ModelOfFloats(int64_t floats) {
  return {.layers = {{.name = "only", .blobs = {{.shape = {floats}}}}}};
}

// What `program` throws, which is a std::exception.
std::string WordsOf(const std::function<void()>& program) {
  try {
    program();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Worker 1 makes a mistake and leaves, while worker 0 waits for the plan. `words` are what worker 0
// hears, `code` is the job's.
void ExpectIsHeardOf(const std::function<void(Session&)>& mistake, const std::string& words,
                     ExitCode code) {
  const wire::End end = RunProgramsOverSockets(TwoPrograms(), [&](const SessionOptions& options) {
    const std::string heard = WordsOf([&] {
      Session session(options);
      if (options.rank == 1) mistake(session);
      session.Declare(ModelOfFloats(1));
    });
    EXPECT_THAT(heard, HasSubstr(words));
    if (options.rank == 0) {
      EXPECT_THAT(heard, HasSubstr("the program ended its session before Finish: " + words));
    }
  });
  EXPECT_EQ(end.job_exit_code(), static_cast<int>(code));
}

TEST(FrontDoor, AModelThatCantWorkIsNamedToTheOthers) {
  ExpectIsHeardOf([](Session& session) { session.Declare(ModelOfFloats(0)); },
                  "layer \"only\" of the model has a blob with the extent 0",
                  ExitCode::kConfigError);
}

TEST(FrontDoor, ACallOutOfOrderIsNamedToTheOthers) {
  ExpectIsHeardOf([](Session& session) { session.Begin(); },
                  "the program uses its session wrongly: Begin was called before Declare",
                  ExitCode::kFailure);
}

struct FailingSolver : CaffeWorker::Solver {
  explicit FailingSolver(bool fails_now) : fails(fails_now) {}
  Model model() const override { return ModelOfFloats(1); }
  void GetValues(int, std::span<float>) override {}
  void SetValues(int, std::span<const float>) override {}
  void GetGradient(int, std::span<float>) override {
    if (fails) throw std::runtime_error("the solver has no gradient");
  }
  void SetGradient(int, std::span<const float>) override {}
  bool fails;
};

// Also that of the worker who waits for the one that fails.
TEST(FrontDoor, ACaffeWorkerThrowsItsErrorAgain) {
  RunProgramsOverSockets(TwoPrograms(), [](const SessionOptions& options) {
    FailingSolver solver(options.rank == 1);
    CaffeWorker worker(options, solver);
    const std::string error = WordsOf([&] {
      worker.OnStart();
      worker.BeforeForward(0);
      worker.AfterBackward(0);
      worker.OnGradientsReady(1);
    });
    EXPECT_THAT(error, HasSubstr("the solver has no gradient"));
    EXPECT_EQ(WordsOf([&] { worker.OnStart(); }), error);
    EXPECT_EQ(WordsOf([&] { worker.AfterBackward(0); }), error);
    EXPECT_EQ(WordsOf([&] { worker.Finish(); }), error);
  });
}

// Worker 1 makes a mistake, which ends its CaffeWorker, while worker 0 waits for it.
void ExpectEndsACaffeWorker(const std::function<void(CaffeWorker&)>& mistake,
                            const std::string& words) {
  RunProgramsOverSockets(TwoPrograms(), [&](const SessionOptions& options) {
    FailingSolver solver(false);
    CaffeWorker worker(options, solver);
    const std::string heard = WordsOf([&] {
      if (options.rank == 1) mistake(worker);
      worker.OnStart();
      worker.BeforeForward(0);
      worker.AfterBackward(0);
      worker.OnGradientsReady(1);
    });
    EXPECT_THAT(heard, HasSubstr("the program uses its CaffeWorker wrongly: " + words));
    EXPECT_EQ(WordsOf([&] { worker.OnStart(); }), heard);
  });
}

TEST(FrontDoor, ACallOutsideAnIterationEndsACaffeWorker) {
  ExpectEndsACaffeWorker([](CaffeWorker& worker) { worker.BeforeForward(0); },
                         "OnStart comes first");
}

TEST(FrontDoor, ALayerThatIsNotThereEndsACaffeWorker) {
  ExpectEndsACaffeWorker(
      [](CaffeWorker& worker) {
        worker.OnStart();
        worker.AfterBackward(7);
      },
      "there is no layer 7 in a model with 1");
}

// Trains for ever.
void TrainOn(Session& session) {
  session.Declare(ModelOfFloats(1));
  session.Begin();
  while (true) {
    session.WaitFresh(0);
    session.GradientReady(0);
    session.EndIteration();
  }
}

void TrainOn(CaffeWorker& worker) {
  while (true) {
    worker.OnStart();
    worker.BeforeForward(0);
    worker.AfterBackward(0);
    worker.OnGradientsReady(1);
  }
}

// Worker 1 leaves without one, while worker 0 waits for its gradient.
TEST(FrontDoor, AMistakeThatWasPutRightIsNotNamedToTheOthers) {
  RunProgramsOverSockets(TwoPrograms(), [](const SessionOptions& options) {
    Session session(options);
    if (options.rank == 0) {
      EXPECT_THAT(WordsOf([&] { TrainOn(session); }),
                  AllOf(HasSubstr("the program ended its session before Finish"),
                        Not(HasSubstr("wrongly"))));
      return;
    }
    Model unnamed = ModelOfFloats(1);
    unnamed.layers[0].name = "caf\xe9";
    EXPECT_THAT(WordsOf([&] { session.Declare(unnamed); }), HasSubstr("is no UTF-8"));
    session.Declare(ModelOfFloats(1));
    EXPECT_THAT(WordsOf([&] { session.GradientReady(0); }), HasSubstr("wrongly"));
    session.Begin();
  });
}

// Worker 1's `interrupted` throws a number; `make` makes what waits.
template <typename Make>
void ExpectANumberIsHeardOf(const Make& make) {
  RunProgramsOverSockets(TwoPrograms(), [&](SessionOptions options) {
    if (options.rank == 0) {
      EXPECT_THAT(WordsOf([&] { TrainOn(*make(options)); }),
                  HasSubstr("the program's own code threw what is no exception"));
      return;
    }
    bool throws = false;
    options.interrupted = [&throws] {
      if (throws) throw 7;
      return false;
    };
    const auto waits = make(options);
    throws = true;
    EXPECT_THROW(TrainOn(*waits), int);
    throws = false;
    EXPECT_THROW(TrainOn(*waits), int) << "again";
  });
}

TEST(FrontDoor, WhatIsNoExceptionEndsASession) {
  ExpectANumberIsHeardOf(
      [](const SessionOptions& options) { return std::make_unique<Session>(options); });
}

TEST(FrontDoor, WhatIsNoExceptionEndsACaffeWorker) {
  FailingSolver solver(false);
  ExpectANumberIsHeardOf([&](const SessionOptions& options) {
    return std::make_unique<CaffeWorker>(options, solver);
  });
}

// And the session goes on.
TEST(FrontDoor, WrongArgumentsOfASessionInCHaveTheCodesOfTheHeader) {
  Job job = TwoPrograms();
  job.mutable_communication()->set_policy(Communication::ALL_PS);  // for the optimizer
  job.mutable_cluster()->set_workers(1);
  RunProgramsOverSockets(job, [](const SessionOptions& from) {
    poseidon_session_options options{};
    options.job_text = from.job_text.c_str();
    options.host = from.host.c_str();
    poseidon_session* session = nullptr;
    ASSERT_EQ(poseidon_session_create(&options, &session), 0) << poseidon_last_error();
    EXPECT_EQ(poseidon_session_declare(session, nullptr, 0), 2) << "model";
    poseidon_model model{};
    model.layer_count = 1;
    EXPECT_EQ(poseidon_session_declare(session, &model, 0), 2) << "layers";
    const int64_t extent = 1;
    poseidon_blob blob{};
    blob.shape = &extent;
    blob.axes = 1;
    poseidon_layer layer{};
    layer.name = "only";
    layer.blobs = &blob;
    layer.blob_count = 1;
    model.layers = &layer;
    model.optimizer = "TorchSGD";
    EXPECT_EQ(poseidon_session_declare(session, &model, -1), 1) << "first iteration";
    EXPECT_EQ(poseidon_session_declare(session, &model, 1), 0) << poseidon_last_error();
    EXPECT_EQ(poseidon_session_memory(session, 0, nullptr), 1) << "memory";
    EXPECT_EQ(poseidon_session_layers_sent_with(session, 0, nullptr, nullptr), 1) << "results";
    EXPECT_EQ(poseidon_session_restore_optimizer_state(session, nullptr, 1), 2) << "state";
    const float state[] = {1, 2, 3};
    EXPECT_EQ(poseidon_session_restore_optimizer_state(session, state, 3), 1) << "3 of state";
    EXPECT_THAT(poseidon_last_error(), HasSubstr("was given 3 floats"));
    EXPECT_EQ(poseidon_session_begin(session), 0) << poseidon_last_error();
    const poseidon_parameter_group groups[2] = {};
    EXPECT_EQ(poseidon_session_set_groups(session, nullptr, 1), 2) << "groups";
    EXPECT_EQ(poseidon_session_set_groups(session, groups, -1), 2) << "-1 groups";
    EXPECT_EQ(poseidon_session_set_groups(session, groups, 2), 1) << "2 groups";
    EXPECT_THAT(poseidon_last_error(), HasSubstr("was given 2 groups"));
    const double times[] = {1, 1};
    EXPECT_EQ(poseidon_session_report_layer_times(session, times, times, -1), 2) << "-1 times";
    EXPECT_EQ(poseidon_session_report_layer_times(session, times, times, 2), 1) << "2 times";
    EXPECT_THAT(poseidon_last_error(), HasSubstr("each of the model's 1 layers"));
    EXPECT_EQ(poseidon_session_collect_optimizer_state(session, nullptr, 1), 2) << "no room";
    EXPECT_EQ(poseidon_session_send_statistics(session, nullptr, 1), 2) << "statistics";
    EXPECT_EQ(poseidon_session_await_statistics(session, nullptr, 1), 2) << "no room";
    poseidon_session_destroy(session);
  });
}

}  // namespace
}  // namespace poseidon
