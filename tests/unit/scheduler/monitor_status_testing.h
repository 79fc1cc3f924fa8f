// A job of two workers and a server, told of to what a monitor makes its status of.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scheduler/monitor/job_status.h"
#include "scheduler/monitor/node_state.h"
#include "scheduler/monitor/status_json.h"

namespace poseidon {

inline wire::IterationRecord Iteration(int64_t number, double loss, double duration_ms,
                                       int64_t images) {
  wire::IterationRecord record;
  record.set_number(number);
  record.set_loss(loss);
  record.set_duration_ms(duration_ms);
  record.set_exposed_ms(duration_ms / 4);
  record.set_images(images);
  return record;
}

class MonitorStatusTest : public testing::Test {
 protected:
  MonitorStatusTest() : tracker_(TwoWorkers(), Seconds(100)) {}

  static Job TwoWorkers() {
    Job job;
    job.set_name("digits");
    job.mutable_cluster()->set_workers(2);
    return job;
  }

  static wire::Node Node(Role role, int rank) {
    wire::Node node;
    node.set_role(static_cast<uint32_t>(role));
    node.set_rank(rank);
    node.set_host("host" + std::to_string(rank));
    node.set_pid(10 + rank);
    return node;
  }

  void Join() {
    wire::View view;
    *view.add_nodes() = Node(Role::kServer, 0);
    for (int rank = 0; rank < 2; ++rank) *view.add_nodes() = Node(Role::kWorker, rank);
    tracker_.OnView(view);
  }

  void Enter(const std::string& phase, double seconds) {
    wire::JobPhase message;
    message.set_phase(phase);
    tracker_.OnPhase(message, Seconds(seconds));
  }

  void Plan(int64_t start) { Plan("fc", start); }
  void Plan(const std::string& name = "fc", int64_t start = 0) {
    wire::PlanAndModel plan;
    plan.mutable_plan()->set_start_iteration(start);
    for (const int64_t floats : {3, 7}) {
      LayerSpec& layer = *plan.mutable_model()->add_layers();
      layer.set_name("layer" + std::to_string(floats));
      BucketPlan& bucket = *plan.mutable_plan()->add_buckets();
      bucket.set_name(name);
      bucket.set_first_layer(plan.model().layers_size() - 1);
      bucket.set_layer_count(1);
      bucket.set_scheme(RING);
      bucket.add_chunks()->set_size(floats);
      if (floats == 3) bucket.mutable_prediction()->set_exchange_ms(12.5);
    }
    plan.mutable_model()->set_iterations(50);
    plan.mutable_plan()->set_workers(2);
    plan.mutable_plan()->set_servers(1);
    tracker_.OnPlan(plan);
  }

  static wire::Progress ProgressOf(int rank, int64_t iteration) {
    wire::Progress progress;
    progress.set_rank(rank);
    progress.set_iteration(iteration);
    progress.set_images(8);
    progress.set_iteration_seconds(0.1);
    progress.set_exposed_seconds(0.02);
    return progress;
  }

  // With a timeline in which both buckets take so long.
  void TellTimeline(int rank, double milliseconds) {
    wire::Progress progress = ProgressOf(rank, 10);
    wire::IterationTimeline& timeline = *progress.mutable_timeline();
    timeline.set_iteration(9);
    for (int b = 0; b < 2; ++b) {
      timeline.add_buckets()->set_ready_ms(60);
      timeline.mutable_buckets(b)->set_fresh_ms(60 + milliseconds);
    }
    wire::LayerWait& wait = *timeline.add_waits();
    wait.set_layer(1);
    wait.set_begin_ms(100);
    wait.set_end_ms(110);
    tracker_.OnProgress(progress, Seconds(110));
  }

  nlohmann::ordered_json Json(double seconds) {
    return nlohmann::ordered_json::parse(JsonText(StatusJson(tracker_.status(Seconds(seconds)))));
  }

  std::vector<std::string> States(double seconds) {
    std::vector<std::string> states;
    for (const NodeState& state : NodeStates(tracker_.status(Seconds(seconds)))) {
      states.push_back(state.state);
    }
    return states;
  }

  StatusTracker tracker_;
};

}  // namespace poseidon
