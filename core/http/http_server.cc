#include "core/http/http_server.h"

#include <glog/logging.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/http/access.h"
#include "core/net/host_address.h"
#include "core/process/background_thread.h"
#include "core/steady_now.h"

namespace poseidon {
namespace {

// A browser's.
constexpr size_t kLongestBody = 4096;
// What a request has to arrive while others wait: whoever sends nothing must not keep a cluster's
// manager, which asks whether the program is healthy, waiting for as long as that allows.
constexpr Duration kShortPatience = Seconds(0.5);
// How often that is looked at.
constexpr Duration kGlance = Seconds(0.1);
// Connections that wait for a thread; the kernel keeps the next ones.
constexpr size_t kWaitingConnections = 64;
// So many. The library asks for 5; whoever comes then is only heard when it tries again a second
// later.
constexpr int kBacklog = 128;

// Makes headers that ask for parts of an answer ones that the library does not know: it would give
// a copy of the answer for each of thousands of parts, and it reads their numbers by an expression
// that takes as much stack as they are long. Whole answers are always right.
class RangeFilter {
 public:
  // The request's next bytes.
  void Pass(char* data, size_t size) {
    for (char& letter : std::span(data, size)) {
      if (letter == '\n') {
        matched_ = 0;
      } else if (matched_ < kName.size() &&
                 std::tolower(static_cast<unsigned char>(letter)) == kName[matched_]) {
        if (++matched_ == kName.size()) letter = 'x';
      } else {
        matched_ = kName.size();
      }
    }
  }

 private:
  static constexpr std::string_view kName = "range";
  size_t matched_ = 0;  // letters of it since the line's begin; all: it is too late
};

// One connection, with deadlines: a request must have come within kPatience, or kShortPatience
// while others wait for a thread, and each part of an answer be taken within kPatience.
class Connection : public httplib::Stream {
 public:
  Connection(int socket, const std::atomic<size_t>& waiting)
      : socket_(socket), begin_(SteadyNow()), waiting_(waiting) {}

  bool is_readable() const override {
    const Time deadline = begin_ + HttpServer::kPatience;
    while (SteadyNow() < deadline) {
      // Bytes that are there are taken, however late this thread gets to run.
      if (Await(POLLIN, std::min(deadline, SteadyNow() + kGlance))) return true;
      if (waiting_ > 0 && SteadyNow() >= begin_ + kShortPatience) return false;
    }
    return false;
  }
  bool is_writable() const override { return Await(POLLOUT, SteadyNow() + HttpServer::kPatience); }
  ssize_t read(char* data, size_t size) override {
    if (!is_readable()) return -1;
    const ssize_t taken = recv(socket_, data, size, 0);
    if (taken > 0) ranges_.Pass(data, static_cast<size_t>(taken));
    return taken;
  }
  ssize_t write(const char* data, size_t size) override {
    const Time deadline = SteadyNow() + HttpServer::kPatience;
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
  Time begin_;
  const std::atomic<size_t>& waiting_;  // others
  RangeFilter ranges_;
};

// Threads that take connections in order. Whoever adds one waits while too many wait already.
// `waiting`: how many do.
class BoundedPool final : public httplib::TaskQueue {
 public:
  // Nothing, or in later versions of the library whether the task is taken.
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));

  // Throws std::system_error where the system refuses a thread; then none is left.
  BoundedPool(int threads, std::atomic<size_t>& waiting) : BoundedPool(waiting) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~BoundedPool() override { shutdown(); }
  Taken enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.size() < kWaitingConnections; });
    tasks_.push_back(std::move(task));
    waiting_ = tasks_.size();
    changed_.notify_all();
    return static_cast<Taken>(true);
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  explicit BoundedPool(std::atomic<size_t>& waiting) : waiting_(waiting) {}
  void Work() {
    RunInBackground();
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        waiting_ = tasks_.size();
      }
      changed_.notify_all();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<size_t>& waiting_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

// The library's server with connections that have deadlines, one request each, and that can be
// closed all at once.
class DeadlineServer : public httplib::Server {
 public:
  DeadlineServer() {
    new_task_queue = [this] { return pool_.release(); };
  }

  // Before it listens: what the system refuses would end the program on the thread that listens.
  // Throws as BoundedPool does.
  void StartPool(int threads) { pool_ = std::make_unique<BoundedPool>(threads, waiting_); }

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
  // One request. A template, as later versions of the library want both ends' addresses, too.
  template <typename Stream>
  bool Answer(Stream& connection) {
    bool closed = false;
    if constexpr (requires { this->process_request(connection, true, closed, nullptr); }) {
      return this->process_request(connection, true, closed, nullptr);
    } else {
      return this->process_request(connection, "", 0, "", 0, true, closed, nullptr);
    }
  }
  bool process_and_close_socket(socket_t socket) override {
    bool done = false;
    if (Open(socket)) {
      Connection connection(socket, waiting_);
      // What the library lets pass would end the program.
      try {
        done = Answer(connection);
      } catch (const std::exception& error) {
        LOG(WARNING) << "a request over HTTP is given up, as it can't be answered: "
                     << error.what();
      }
    }
    Close(socket);
    return done;
  }

  std::mutex mutex_;
  bool closing_ = false;
  std::set<int> open_;
  std::atomic<size_t> waiting_ = 0;    // connections, for a thread
  std::unique_ptr<BoundedPool> pool_;  // until it listens; then the library's
};

Credentials CredentialsOf(const httplib::Request& request) {
  return {request.get_header_value("Host"), request.get_header_value("Authorization"),
          request.get_header_value("Cookie"), request.target};
}

}  // namespace

void Say(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", "text/plain; charset=utf-8");
}

class HttpServer::Impl {
 public:
  explicit Impl(const HttpOptions& options) : threads_(options.threads) {
    Configure();
    Bind(options);
    access_.emplace(options.token, port_);
  }
  ~Impl() { Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Get(const std::string& path, Handler handler) {
    server_.Get(path, std::move(handler));
    paths_.push_back(path);
  }

  void Start() {
    try {
      server_.StartPool(threads_);
      thread_ = std::thread([this] { Listen(); });
    } catch (const std::system_error& error) {
      throw Error(ExitCode::kFailure,
                  "the monitor can't start its " + std::to_string(threads_) +
                      " threads and one that listens (" + error.what() +
                      "); raise the limit (ulimit -u, or pids.max of a control group)");
    }
  }

  void Stop() {
    if (!thread_.joinable()) {
      if (listening_ >= 0) close(std::exchange(listening_, -1));
      return;
    }
    server_.CloseConnections();
    // It stops only what has begun.
    while (!server_.is_running() && !ended_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    server_.stop();
    thread_.join();
    listening_ = -1;
  }

  int port() const { return port_; }
  const std::string& url() const { return url_; }
  std::string Cookie() const { return access_->Cookie(); }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  using Routed = httplib::Server::HandlerResponse;

  void Listen() {
    RunInBackground();
    if (!server_.listen_after_bind()) {
      LOG(ERROR) << "nobody is answered at " << url_ << " any more, as the system has refused "
                 << "to take a connection; it may lack memory or open files (ulimit -n)";
    }
    ended_ = true;
  }

  void Configure() {
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
    server_.set_error_handler([this](const Request& request, Response& response) {
      if (!response.body.empty()) return;
      Say(response, response.status,
          response.status == 404
              ? request.path + " is not served here; there are " + Paths()
              : "the request can't be answered: HTTP status " + std::to_string(response.status));
    });
  }

  void Bind(const HttpOptions& options) {
    errno = 0;
    port_ = options.port;
    const bool bound = options.port == 0 ? (port_ = server_.bind_to_any_port(options.address)) > 0
                                         : server_.bind_to_port(options.address, options.port);
    if (!bound) {
      throw ConfigError("the monitor can't listen at " +
                        HostAndPort{options.address, options.port}.ToString() +
                        (errno != 0 ? std::string(" (") + std::strerror(errno) + ")" : "") +
                        "; set " + options.port_field +
                        " to a free port, or to 0, and monitor.address to an address of this "
                        "machine");
    }
    listen(listening_, kBacklog);
    url_ = "http://" + HostAndPort{options.address, port_}.ToString() + "/";
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

  // "/, /metrics and /healthz".
  std::string Paths() const {
    std::string text;
    for (size_t i = 0; i < paths_.size(); ++i) {
      text += (i == 0 ? "" : i + 1 < paths_.size() ? ", " : " and ") + paths_[i];
    }
    return text;
  }

  const int threads_;
  std::vector<std::string> paths_;
  std::optional<Access> access_;
  int port_ = 0;
  std::string url_;
  int listening_ = -1;  // the library's socket
  DeadlineServer server_;
  std::atomic<bool> ended_ = false;  // it listens no more
  std::thread thread_;
};

HttpServer::HttpServer(const HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {}
HttpServer::~HttpServer() = default;
void HttpServer::Get(const std::string& path, Handler handler) {
  impl_->Get(path, std::move(handler));
}
void HttpServer::Start() { impl_->Start(); }
void HttpServer::Stop() { impl_->Stop(); }
int HttpServer::port() const { return impl_->port(); }
const std::string& HttpServer::url() const { return impl_->url(); }
std::string HttpServer::Cookie() const { return impl_->Cookie(); }

}  // namespace poseidon
