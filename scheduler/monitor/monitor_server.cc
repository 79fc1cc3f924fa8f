#include "scheduler/monitor/monitor_server.h"

#include <httplib.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/steady_now.h"
#include "scheduler/monitor/access.h"
#include "scheduler/monitor/page.h"
#include "scheduler/monitor/rendered_status.h"

namespace poseidon {
namespace {

// Behind all threads of the job's daemons on this machine.
constexpr int kNice = 10;
// A browser's.
constexpr size_t kLongestBody = 4096;
// Connections that wait for a thread; the kernel keeps the next ones.
constexpr size_t kWaitingConnections = 64;
// So many. The library asks for 5; whoever comes then is only heard when it tries again a second
// later.
constexpr int kBacklog = 128;
// Who follows the job hears of it at most so often.
constexpr Duration kStreamInterval = Seconds(1);
// A program that has published nothing for so long hangs.
constexpr double kHealthySeconds = 30;
// What those who follow the job have to take its end.
constexpr Duration kParting = std::chrono::milliseconds(500);

// One connection, with deadlines: a request must have come within kPatience, and each part of an
// answer be taken within as long.
class Connection : public httplib::Stream {
 public:
  explicit Connection(int socket)
      : socket_(socket), read_deadline_(SteadyNow() + MonitorServer::kPatience) {}

  bool is_readable() const override { return Await(POLLIN, read_deadline_); }
  bool is_writable() const override {
    return Await(POLLOUT, SteadyNow() + MonitorServer::kPatience);
  }
  ssize_t read(char* data, size_t size) override {
    if (!is_readable()) return -1;
    return recv(socket_, data, size, 0);
  }
  ssize_t write(const char* data, size_t size) override {
    const Time deadline = SteadyNow() + MonitorServer::kPatience;
    size_t written = 0;
    while (written < size) {
      if (!Await(POLLOUT, deadline)) return -1;
      const ssize_t taken =
          send(socket_, data + written, size - written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (taken < 0 && errno != EAGAIN && errno != EINTR) return -1;
      written += static_cast<size_t>(std::max<ssize_t>(taken, 0));
    }
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return socket_; }

 private:
  bool Await(int16_t event, Time deadline) const {
    pollfd waited{socket_, event, 0};
    while (true) {
      const Duration left = deadline - SteadyNow();
      if (left <= Duration::zero()) return false;
      const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left);
      const int ready = poll(&waited, 1, static_cast<int>(milliseconds.count()));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  int socket_;
  Time read_deadline_;
};

// Threads that take connections in order. Whoever adds one waits while too many wait already.
class BoundedPool : public httplib::TaskQueue {
 public:
  explicit BoundedPool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  void enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.size() < kWaitingConnections; });
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Work() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      changed_.notify_all();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

// The library's server with connections that have deadlines, one request each, and that can be
// closed all at once.
class DeadlineServer : public httplib::Server {
 public:
  // From now on every connection is closed, the present ones, too.
  void CloseConnections() {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
  }

 private:
  bool Open(int socket) {
    const std::lock_guard lock(mutex_);
    return !closing_ && open_.insert(socket).second;
  }
  void Close(int socket) {
    {
      const std::lock_guard lock(mutex_);
      open_.erase(socket);
    }
    ::shutdown(socket, SHUT_RDWR);
    close(socket);
  }
  bool process_and_close_socket(socket_t socket) override {
    bool done = false;
    if (Open(socket)) {
      Connection connection(socket);
      bool closed = false;
      done = process_request(connection, true, closed, nullptr);
    }
    Close(socket);
    return done;
  }

  std::mutex mutex_;
  bool closing_ = false;
  std::set<int> open_;
};

Credentials CredentialsOf(const httplib::Request& request) {
  return {request.get_header_value("Host"), request.get_header_value("Authorization"),
          request.get_header_value("Cookie"), request.get_param_value("token")};
}

void Say(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", "text/plain; charset=utf-8");
}

}  // namespace

class MonitorServer::Impl {
 public:
  Impl(const MonitorOptions& options, const StatusBoard& board) : board_(board) {
    Configure();
    Bind(options);
    access_.emplace(options.token, port_);
    thread_ = std::thread([this] {
      // On Linux the calling thread's alone, and that of the threads that it starts.
      setpriority(PRIO_PROCESS, 0, kNice);
      server_.listen_after_bind();
    });
  }

  ~Impl() {
    const Time deadline = SteadyNow() + kParting;
    while (board_.Latest().closed && streams_ > 0 && SteadyNow() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    server_.CloseConnections();
    // It stops only what has begun.
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server_.stop();
    thread_.join();
  }

  int port() const { return port_; }
  const std::string& url() const { return url_; }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  using Routed = httplib::Server::HandlerResponse;

  void Configure() {
    server_.new_task_queue = [] { return new BoundedPool(kThreads); };
    server_.set_payload_max_length(kLongestBody);
    // The library's own lets two jobs have one port.
    server_.set_socket_options([this](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      listening_ = socket;
    });
    server_.set_default_headers({{"Cache-Control", "no-store"},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"Referrer-Policy", "no-referrer"}});
    server_.set_pre_routing_handler(
        [this](const Request& request, Response& response) { return Admit(request, response); });
    server_.Get(
        "/", [this](const Request& request, Response& response) { ServePage(request, response); });
    server_.Get("/api/job", [this](const Request&, Response& response) {
      Serve(response, &RenderedStatus::Json, "application/json");
    });
    server_.Get("/metrics", [this](const Request&, Response& response) {
      Serve(response, &RenderedStatus::Metrics, "text/plain; version=0.0.4; charset=utf-8");
    });
    server_.Get("/api/events",
                [this](const Request&, Response& response) { ServeEvents(response); });
    server_.Get("/healthz", [this](const Request&, Response& response) { ServeHealth(response); });
    server_.set_error_handler([](const Request& request, Response& response) {
      if (!response.body.empty()) return;
      Say(response, response.status,
          response.status == 404
              ? request.path +
                    " is not served here; there are /, /api/job, /api/events, /metrics "
                    "and /healthz"
              : "the request can't be answered: HTTP status " + std::to_string(response.status));
    });
  }

  void Bind(const MonitorOptions& options) {
    errno = 0;
    port_ = options.port;
    const bool bound = options.port == 0 ? (port_ = server_.bind_to_any_port(options.address)) > 0
                                         : server_.bind_to_port(options.address, options.port);
    if (!bound) {
      throw ConfigError("the monitor can't listen at " + options.address + ":" +
                        std::to_string(options.port) +
                        (errno != 0 ? std::string(" (") + std::strerror(errno) + ")" : "") +
                        "; set monitor.port to a free port, or to 0, and monitor.address to an "
                        "address of this machine");
    }
    listen(listening_, kBacklog);
    const bool six = options.address.find(':') != std::string::npos && options.address[0] != '[';
    url_ = "http://" + (six ? "[" + options.address + "]" : options.address) + ":" +
           std::to_string(port_) + "/";
  }

  Routed Admit(const Request& request, Response& response) {
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      Say(response, 405, "the monitor only shows; ask with GET");
      return Routed::Handled;
    }
    if (request.path == "/healthz") return Routed::Unhandled;  // which says nothing of the job
    switch (access_->Check(CredentialsOf(request))) {
      case Access::Answer::kAllowed:
        return Routed::Unhandled;
      case Access::Answer::kTokenNeeded:
        response.set_header("WWW-Authenticate", "Bearer");
        Say(response, 401,
            "a token is needed: the first line of the job's monitor.token_file, as /?token=... in "
            "a browser or as the header \"Authorization: Bearer ...\"");
        return Routed::Handled;
      case Access::Answer::kForeignHost:
        break;
    }
    Say(response, 403,
        "without a token the monitor answers only to names of this machine itself, such as "
        "localhost and 127.0.0.1");
    return Routed::Handled;
  }

  void ServePage(const Request& request, Response& response) {
    if (request.has_param("token")) response.set_header("Set-Cookie", access_->Cookie());
    response.set_header("Content-Security-Policy", kPagePolicy);
    response.set_content(LivePage(), "text/html; charset=utf-8");
  }

  void Serve(Response& response,
             RenderedStatus::Text (RenderedStatus::*render)(const StatusBoard::Posted&),
             const char* type) {
    const StatusBoard::Posted posted = board_.Latest();
    if (posted.version == 0) return Say(response, 503, "the job is about to begin; ask again");
    response.set_content(*(rendered_.*render)(posted), type);
  }

  void ServeHealth(Response& response) {
    const StatusBoard::Posted posted = board_.Latest();
    if (posted.version > 0) {
      const double still = ToSeconds(SteadyNow() - posted.status->now);
      if (!posted.closed && still > kHealthySeconds) {
        return Say(response, 503,
                   "the scheduler has done nothing for " +
                       std::to_string(static_cast<int64_t>(still)) + " s");
      }
    }
    Say(response, 200, "ok");
  }

  void ServeEvents(Response& response) {
    if (++streams_ > kStreams) {
      --streams_;
      response.set_header("Retry-After", "5");
      return Say(response, 503,
                 std::to_string(kStreams) +
                     " others follow the job already; ask for /api/job now and then instead");
    }
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, told = uint64_t{0}, begun = Time{}](size_t, httplib::DataSink& sink) mutable {
          return SendNext(told, begun, sink);
        },
        [this](bool) { --streams_; });
  }

  // Sends the next status, or a sign of life. False: the client is gone.
  bool SendNext(uint64_t& told, Time& begun, httplib::DataSink& sink) {
    const Duration rest = begun + kStreamInterval - SteadyNow();
    if (rest > Duration::zero()) WaitForClose(rest);
    const StatusBoard::Posted posted = board_.WaitForNewer(told, kPatience);
    begun = SteadyNow();
    std::string event = ":\n\n";
    if (posted.version > told) {
      event = "data: " + *rendered_.Json(posted) + "\n\n";
      told = posted.version;
    }
    if (!sink.write(event.data(), event.size())) return false;
    if (posted.closed) sink.done();
    return true;
  }

  void WaitForClose(Duration patience) {
    board_.WaitForNewer(std::numeric_limits<uint64_t>::max(), patience);
  }

  const StatusBoard& board_;
  RenderedStatus rendered_;
  std::atomic<int> streams_{0};
  std::optional<Access> access_;
  int port_ = 0;
  int listening_ = -1;  // the library's socket
  std::string url_;
  DeadlineServer server_;
  std::thread thread_;
};

MonitorServer::MonitorServer(const MonitorOptions& options, const StatusBoard& board)
    : impl_(std::make_unique<Impl>(options, board)) {}

MonitorServer::~MonitorServer() = default;

int MonitorServer::port() const { return impl_->port(); }

const std::string& MonitorServer::url() const { return impl_->url(); }

}  // namespace poseidon
