# Every header compiles alone, twice in a row, with our warnings. A source proves it of its own header,
# which it includes first (house_test.py sees to that, and to #pragma once); what has no source of its
# own is compiled here: target header_check, run by ctest as slow.headers, and by tools/lint
# for headers that a change touches. A file includes just one header, so the target is not part of an
# ordinary build.

# poseidon_header_check(TARGET ROOT DIRECTORY HEADERS ...): an object library of a source a header, which
# are named by their path from the root.
function(poseidon_header_check target)
  cmake_parse_arguments(CHECK "" "ROOT" "HEADERS" ${ARGN})
  set(sources)
  foreach(header ${CHECK_HEADERS})
    set(source ${PROJECT_BINARY_DIR}/${target}/${header}.cc)
    file(GENERATE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${target} PRIVATE ${CHECK_ROOT})
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_compile_options(${target} PRIVATE -O0)
endfunction()

# The headers of a room, by their path from the root, that no source of the same name proves.
function(poseidon_headers_without_source result root room)
  file(GLOB_RECURSE headers RELATIVE ${root} CONFIGURE_DEPENDS ${root}/${room}/*.h)
  set(alone)
  foreach(header ${headers})
    string(REGEX REPLACE "\\.h$" ".cc" source ${header})
    if(NOT EXISTS ${root}/${source})
      list(APPEND alone ${header})
    endif()
  endforeach()
  set(${result} ${alone} PARENT_SCOPE)
endfunction()
