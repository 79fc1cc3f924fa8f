// What a simulation's thousands of nodes get as the same bytes, parsed once for all of them. A
// daemon, which is one node, has no use for it.
//
// Not thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/payload.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"

namespace poseidon {

// The last body that was parsed. Message has ParseFromString.
template <typename Message>
class ParseCache {
 public:
  // Null if the body is no such message.
  std::shared_ptr<const Message> Parse(const Payload& body) {
    // The body that is kept keeps its bytes' address from being used again.
    const bool same = message_ != nullptr && body.bytes().data() == body_.bytes().data() &&
                      body.size() == body_.size();
    if (same) return message_;
    auto message = std::make_shared<Message>();
    if (!message->ParseFromString(body.ToString())) return nullptr;
    message_ = std::move(message);
    body_ = body;
    return message_;
  }

 private:
  Payload body_;
  std::shared_ptr<const Message> message_;
};

// A view, and the ways to all data lanes in it.
struct ViewAndRoutes {
  bool ParseFromString(const std::string& bytes);

  wire::View view;
  std::shared_ptr<const std::vector<Outbox::Route>> routes;
};

struct SharedMessages {
  ParseCache<ViewAndRoutes> views;
  ParseCache<wire::PlanAndModel> plans;
};

// By `shared`, which may be null.
std::shared_ptr<const ViewAndRoutes> ParseView(const Payload& body, SharedMessages* shared);
std::shared_ptr<const wire::PlanAndModel> ParsePlan(const Payload& body, SharedMessages* shared);

}  // namespace poseidon
