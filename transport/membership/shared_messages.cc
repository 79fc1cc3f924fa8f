#include "transport/membership/shared_messages.h"

#include "transport/membership/member.h"

namespace poseidon {

bool ViewAndRoutes::ParseFromString(const std::string& bytes) {
  if (!view.ParseFromString(bytes)) return false;
  auto all = std::make_shared<std::vector<Outbox::Route>>();
  for (const wire::Node& node : view.nodes()) {
    for (int lane = kFirstDataLane; lane < node.endpoints_size(); ++lane) {
      all->push_back({{IdOf(node), lane}, node.endpoints(lane)});
    }
  }
  routes = std::move(all);
  return true;
}

std::shared_ptr<const ViewAndRoutes> ParseView(const Payload& body, SharedMessages* shared) {
  return shared != nullptr ? shared->views.Parse(body) : ParseCache<ViewAndRoutes>().Parse(body);
}

std::shared_ptr<const wire::PlanAndModel> ParsePlan(const Payload& body, SharedMessages* shared) {
  return shared != nullptr ? shared->plans.Parse(body)
                           : ParseCache<wire::PlanAndModel>().Parse(body);
}

}  // namespace poseidon
