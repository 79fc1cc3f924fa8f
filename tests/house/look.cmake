# Configures a preset and compiles the sources that its compiler has refused before, or a small one:
#   cmake -DPRESET=tsan -DSOURCE=DIR -DBUILD=DIR -P look.cmake
# It finds a preset that cannot be configured and a warning that only its flags bring in these sources;
# whether all of the tree compiles with it is for tools/test --all to say.
set(sources core/error.cc)
if(PRESET STREQUAL tsan)
  set(sources
      core/net/host_address.cc       # -Wtsan through Boost.Asio
      experiments/point_summary.cc)  # -Warray-bounds through nlohmann::json
endif()

if(PRESET STREQUAL clang)
  find_program(clang clang++)
  if(NOT clang)
    message("no clang++ here, so the preset is not looked at; apt-get install clang")
    return()
  endif()
endif()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

# Each source alone: a few are compiled here, not the tree.
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} --preset ${PRESET} -DCMAKE_UNITY_BUILD=OFF
    --log-level=WARNING)
# What ninja makes of a source is SOURCE^.
list(TRANSFORM sources PREPEND ${SOURCE}/)
list(TRANSFORM sources APPEND ^)
run(${CMAKE_COMMAND} --build ${BUILD} --target ${sources})
