// HttpServer: answers GET requests on threads of its own that run behind all others.
//
//   HttpServer server({.address = "127.0.0.1"});
//   server.Get("/metrics", [](const httplib::Request&, httplib::Response& response) { ... });
//   server.Start();
//   std::cout << server.url();  // http://127.0.0.1:40123/
//
// What clients do costs the program nothing but processor time that nobody else wants: there is a
// bounded number of threads, and a request has kPatience to arrive and each part of an answer as
// long to be taken. /healthz is answered to anybody, everything else to whom Access admits.
#pragma once

#include <httplib.h>

#include <functional>
#include <memory>
#include <string>

#include "core/time.h"

namespace poseidon {

struct HttpOptions {
  std::string address;
  int port = 0;       // 0: a free one
  std::string token;  // empty: none is asked for (core/http/access.h)
  int threads = 16;
  std::string port_field;  // of the config, for messages: "monitor.port"
};

class HttpServer {
 public:
  static constexpr Duration kPatience = Seconds(5);
  using Handler = httplib::Server::Handler;

  // Listens, so that connections wait for Start. Throws ConfigError if it can't listen there.
  explicit HttpServer(const HttpOptions& options);
  // Stop().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Before Start. `handler` may be called by several threads at a time.
  void Get(const std::string& path, Handler handler);
  // Answers from now on. Throws Error where the system lets it start too few threads.
  void Start();
  // Closes all connections; no handler runs any more when it returns. Idempotent.
  void Stop();

  int port() const;
  // Where it is; without the token.
  const std::string& url() const;
  // For a browser that has shown the token once; empty if there is none.
  std::string Cookie() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A line of text.
void Say(httplib::Response& response, int status, const std::string& text);

}  // namespace poseidon
