# One library a room: poseidon_room(NAME SOURCES ... DEPENDS ...). Headers are included by their
# path from the root ("core/error.h").
function(poseidon_compile_options target)
  target_compile_options(${target} PRIVATE
    "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${POSEIDON_WARNINGS}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:${POSEIDON_CUDA_WARNINGS}>")
  target_include_directories(${target} PUBLIC
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR})
endfunction()

function(poseidon_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(poseidon_${name} STATIC ${ROOM_SOURCES})
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

# A GoogleTest program run by ctest: poseidon_test(NAME LABEL unit|simulation|... SOURCES ...
# DEPENDS ... [ARGUMENTS ...]). One ctest entry a program: starting a program costs more than most tests.
function(poseidon_test name)
  cmake_parse_arguments(TEST "" "LABEL;TIMEOUT" "SOURCES;DEPENDS;ARGUMENTS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  math(EXPR timeout "${TEST_TIMEOUT} * ${POSEIDON_SLOWDOWN}")
  add_executable(${name} ${TEST_SOURCES})
  poseidon_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${TEST_DEPENDS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${TEST_LABEL}.${name} COMMAND ${name} ${TEST_ARGUMENTS}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(
    ${TEST_LABEL}.${name} PROPERTIES LABELS ${TEST_LABEL} TIMEOUT ${timeout}
    ENVIRONMENT TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp)
endfunction()
