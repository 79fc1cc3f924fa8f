// Trains three layers on numbers that are drawn from the worker's rank and the iteration, for so
// many iterations as the first argument says, and goes back when the job has lost somebody. With
// "only-forward" it does not; with "spare" it waits as one for a rank that is lost; with "hang" the
// first process of worker 1 computes for ever in an iteration, and sends its heartbeats; with
// "careless" its optimizer is PyTorch's, and it makes the mistakes that one can make in going back
// and says what it is told.
#include <poseidon/session.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <thread>

namespace {

constexpr int kLayers = 3;
constexpr int kFloats = 500;  // a layer's; several KV pairs where they are of 1 KiB
constexpr int kShown = 50;    // iterations from one line to the next
// So that a signal comes in the middle of the training.
constexpr auto kPause = std::chrono::milliseconds(2);
constexpr int kHangsAt = 50;

// The gradient of half the squared distance from points that are drawn anew in each iteration.
float Compute(poseidon::Session& session, int layer) {
  const std::span<const float> values = session.values(layer);
  const std::span<float> gradient = session.gradient(layer).dense;
  std::seed_seq seed{session.rank(), static_cast<int>(session.iteration()), layer};
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> point(-1, 1);
  float loss = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float error = values[i] - point(random);
    gradient[i] = error;
    loss += error * error / 2;
  }
  return loss;
}

void Hang() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void Mistake(const std::function<void()>& call) {
  try {
    call();
    std::cout << "nothing is refused" << std::endl;
  } catch (const poseidon::Error& error) {
    std::cout << error.what() << std::endl;
  }
}

void SetGroups(poseidon::Session& session) {
  session.SetGroups({{.learning_rate = 0.05, .momentum = 0.9}});
}

// Where GoBack is next.
void GoOnAllTheSame(poseidon::Session& session) {
  Mistake([&] { session.Begin(); });
  Mistake([&] { SetGroups(session); });
  Mistake([&] { session.WaitFresh(0); });
  Mistake([&] { session.GradientReady(0); });
  Mistake([&] { session.EndIteration(); });
  Mistake([&] { session.Finish(); });
}

// When training begins, or goes on, in an iteration that no groups have been set for.
void ComputeWithoutGroups(poseidon::Session& session) {
  Mistake([&] { session.GoBack(); });
  session.WaitFresh(0);
  Mistake([&] { session.GradientReady(0); });
}

void RunIteration(poseidon::Session& session, int64_t last, bool hangs) {
  if (session.iteration() % kShown == 0) {
    std::cout << "iteration " << session.iteration() << std::endl;
  }
  for (int layer = 0; layer < kLayers; ++layer) session.WaitFresh(layer);
  if (hangs && session.iteration() == kHangsAt) Hang();
  float loss = 0;
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    loss += Compute(session, layer);
    session.GradientReady(layer);
    std::this_thread::sleep_for(kPause);
  }
  poseidon::IterationResult result = {.loss = loss};
  if (session.rank() == 0 && session.iteration() == last) result.test_accuracy = 0.5F;
  session.EndIteration(result);
}

void Train(poseidon::Session& session, int64_t iterations, bool hangs, bool careless) {
  while (session.iteration() < iterations) {
    if (careless) SetGroups(session);
    RunIteration(session, iterations - 1, hangs);
  }
  session.Finish();
}

}  // namespace

int main(int count, char** words) {
  try {
    const int64_t iterations = std::stoll(words[1]);
    poseidon::SessionOptions options = poseidon::SessionOptions::FromEnvironment();
    const std::string kind = count < 3 ? "" : words[2];
    const bool careless = kind == "careless";
    options.goes_back = kind != "only-forward";
    if (kind == "spare") options.rank = -1;
    poseidon::Session session(options);
    poseidon::Model model;
    model.optimizer.base_lr = 0.05F;
    model.optimizer.momentum = 0.9F;
    if (careless) model.optimizer = {.type = poseidon::OptimizerType::kPyTorchSgd};
    model.iterations = iterations;
    for (int layer = 0; layer < kLayers; ++layer) {
      model.layers.push_back(
          {.name = "layer" + std::to_string(layer), .blobs = {{.shape = {kFloats}}}});
    }
    session.Declare(model);
    for (bool begun = false;; begun = true) {
      try {
        if (begun) {
          session.GoBack();
        } else {
          session.Begin();
        }
        std::cout << "worker " << session.rank() << " is process " << getpid() << " at iteration "
                  << session.iteration() << std::endl;
        const bool first = std::getenv("POSEIDON_REPLACES") == nullptr;
        if (careless) ComputeWithoutGroups(session);
        Train(session, iterations, kind == "hang" && first && session.rank() == 1, careless);
        return 0;
      } catch (const poseidon::Rewound& rewound) {
        std::cout << rewound.what() << std::endl;
        if (careless) GoOnAllTheSame(session);
      }
    }
  } catch (const poseidon::Error& error) {
    std::cerr << error.what() << std::endl;
    return static_cast<int>(error.exit_code());
  }
}
