# Builds the fuzz targets with clang and runs their tests: cmake -DCLANG=... -DSOURCE=... -DBUILD=...
# -P run.cmake [build|slow SECONDS]. With `build` it runs none, with `slow` all, each for so long.
if(NOT CLANG)
  message("no clang++ here, so nothing is fuzzed; apt-get install clang")
  return()
endif()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

# Behind -DCLANG, -DSOURCE, -DBUILD, -P and its file.
set(mode "${CMAKE_ARGV6}")
# Compiling takes a quick run longer than fuzzing, and twice as long with -O1, which tries twice as much in a
# second.
set(labels fuzz)
set(seconds 1)
set(level -O0)
if(mode STREQUAL "slow")
  set(labels fuzz fuzz_slow)
  set(seconds ${CMAKE_ARGV7})
  set(level -O1)
  set(BUILD ${BUILD}_slow)
endif()

string(REPLACE "++" "" c_compiler ${CLANG})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G Ninja -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_CXX_COMPILER=${CLANG} -DCMAKE_C_COMPILER=${c_compiler}
    "-DCMAKE_CXX_FLAGS_DEBUG=${level} -g1" -DCMAKE_UNITY_BUILD=ON
    -DPOSEIDON_TORCH=OFF -DPOSEIDON_FUZZ=ON -DPOSEIDON_FUZZ_SECONDS=${seconds}
    "-DPOSEIDON_SANITIZER=fuzzer-no-link,address,undefined")
foreach(label ${labels})
  run(${CMAKE_COMMAND} --build ${BUILD} --target ${label}_targets)
endforeach()
if(NOT mode STREQUAL "build")
  list(JOIN labels "|" labels)
  run(${CMAKE_CTEST_COMMAND} --test-dir ${BUILD} -L "^(${labels})$" --output-on-failure)
endif()
