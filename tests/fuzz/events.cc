// Two nodes' last events, which somebody may have changed: what explain and timeline make of them.
#include "diagnosis/explanation.h"
#include "diagnosis/timeline.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t middle = text.find('\n');
  poseidon::ReadOrRefuse([&] {
    poseidon::JobFiles job;
    job.events.push_back(poseidon::ParseEventFile(text.substr(0, middle), "a.events.json"));
    if (middle != std::string::npos) {
      job.events.push_back(poseidon::ParseEventFile(text.substr(middle), "b.events.json"));
    }
    job.clocks = poseidon::EstimateClocks(job.events);
    const poseidon::Explanation why = poseidon::Explain(job);
    poseidon::ExplanationText(why);
    poseidon::ExplanationJson(why);
    poseidon::MakeTimeline(job);
  });
  return 0;
}
