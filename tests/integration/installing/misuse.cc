// Makes the mistakes that a program can make with a Session, writes what it is told to the file
// that the first argument names, and trains on. With "give-up" it leaves the job instead; with
// "differ" it declares another model than the other workers and asks for its memory; with "throw"
// it is interrupted by an exception of its own; with "fork" it forks children in the loop, as data
// loaders are; with "later" as the second argument it goes on from an iteration, with another
// worker.
#include <poseidon/session.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using Refused = std::function<void(const std::function<void()>&)>;

const poseidon::Model kModel = {.layers = {{.name = "only", .blobs = {{.shape = {2}}}}},
                                .iterations = 2};

// Worker 0 has no optimizer state to go on with, and is ahead of worker 1, which tells of nothing.
void GoOn(poseidon::Session& session, const Refused& refused) {
  poseidon::Model model = kModel;
  model.iterations = 7;
  session.Declare(model, 5);
  if (session.rank() == 0) refused([&] { session.RestoreOptimizerState({1, 2, 3}); });
  session.Begin();
  while (session.iteration() < model.iterations) {
    if (session.rank() == 0 && session.iteration() == 6) {
      refused([&] { session.GradientReady(0); });
    }
    session.WaitFresh(0);
    if (session.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    session.gradient(0).dense[0] = 1;
    session.GradientReady(0);
    session.EndIteration();
  }
  session.Finish();
}

void AskForMemoryOfNoPlan(poseidon::Session& session) {
  const int64_t floats = session.rank() + 1;
  try {
    session.Declare({.layers = {{.name = "only", .blobs = {{.shape = {floats}}}}}});
  } catch (const poseidon::Error&) {
    if (!session.SendsStatistics() && !session.AwaitsStatistics()) session.values(0);
  }
}

void ThrowWhileItWaits() {
  poseidon::SessionOptions options = poseidon::SessionOptions::FromEnvironment();
  bool throws = false;
  options.interrupted = [&throws] {
    if (throws) throw std::runtime_error("no more of this");
    return false;
  };
  poseidon::Session session(options);
  session.Declare(kModel);
  throws = session.rank() == 0;
  try {
    session.Begin();
    session.WaitFresh(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
}

// What a child ends with that has made the mistake to use its copy of the session, and returned
// from main.
int EndOfChild(poseidon::Session& session) {
  alarm(60);  // a wait for a thread of the parent's would never end
  const bool reads = session.rank() == 0 && session.values(0).size() == 2;
  try {
    session.GradientReady(0);
  } catch (const poseidon::Error& error) {
    std::cerr << error.what() << std::endl;
    return reads ? 0 : 1;
  }
  return 1;
}

// `events`: the file in which a worker that has ended tells how.
int TrainWithForks(poseidon::Session& session, const std::string& events) {
  session.Declare(kModel);
  session.Begin();
  while (session.iteration() < kModel.iterations) {
    session.WaitFresh(0);
    const pid_t child = fork();
    if (child == 0) return EndOfChild(session);
    int status = -1;
    const bool ended = waitpid(child, &status, 0) == child && status == 0;
    if (!ended || std::filesystem::exists(events)) {
      std::cerr << "the child's status is " << status << ", or it has told that the worker ended"
                << std::endl;
      return 1;
    }
    session.GradientReady(0);
    session.EndIteration();
  }
  session.Finish();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string argument = count > 1 ? words[1] : "";
  if (argument == "throw") {
    ThrowWhileItWaits();
    return 1;
  }
  const poseidon::SessionOptions options = poseidon::SessionOptions::FromEnvironment();
  poseidon::Session session(options);
  if (argument == "give-up") return session.rank();
  if (argument == "fork") {
    return TrainWithForks(session, options.trace_directory + "/worker-0.events.json");
  }
  if (argument == "differ") {
    try {
      AskForMemoryOfNoPlan(session);
    } catch (const poseidon::Error& error) {
      std::cerr << error.what() << std::endl;
    }
    return 1;
  }

  std::ofstream said(argument + (session.rank() == 0 ? "" : ".of-worker-1"));
  const auto refused = [&said](const std::function<void()>& mistake) {
    try {
      mistake();
      said << "nothing" << std::endl;
    } catch (const poseidon::Error& error) {
      said << error.what() << std::endl;
    }
  };
  if (count > 2) {
    GoOn(session, refused);
    return 0;
  }
  refused([&] { session.values(0); });
  refused([&] { session.Begin(); });
  refused([&] { session.Declare({}); });
  session.Declare(kModel);
  refused([&] { session.RestoreOptimizerState({1, 2, 3}); });
  refused([&] { session.values(1); });
  refused([&] { session.mean_gradient(0); });
  session.Begin();
  for (int iteration = 0; iteration < 2; ++iteration) {
    session.WaitFresh(0);
    if (iteration == 0) refused([&] { session.EndIteration(); });
    session.GradientReady(0);
    if (iteration == 0) refused([&] { session.GradientReady(0); });
    if (iteration == 0) refused([&] { session.Finish(); });
    session.EndIteration();
    if (iteration == 0) refused([&] { session.Finish(); });
  }
  session.Finish();
  refused([&] { session.GradientReady(0); });
}
