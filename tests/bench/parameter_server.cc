// Push and pull through the parameter server, against raw ZeroMQ moving and summing the same bytes.
//
//   bench_parameter_server [MIB] [ITERATIONS] [ROUNDS]      default 64 12 5
//
// MIB is a multiple of 16, so that each size of chunks divides the layer.
//
// Two workers and one server, each a process of its own on loopback, exchange one layer of MIB
// mebibytes in chunks of 64 KiB, 1 MiB and 16 MiB; nothing is computed, so the exchange is all
// there is. The raw contender is what the protocol costs at least: DEALER workers send the chunks
// as zero-copy frames, a ROUTER server adds those of both workers into an accumulator and sends it
// to both, workers copy what arrives into place. It has no headers, no priorities, no update rule,
// no heartbeats.
//
// Contenders alternate, round by round, so that a busy neighbor hits both. Printed, for each chunk
// size and contender: bytes pushed and pulled per CPU-second of workers and server together (min,
// median and max over the rounds) and per second of wall time. The ratio is that of the medians per
// CPU-second; the aim is 0.8 from 1 MiB. Last, the server's memory: what it grew by from before the
// plan to the end, over its parameters and optimizer state; the aim is 1.3 plus the window.
#include <glog/logging.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "client/worker_session.h"
#include "core/arithmetic/sum.h"
#include "core/error.h"
#include "core/time.h"
#include "server/server_control.h"
#include "tests/bench/local_job.h"
#include "tests/bench/usage.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

constexpr int kWorkers = 2;
constexpr int kPort = 19710;
constexpr int64_t kChunkBytes[] = {64 << 10, 1 << 20, 16 << 20};

struct Setup {
  int64_t layer_bytes = 64 << 20;
  int64_t chunk_bytes = 1 << 20;
  int iterations = 12;
};

// What one process used while it exchanged.
struct Usage {
  double cpu_seconds = 0;
  double wall_seconds = 0;  // workers only
  double grown_bytes = 0;   // server only: resident memory
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Runs the bodies in a process each; returns what they measured.
std::vector<Usage> RunProcesses(const std::vector<std::function<Usage()>>& bodies) {
  struct Child {
    pid_t pid;
    int pipe;
  };
  std::vector<Child> children;
  for (const auto& body : bodies) {
    int ends[2];
    PCHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const Usage usage = body();
      _exit(write(ends[1], &usage, sizeof usage) == sizeof usage ? 0 : 1);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<Usage> usages;
  for (const Child& child : children) {
    Usage usage;
    CHECK_EQ(read(child.pipe, &usage, sizeof usage), static_cast<ssize_t>(sizeof usage))
        << "a process of the benchmark failed";
    usages.push_back(usage);
    close(child.pipe);
    waitpid(child.pid, nullptr, 0);
  }
  return usages;
}

// ---- raw ZeroMQ

std::string RawEndpoint() { return "tcp://127.0.0.1:" + std::to_string(kPort + 5); }

void KeepAlive(void*, void*) {}  // the buffers outlive every frame

zmq::message_t ZeroCopy(float* data, int64_t bytes) {
  return zmq::message_t(data, static_cast<size_t>(bytes), KeepAlive, nullptr);
}

Usage RawWorker(const Setup& setup, int rank) {
  std::vector<float> gradient(setup.layer_bytes / sizeof(float), 1.0F);
  std::vector<float> values(gradient.size());
  zmq::context_t context(1);
  zmq::socket_t socket(context, ZMQ_DEALER);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::routing_id, "worker" + std::to_string(rank));
  socket.connect(RawEndpoint());
  const int64_t chunks = setup.layer_bytes / setup.chunk_bytes;
  const int64_t floats = setup.chunk_bytes / static_cast<int64_t>(sizeof(float));
  double cpu = 0;
  double begin = 0;
  // The first iteration warms up: connections, pages.
  for (int iteration = 0; iteration <= setup.iterations; ++iteration) {
    if (iteration == 1) {
      cpu = CpuSeconds();
      begin = Now();
    }
    for (int64_t c = 0; c < chunks; ++c) {
      socket.send(zmq::message_t(&c, sizeof c), zmq::send_flags::sndmore);
      socket.send(ZeroCopy(gradient.data() + c * floats, setup.chunk_bytes), zmq::send_flags::none);
    }
    for (int64_t c = 0; c < chunks; ++c) {
      zmq::message_t header;
      zmq::message_t body;
      CHECK(socket.recv(header) && socket.recv(body));
      const int64_t chunk = *header.data<int64_t>();
      CopyFrom(std::span(values).subspan(chunk * floats, floats),
               {static_cast<const std::byte*>(body.data()), body.size()});
    }
  }
  return {CpuSeconds() - cpu, Now() - begin, 0};
}

Usage RawServer(const Setup& setup) {
  std::vector<float> sums(setup.layer_bytes / sizeof(float));
  zmq::context_t context(1);
  zmq::socket_t socket(context, ZMQ_ROUTER);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.bind(RawEndpoint());
  const int64_t chunks = setup.layer_bytes / setup.chunk_bytes;
  const int64_t floats = setup.chunk_bytes / static_cast<int64_t>(sizeof(float));
  std::vector<int> counts(chunks);
  double cpu = 0;
  const int64_t frames = chunks * kWorkers;
  for (int64_t i = 0; i < frames * (setup.iterations + 1); ++i) {
    if (i == frames) cpu = CpuSeconds();
    zmq::message_t identity;
    zmq::message_t header;
    zmq::message_t body;
    CHECK(socket.recv(identity) && socket.recv(header) && socket.recv(body));
    const int64_t chunk = *header.data<int64_t>();
    const std::span<float> sum = std::span(sums).subspan(chunk * floats, floats);
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(body.data()), body.size());
    counts[chunk] == 0 ? CopyFrom(sum, bytes) : AddInto(sum, bytes);
    if (++counts[chunk] < kWorkers) continue;
    counts[chunk] = 0;
    for (int rank = 0; rank < kWorkers; ++rank) {
      const std::string to = "worker" + std::to_string(rank);
      socket.send(zmq::buffer(to), zmq::send_flags::sndmore);
      socket.send(zmq::message_t(&chunk, sizeof chunk), zmq::send_flags::sndmore);
      socket.send(ZeroCopy(sum.data(), setup.chunk_bytes), zmq::send_flags::none);
    }
  }
  return {CpuSeconds() - cpu, 0, 0};
}

// ---- the parameter server

Job MakeJob(const Setup& setup) {
  Job job;
  job.mutable_cluster()->set_workers(kWorkers);
  job.mutable_cluster()->set_servers(1);
  job.mutable_cluster()->set_scheduler_port(kPort);
  job.mutable_communication()->set_kv_pair_bytes(setup.chunk_bytes);
  job.mutable_communication()->set_policy(Communication::ALL_PS);
  return job;
}

ModelSpec MakeModel(const Setup& setup) {
  ModelSpec model;
  LayerSpec* layer = model.add_layers();
  layer->set_name("layer");
  layer->set_type("Convolution");
  BlobSpec* blob = layer->add_blobs();
  blob->add_shape(setup.layer_bytes / static_cast<int64_t>(sizeof(float)));
  blob->set_lr_mult(1);
  blob->set_decay_mult(1);
  model.mutable_update_rule()->set_type("SGD");
  model.mutable_update_rule()->set_lr_policy("fixed");
  model.mutable_update_rule()->set_base_lr(0.01F);
  model.mutable_update_rule()->set_momentum(0.9F);
  return model;
}

Usage Scheduler(const Setup& setup) {
  RunScheduler(MakeJob(setup));
  return {};
}

Usage Server(const Setup& setup, const Signal& warm) {
  const Job job = MakeJob(setup);
  ZmqRuntime runtime({Role::kServer, -1}, NodeZmqOptions(job, "127.0.0.1"));
  ServerOptions options;
  options.member = NodeMemberOptions(job, 0, Role::kServer, 0, "127.0.0.1", runtime);
  runtime.Attach(kControlLane, std::make_unique<ServerControl>(std::move(options)));
  const double before = ResidentBytes();
  runtime.Start();
  // Initial parameters and the first iteration do not count, as with the raw server.
  warm.Await();
  const double cpu = CpuSeconds();
  AwaitEnvelope(runtime, MessageKind::kEnd);
  const Usage usage{CpuSeconds() - cpu, 0, ResidentBytes() - before};
  runtime.Stop();
  return usage;
}

// `warm`: of the server, to whom one worker says it.
Usage Worker(const Setup& setup, const Signal* warm) {
  WorkerSessionOptions options;
  options.job = MakeJob(setup);
  options.host = "127.0.0.1";
  WorkerSession session(options);
  session.Declare(MakeModel(setup));
  std::fill(session.gradient(0).dense.begin(), session.gradient(0).dense.end(), 1e-3F);
  session.Begin();
  double cpu = 0;
  double begin = 0;
  for (int iteration = 0; iteration <= setup.iterations; ++iteration) {
    session.WaitFresh(0);
    if (iteration == 1) {
      if (warm != nullptr) warm->Send();
      cpu = CpuSeconds();
      begin = Now();
    }
    session.GradientReady(0);
    if (session.EndIteration({})) session.ChangePlan();
  }
  session.WaitFresh(0);
  const Usage usage{CpuSeconds() - cpu, Now() - begin, 0};
  session.Finish({});
  return usage;
}

// ---- the comparison

struct Sample {
  double per_cpu_second = 0;
  double per_second = 0;
  double server_growth = 0;
};

Sample Measure(const Setup& setup, bool raw) {
  const Signal warm;
  std::vector<std::function<Usage()>> bodies;
  if (raw) {
    bodies.push_back([&] { return RawServer(setup); });
    for (int rank = 0; rank < kWorkers; ++rank) {
      bodies.push_back([&, rank] { return RawWorker(setup, rank); });
    }
  } else {
    bodies.push_back([&] { return Server(setup, warm); });
    for (int rank = 0; rank < kWorkers; ++rank) {
      bodies.push_back([&, rank] { return Worker(setup, rank == 0 ? &warm : nullptr); });
    }
    bodies.push_back([&] { return Scheduler(setup); });
  }
  const std::vector<Usage> usages = RunProcesses(bodies);
  const double bytes = 2.0 * kWorkers * static_cast<double>(setup.layer_bytes) * setup.iterations;
  double cpu = 0;
  double wall = 0;
  for (const Usage& usage : usages) {
    cpu += usage.cpu_seconds;
    wall = std::max(wall, usage.wall_seconds);
  }
  return {bytes / cpu, bytes / wall, usages[0].grown_bytes};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Prints a contender's row; returns its median per CPU-second.
double PrintRow(const char* name, int64_t chunk, const std::vector<Sample>& samples) {
  std::vector<double> cpu;
  std::vector<double> wall;
  for (const Sample& sample : samples) {
    cpu.push_back(sample.per_cpu_second / 1e9);
    wall.push_back(sample.per_second / 1e9);
  }
  std::printf("%8lld KiB  %-9s  %6.2f %6.2f %6.2f GB per CPU-second  %6.2f GB/s\n",
              static_cast<long long>(chunk >> 10), name, *std::min_element(cpu.begin(), cpu.end()),
              Median(cpu), *std::max_element(cpu.begin(), cpu.end()), Median(wall));
  return Median(cpu);
}

void Run(Setup setup, int rounds) {
  std::printf("%d workers, 1 server, layer of %lld MiB, %d iterations, %d rounds\n", kWorkers,
              static_cast<long long>(setup.layer_bytes >> 20), setup.iterations, rounds);
  std::printf("                             min median    max                      median\n");
  double growth = 0;
  for (const int64_t chunk : kChunkBytes) {
    setup.chunk_bytes = chunk;
    std::vector<Sample> raw;
    std::vector<Sample> ours;
    for (int round = 0; round < rounds; ++round) {
      raw.push_back(Measure(setup, true));
      ours.push_back(Measure(setup, false));
      if (chunk == 1 << 20) growth = std::max(growth, ours.back().server_growth);
    }
    const double baseline = PrintRow("raw", chunk, raw);
    const double own = PrintRow("poseidon", chunk, ours);
    std::printf("%8lld KiB  ratio      %.2f\n", static_cast<long long>(chunk >> 10),
                own / baseline);
    std::fflush(stdout);
  }
  const double share = 2.0 * static_cast<double>(setup.layer_bytes);
  std::printf(
      "server memory, chunks of 1 MiB: grew by %.0f MiB for %.0f MiB of parameters and "
      "momentum: %.2f times\n",
      growth / (1 << 20), share / (1 << 20), growth / share);
}

// Of a place among the arguments. Throws ConfigError.
int Argument(const std::vector<std::string>& arguments, size_t place, const char* name,
             int fallback) {
  if (place >= arguments.size()) return fallback;
  const std::string& text = arguments[place];
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 1) {
    throw ConfigError(std::string(name) + " is \"" + text +
                      "\"; it must be a whole number, at least 1");
  }
  return value;
}

void Main(const std::vector<std::string>& arguments) {
  constexpr int kLargestChunk = 16;  // in MiB
  const int mib = Argument(arguments, 1, "MIB", 64);
  if (mib % kLargestChunk != 0) {
    throw ConfigError("MIB is " + std::to_string(mib) + "; it must be a multiple of " +
                      std::to_string(kLargestChunk) + ", the largest chunk");
  }
  Setup setup;
  setup.layer_bytes = int64_t{mib} << 20;
  setup.iterations = Argument(arguments, 2, "ITERATIONS", 12);
  Run(setup, Argument(arguments, 3, "ROUNDS", 5));
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::bench::ShowHelp(
      argc, argv,
      "bench_parameter_server [MIB] [ITERATIONS] [ROUNDS]\n\nPush and pull of a layer of MIB "
      "mebibytes (64), ITERATIONS (12) times in each of ROUNDS (5), "
      "against raw ZeroMQ.");
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_WARNING;
  try {
    poseidon::Main({argv, argv + argc});
  } catch (const poseidon::Error& error) {
    std::fprintf(stderr, "bench_parameter_server: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
