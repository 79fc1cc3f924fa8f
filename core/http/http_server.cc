#include "core/http/http_server.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/http/access.h"
#include "core/steady_now.h"

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

// One connection, with deadlines: a request must have come within kPatience, and each part of an
// answer be taken within as long.
class Connection : public httplib::Stream {
 public:
  explicit Connection(int socket)
      : socket_(socket), read_deadline_(SteadyNow() + HttpServer::kPatience) {}

  bool is_readable() const override { return Await(POLLIN, read_deadline_); }
  bool is_writable() const override { return Await(POLLOUT, SteadyNow() + HttpServer::kPatience); }
  ssize_t read(char* data, size_t size) override {
    if (!is_readable()) return -1;
    return recv(socket_, data, size, 0);
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

}  // namespace

void Say(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", "text/plain; charset=utf-8");
}

class HttpServer::Impl {
 public:
  explicit Impl(const HttpOptions& options) {
    Configure(options.threads);
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
    thread_ = std::thread([this] {
      // On Linux the calling thread's alone, and that of the threads that it starts.
      setpriority(PRIO_PROCESS, 0, kNice);
      server_.listen_after_bind();
    });
  }

  void Stop() {
    if (!thread_.joinable()) {
      if (listening_ >= 0) close(std::exchange(listening_, -1));
      return;
    }
    server_.CloseConnections();
    // It stops only what has begun.
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
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

  void Configure(int threads) {
    server_.new_task_queue = [threads] { return new BoundedPool(threads); };
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
      throw ConfigError("the monitor can't listen at " + options.address + ":" +
                        std::to_string(options.port) +
                        (errno != 0 ? std::string(" (") + std::strerror(errno) + ")" : "") +
                        "; set " + options.port_field +
                        " to a free port, or to 0, and monitor.address to an address of this "
                        "machine");
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

  // "/, /metrics and /healthz".
  std::string Paths() const {
    std::string text;
    for (size_t i = 0; i < paths_.size(); ++i) {
      text += (i == 0 ? "" : i + 1 < paths_.size() ? ", " : " and ") + paths_[i];
    }
    return text;
  }

  std::vector<std::string> paths_;
  std::optional<Access> access_;
  int port_ = 0;
  std::string url_;
  int listening_ = -1;  // the library's socket
  DeadlineServer server_;
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
