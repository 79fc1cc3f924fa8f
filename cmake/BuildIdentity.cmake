# The source of core/process/build_identity.h.
#
#   include(cmake/BuildIdentity.cmake)
#   poseidon_build_identity(identity.cc)    has it made, and made anew when a source has changed
#
# Only that one source depends on all the others, so what a change costs is to hash them and to link. It is
# also the script that the build runs for it; sources are hashed as they are, so no repository is needed.
if(CMAKE_SCRIPT_MODE_FILE)
  file(STRINGS ${SOURCES} sources)
  set(sums)
  foreach(source ${sources})
    file(SHA256 ${ROOT}/${source} sum)
    string(APPEND sums "${sum} ${source}\n")
  endforeach()
  string(SHA256 sum "${sums}")
  string(SUBSTRING ${sum} 0 12 sum)  # 48 bits: the builds that meet are few
  # Written only where it changes.
  file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[
#include "core/process/build_identity.h"

namespace poseidon {

std::string_view BuildIdentity() { return "@VERSION@+@sum@"; }

}  // namespace poseidon
]])
  return()
endif()

function(poseidon_build_identity out)
  # What CMake says counts, too: flags decide how floats are rounded.
  set(patterns cmake/*.cmake python/poseidon_torch/*.py)
  foreach(room ${POSEIDON_ROOMS})
    foreach(name *.h *.cc *.cu *.cuh *.proto *.py CMakeLists.txt)
      list(APPEND patterns ${room}/${name})
    endforeach()
  endforeach()
  list(TRANSFORM patterns PREPEND ${PROJECT_SOURCE_DIR}/)
  file(GLOB_RECURSE sources RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${patterns})
  # What editors and other systems leave beside sources.
  list(FILTER sources EXCLUDE REGEX "(^|/)[.]")
  if(NOT sources)
    message(FATAL_ERROR "there are no sources in ${PROJECT_SOURCE_DIR}: a path may not have [ ] * ?")
  endif()
  list(APPEND sources CMakeLists.txt)
  list(SORT sources)
  list(JOIN sources "\n" lines)
  set(list ${out}.sources)
  file(CONFIGURE OUTPUT ${list} CONTENT "${lines}\n" @ONLY)
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
  set(script ${PROJECT_SOURCE_DIR}/cmake/BuildIdentity.cmake)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DSOURCES=${list} -DROOT=${PROJECT_SOURCE_DIR}
            -DVERSION=${PROJECT_VERSION} -P ${script}
    DEPENDS ${sources} ${list} ${script}
    COMMENT "Hashing the sources"
    VERBATIM)
endfunction()
