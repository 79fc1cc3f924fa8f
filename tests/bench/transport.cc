// What ZmqRuntime costs over the ZeroMQ sockets that it is made of.
//
//   bench_transport [BYTES [ROUNDS]]    BYTES moved in a round, default 512MiB; ROUNDS, default 11
//
// Two nodes in one process, on 127.0.0.1, move bodies of 64 KiB, 1 MiB and 16 MiB, each behind a
// header frame:
//   one way   node A sends them all, node B answers the last one
//   echo      node B sends every body back as it is; 4 MiB, and at least two bodies, are under way
// The contenders take turns, round by round:
//   raw       a DEALER and a ROUTER and a loop around each, with the runtime's send buffer; bodies
//             are sent without a copy; at most 4 MiB, and at least two of them, wait at either end
//   runtime   an actor on each of two ZmqRuntimes with one data lane
//   key       the same with a job's key, so that every body is encrypted and decrypted
// At the end stands what the cipher alone does on one core: XSalsa20 and Poly1305 of libsodium, as
// CurveZMQ has them, over bodies of 1 MiB, which is the bound of a lane's goodput with a key.
// Nobody looks at the bodies. Goodput counts bodies (both ways, of an echo) in GB/s (10^9); printed
// are the slowest round, the median and the fastest. CPU is that of the whole process,
// kernel included, in seconds per GB. The ratios are those of the medians; above 1 the runtime is
// faster, or needs less CPU.
//
// Bodies of 16 MiB are larger than the runtime's window, so it hands them to its socket one at a
// time, which raw does not: the gap between two of them is the price of overtaking.
//
// Needs two idle cores: four threads hand each other every body, and a round in which they wait for
// other programs says little.
#include <sodium.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "core/error.h"
#include "core/units.h"
#include "tests/bench/usage.h"
#include "transport/zmq/zmq_frame.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {
namespace {

constexpr size_t kBodyBytes[] = {64 << 10, 1 << 20, 16 << 20};
constexpr size_t kUnderWayBytes = 4 << 20;
constexpr Duration kPatience = std::chrono::seconds(60);

size_t UnderWay(size_t body_bytes) { return std::max<size_t>(2, kUnderWayBytes / body_bytes); }

Envelope BodyEnvelope(const Payload& body, bool last) {
  Envelope envelope;
  envelope.kind = MessageKind::kGradient;
  envelope.from = {{Role::kWorker, 0}, kFirstDataLane};
  envelope.epoch = 0x0123456789abcdef;
  envelope.iteration = 1000;
  envelope.bucket = last ? 1 : 0;
  envelope.chunk = 100;
  envelope.priority = 10;
  envelope.body = body;
  return envelope;
}

class Contender {
 public:
  virtual ~Contender() = default;
  virtual void OneWay(size_t count) = 0;
  virtual void Echo(size_t count) = 0;
};

// The sender's loop runs on the caller's thread, as its socket is used by one thread at a time.
class Raw : public Contender {
 public:
  explicit Raw(const Payload& body)
      : body_(body),
        under_way_(UnderWay(body.size())),
        header_(EncodeHeader(BodyEnvelope(body, false))) {
    const int limit = static_cast<int>(under_way_);
    router_.set(zmq::sockopt::rcvhwm, limit);
    router_.set(zmq::sockopt::sndhwm, 0);  // it would drop, and no more than `limit` are under way
    router_.set(zmq::sockopt::linger, 0);
    dealer_.set(zmq::sockopt::rcvhwm, limit);
    dealer_.set(zmq::sockopt::sndhwm, limit);
    dealer_.set(zmq::sockopt::linger, 0);
    for (zmq::socket_t* const socket : {&dealer_, &router_}) {
      socket->set(zmq::sockopt::sndbuf, static_cast<int>(ZmqOptions().send_buffer_bytes));
    }
    router_.bind("tcp://127.0.0.1:*");
    dealer_.connect(router_.get(zmq::sockopt::last_endpoint));
    receiver_ = std::thread([this] { Receive(); });
  }
  ~Raw() override {
    dealer_.send(zmq::str_buffer("end"), zmq::send_flags::none);
    receiver_.join();
  }

  void OneWay(size_t count) override {
    for (size_t i = 0; i < count; ++i) Send(i + 1 < count ? header_ : "last");
    AwaitMessage();
  }
  void Echo(size_t count) override {
    size_t sent = 0;
    for (; sent < std::min(count, under_way_); ++sent) Send("echo");
    for (size_t received = 0; received < count; ++received) {
      AwaitMessage();
      if (sent++ < count) Send("echo");
    }
  }

 private:
  void Send(const std::string& header) {
    dealer_.send(zmq::buffer(header), zmq::send_flags::sndmore);
    zmq::message_t frame(
        const_cast<std::byte*>(body_.bytes().data()), body_.size(), [](void*, void*) {}, nullptr);
    dealer_.send(frame, zmq::send_flags::none);
  }
  void AwaitMessage() {
    zmq::message_t frame;
    do {
      (void)dealer_.recv(frame);
    } while (frame.more());
  }
  void Receive() {
    while (true) {
      zmq::message_t id;
      zmq::message_t header;
      zmq::message_t body;
      (void)router_.recv(id);
      (void)router_.recv(header);
      if (header.to_string_view() == "end") return;
      (void)router_.recv(body);
      if (header.to_string_view() == "last") {
        router_.send(id, zmq::send_flags::sndmore);
        router_.send(header, zmq::send_flags::none);
      } else if (header.to_string_view() == "echo") {
        router_.send(id, zmq::send_flags::sndmore);
        router_.send(header, zmq::send_flags::sndmore);
        router_.send(body, zmq::send_flags::none);
      }
    }
  }

  const Payload body_;
  const size_t under_way_;
  const std::string header_;
  zmq::context_t dealer_context_;
  zmq::context_t router_context_;
  zmq::socket_t dealer_{dealer_context_, zmq::socket_type::dealer};
  zmq::socket_t router_{router_context_, zmq::socket_type::router};
  std::thread receiver_;
};

constexpr Address kSender{{Role::kWorker, 0}, kFirstDataLane};
constexpr Address kReceiver{{Role::kServer, 0}, kFirstDataLane};

// Told by the application how many bodies to send.
class SendingActor : public Actor {
 public:
  explicit SendingActor(const Payload& body) : body_(body) {}

  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    if (envelope.kind == MessageKind::kGradientReady) {
      to_send_ = to_receive_ = static_cast<size_t>(envelope.iteration);
      const bool echo = envelope.chunk != 0;
      if (!echo) to_receive_ = 1;
      for (size_t i = echo ? UnderWay(body_.size()) : to_send_; i > 0; --i) SendOne(echo, outbox);
      return;
    }
    if (--to_receive_ > 0) {
      SendOne(true, outbox);
      return;
    }
    Envelope done;
    done.to = Here(kApplicationLane);
    outbox.Send(done);
  }

 private:
  void SendOne(bool echo, Outbox& outbox) {
    if (to_send_ == 0) return;
    --to_send_;
    Envelope envelope = BodyEnvelope(body_, echo || to_send_ == 0);
    envelope.chunk = echo ? 1 : 0;
    envelope.to = kReceiver;
    outbox.Send(std::move(envelope));
  }

  const Payload body_;
  size_t to_send_ = 0;
  size_t to_receive_ = 0;
};

// Answers the last body, and every one of an echo.
class ReceivingActor : public Actor {
 public:
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    if (envelope.bucket == 0) return;
    Envelope answer;
    answer.kind = MessageKind::kValues;
    answer.to = kSender;
    if (envelope.chunk != 0) answer.body = envelope.body;
    outbox.Send(std::move(answer));
  }
};

class Runtime : public Contender {
 public:
  Runtime(const Payload& body, const std::optional<JobKey>& key)
      : sender_(kSender.node, Options(key)), receiver_(kReceiver.node, Options(key)) {
    sender_.SetRoute(kReceiver, receiver_.endpoint(kFirstDataLane));
    receiver_.SetRoute(kSender, sender_.endpoint(kFirstDataLane));
    sender_.Attach(kFirstDataLane, std::make_unique<SendingActor>(body));
    receiver_.Attach(kFirstDataLane, std::make_unique<ReceivingActor>());
    sender_.Start();
    receiver_.Start();
  }
  void OneWay(size_t count) override { Move(count, false); }
  void Echo(size_t count) override { Move(count, true); }

 private:
  static ZmqOptions Options(const std::optional<JobKey>& key) {
    ZmqOptions options;
    options.key = key;
    options.bind_host = "127.0.0.1";
    options.data_lanes = 1;
    options.window_bytes = kUnderWayBytes;
    return options;
  }
  void Move(size_t count, bool echo) {
    Envelope start;
    start.kind = MessageKind::kGradientReady;
    start.to = Here(kFirstDataLane);
    start.iteration = static_cast<int64_t>(count);
    start.chunk = echo ? 1 : 0;
    sender_.Post(start);
    if (!sender_.mailbox().Take(kPatience)) throw DeadlineExceeded("the last body did not arrive");
  }

  ZmqRuntime sender_;
  ZmqRuntime receiver_;
};

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

struct Samples {
  std::vector<double> goodput;  // GB/s
  std::vector<double> cpu;      // s/GB
};

void TimeRound(const std::function<void()>& round, double gigabytes, Samples& samples) {
  const double cpu_before = CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  round();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  samples.goodput.push_back(gigabytes / elapsed.count());
  samples.cpu.push_back((CpuSeconds() - cpu_before) / gigabytes);
}

double Percentile(std::vector<double> values, size_t percent) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) * percent / 100];
}

void Print(const std::string& size, const char* pattern, const char* name, const Samples& samples) {
  std::printf("%-7s %-8s %-8s %8.2f %8.2f %8.2f %8.3f\n", size.c_str(), pattern, name,
              Percentile(samples.goodput, 0), Percentile(samples.goodput, 50),
              Percentile(samples.goodput, 100), Percentile(samples.cpu, 50));
}

void PrintRatio(const std::string& size, const char* pattern, const char* name,
                const Samples& above, const Samples& below) {
  std::printf("%-7s %-8s %-13s %12.2f %26.2f\n", size.c_str(), pattern, name,
              Percentile(above.goodput, 50) / Percentile(below.goodput, 50),
              Percentile(below.cpu, 50) / Percentile(above.cpu, 50));
}

void Measure(size_t body_bytes, size_t round_bytes, int rounds) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(body_bytes, std::byte{1});
  const Payload body = Payload::View(std::span<const std::byte>(*bytes), bytes);
  Raw raw(body);
  Runtime runtime(body, std::nullopt);
  Runtime encrypted(body, JobKey::Make());
  const size_t count = std::max<size_t>(round_bytes / body_bytes, 4);
  const std::string size = FormatBytes(static_cast<int64_t>(body_bytes));
  for (const bool echo : {false, true}) {
    const size_t bodies = echo ? count / 2 : count;
    const double gigabytes = static_cast<double>(bodies * body_bytes) * (echo ? 2 : 1) / 1e9;
    const auto run = [&](Contender& contender, Samples& samples) {
      TimeRound([&] { echo ? contender.Echo(bodies) : contender.OneWay(bodies); }, gigabytes,
                samples);
    };
    Samples warm_up;
    Samples of_raw;
    Samples of_runtime;
    Samples of_encrypted;
    run(raw, warm_up);
    run(runtime, warm_up);
    run(encrypted, warm_up);
    for (int round = 0; round < rounds; ++round) {
      run(raw, of_raw);
      run(runtime, of_runtime);
      run(encrypted, of_encrypted);
    }
    const char* const pattern = echo ? "echo" : "one way";
    Print(size, pattern, "raw", of_raw);
    Print(size, pattern, "runtime", of_runtime);
    Print(size, pattern, "key", of_encrypted);
    PrintRatio(size, pattern, "runtime / raw", of_runtime, of_raw);
    PrintRatio(size, pattern, "key / runtime", of_encrypted, of_runtime);
  }
}

// What one core encrypts.
void MeasureCipher(int rounds) {
  std::vector<unsigned char> key(crypto_secretbox_KEYBYTES, 1);
  std::vector<unsigned char> nonce(crypto_secretbox_NONCEBYTES, 2);
  std::vector<unsigned char> plain(size_t{1} << 20, 3);
  std::vector<unsigned char> box(plain.size() + crypto_secretbox_MACBYTES);
  constexpr int kBodies = 64;
  const double gigabytes = kBodies * static_cast<double>(plain.size()) / 1e9;
  Samples samples;
  for (int round = 0; round < rounds; ++round) {
    TimeRound(
        [&] {
          for (int i = 0; i < kBodies; ++i) {
            crypto_secretbox_easy(box.data(), plain.data(), plain.size(), nonce.data(), key.data());
          }
        },
        gigabytes, samples);
  }
  Print("1MiB", "encrypt", "cipher", samples);
}

void Main(const std::string& round_bytes, const std::string& rounds) {
  std::printf("%-25s %8s %8s %8s %8s\n", "", "min", "median", "max", "CPU");
  std::printf("%-25s %8s %8s %8s %8s\n", "", "GB/s", "GB/s", "GB/s", "s/GB");
  for (const size_t body_bytes : kBodyBytes) {
    Measure(body_bytes, static_cast<size_t>(ParseBytes(round_bytes)), std::stoi(rounds));
  }
  MeasureCipher(std::stoi(rounds));
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::bench::ShowHelp(
      argc, argv,
      "bench_transport [BYTES [ROUNDS]]\n\nThe runtime against raw ZeroMQ, and with a key; "
      "BYTES (512MiB) are moved in each of ROUNDS (11).");
  try {
    poseidon::Main(argc > 1 ? argv[1] : "512MiB", argc > 2 ? argv[2] : "11");
  } catch (const poseidon::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
