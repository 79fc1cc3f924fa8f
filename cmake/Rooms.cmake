# Where CMAKE_UNITY_BUILD is on (CMakePresets.json), sources of a target are compiled together, in as many
# parts of one size as have at most 16 each: parsing what they all include, and instantiating it, takes most of
# a source's time. So what is local to a source has a name that is its own in the target. SEPARATE sources are
# compiled alone: their names are meant to be alike, as those of the tests that say the same of different
# things.
function(poseidon_compile_together target)
  cmake_parse_arguments(TOGETHER "" "" "SOURCES;SEPARATE" ${ARGN})
  set(most 16)
  foreach(source ${TOGETHER_SEPARATE})
    if(NOT source IN_LIST TOGETHER_SOURCES)
      message(FATAL_ERROR "${target}: ${source}, which is SEPARATE, is none of its SOURCES")
    endif()
  endforeach()
  set(alone ${TOGETHER_SOURCES})
  set(together ${TOGETHER_SOURCES})
  list(FILTER together INCLUDE REGEX "[.]cc$")
  list(REMOVE_ITEM together ${TOGETHER_SEPARATE} "")
  list(REMOVE_ITEM alone ${together} "")
  if(alone)
    set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  list(LENGTH together count)
  math(EXPR parts "(${count} + ${most} - 1) / ${most}")
  set(index 0)
  foreach(source ${together})
    math(EXPR part "${index} * ${parts} / ${count}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${part})
    math(EXPR index "${index} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# One library a room: poseidon_room(NAME SOURCES ... DEPENDS ... [SEPARATE ...]). Headers are included
# by their path from the root ("core/error.h").
function(poseidon_compile_options target)
  target_compile_options(${target} PRIVATE
    "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${POSEIDON_WARNINGS}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:${POSEIDON_CUDA_WARNINGS}>")
  target_include_directories(${target} PUBLIC
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR})
endfunction()

function(poseidon_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;SEPARATE" ${ARGN})
  add_library(poseidon_${name} STATIC ${ROOM_SOURCES})
  poseidon_compile_together(poseidon_${name} SOURCES ${ROOM_SOURCES} SEPARATE ${ROOM_SEPARATE})
  poseidon_compile_options(poseidon_${name})
  target_link_libraries(poseidon_${name} PUBLIC ${ROOM_DEPENDS})
endfunction()

# A program in build/bin: poseidon_program(NAME [OUTPUT FILE] SOURCES ... DEPENDS ...). OUTPUT is for
# daemons, whose files are named like the libraries of their rooms.
function(poseidon_program name)
  cmake_parse_arguments(PROGRAM "" "OUTPUT" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  poseidon_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${PROGRAM_DEPENDS})
  if(PROGRAM_OUTPUT)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME ${PROGRAM_OUTPUT})
  endif()
endfunction()

# How tests are compiled, at a level of optimization: half of what -O3 takes is spared by -O1, and a
# third of the rest by -O0. What they time is the rooms' code.
function(poseidon_test_options target level)
  poseidon_compile_options(${target})
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:RelWithDebInfo>>:${level}>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # At -O1 GCC 12 sees string + "literal" write behind its string (a relative of its bug 105651).
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow>")
  endif()
endfunction()

# Headers that are compiled once for many targets: poseidon_precompiled(NAME LEVEL -O1 DEPENDS ...
# HEADERS ...), which are of the same level of optimization.
# A target takes them with target_precompile_headers(TARGET REUSE_FROM NAME). NAME is a program, as
# the compiler wants the same code model of all who share a header; it is never run.
function(poseidon_precompiled name)
  cmake_parse_arguments(PRECOMPILED "" "LEVEL" "DEPENDS;HEADERS" ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  file(GENERATE OUTPUT ${source} CONTENT "int main() {}\n")
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  poseidon_test_options(${name} ${PRECOMPILED_LEVEL})
  target_link_libraries(${name} PRIVATE ${PRECOMPILED_DEPENDS})
  target_precompile_headers(${name} PRIVATE ${PRECOMPILED_HEADERS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

# A GoogleTest program run by ctest: poseidon_test(NAME LABEL unit|simulation|... SOURCES ...
# DEPENDS ... [ARGUMENTS ...] [HEADERS torch_test_headers]). One ctest entry a program: starting a
# program costs more than most tests. HEADERS: what is precompiled for it, if not test_headers. Those with
# label unit and without HEADERS compute little in their own code and are not optimized.
# SEPARATE: see poseidon_compile_together. SLOW_TIMEOUT: cases whose name, or whose suite's, begins with
# "Slow" are an entry of their own, slow.NAME, with this limit; or with SLOW_SHARDS n entries, slow.NAME.0
# and so on, which run side by side, and each has the limit.
function(poseidon_test name)
  cmake_parse_arguments(TEST "" "LABEL;TIMEOUT;SLOW_TIMEOUT;SLOW_SHARDS;HEADERS"
                        "SOURCES;DEPENDS;ARGUMENTS;SEPARATE" ${ARGN})
  set(level -O1)
  if(TEST_LABEL STREQUAL unit AND NOT TEST_HEADERS)
    set(level -O0)
    set(TEST_HEADERS unoptimized_test_headers)
  elseif(NOT TEST_HEADERS)
    set(TEST_HEADERS test_headers)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  math(EXPR timeout "${TEST_TIMEOUT} * ${POSEIDON_SLOWDOWN}")
  add_executable(${name} ${TEST_SOURCES})
  poseidon_compile_together(${name} SOURCES ${TEST_SOURCES} SEPARATE ${TEST_SEPARATE})
  poseidon_test_options(${name} ${level})
  target_precompile_headers(${name} REUSE_FROM ${TEST_HEADERS})
  target_link_libraries(${name} PRIVATE ${TEST_DEPENDS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(TEST_SLOW_TIMEOUT)
    # A case, a suite or a set of parameters: Suite.SlowCase, SlowSuite.Case, Set/SlowSuite.Case/0. Not
    # what says the word, as TimeIsNoSlower.
    set(slow "*.Slow*:Slow*:*/Slow*")
    add_test(NAME ${TEST_LABEL}.${name} COMMAND ${name} ${TEST_ARGUMENTS} "--gtest_filter=-${slow}"
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    math(EXPR slow_timeout "${TEST_SLOW_TIMEOUT} * ${POSEIDON_SLOWDOWN}")
    if(NOT TEST_SLOW_SHARDS)
      set(TEST_SLOW_SHARDS 1)
    endif()
    math(EXPR last "${TEST_SLOW_SHARDS} - 1")
    foreach(shard RANGE ${last})
      set(slow_name slow.${name})
      if(last GREATER 0)
        string(APPEND slow_name .${shard})
      endif()
      add_test(NAME ${slow_name} COMMAND ${name} ${TEST_ARGUMENTS} "--gtest_filter=${slow}"
               WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(${slow_name} PROPERTIES LABELS slow TIMEOUT ${slow_timeout} ENVIRONMENT
        "${POSEIDON_TEST_ENVIRONMENT};GTEST_TOTAL_SHARDS=${TEST_SLOW_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endforeach()
  else()
    add_test(NAME ${TEST_LABEL}.${name} COMMAND ${name} ${TEST_ARGUMENTS}
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
  # The cost: tests that may take long begin first, so that none of them runs on alone at the end.
  set_tests_properties(${TEST_LABEL}.${name} PROPERTIES
    LABELS ${TEST_LABEL} TIMEOUT ${timeout} COST ${timeout}
    ENVIRONMENT "${POSEIDON_TEST_ENVIRONMENT}")
endfunction()
