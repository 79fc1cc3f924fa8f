#include "device/profiler_range.h"

#ifdef POSEIDON_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace poseidon {

#ifdef POSEIDON_NVTX
ProfilerRange::ProfilerRange(const char* name) { nvtxRangePushA(name); }
ProfilerRange::~ProfilerRange() { nvtxRangePop(); }
#else
ProfilerRange::ProfilerRange(const char* /*name*/) {}
ProfilerRange::~ProfilerRange() = default;
#endif

}  // namespace poseidon
