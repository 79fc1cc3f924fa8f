# Every header of every room compiles alone, twice in a row (#pragma once), with our warnings:
# target header_check, run by ctest as house.headers. A file includes just one header, so the target
# is not part of an ordinary build.

# Headers that need libtorch: checked only where it is built in.
set(POSEIDON_TORCH_HEADERS "^worker/torch/")

# Headers that need HDF5: likewise.
set(POSEIDON_HDF5_HEADERS "^caffe_adapter/files/hdf5_library")

# Headers that need CUDA: likewise.
set(POSEIDON_CUDA_HEADERS "^device/cuda/check")

# Headers that need a BVLC Caffe.
set(POSEIDON_CAFFE_HEADERS "^caffe_adapter/patch/caffe_(solver|time)")

set(header_check_sources)
foreach(room ${POSEIDON_ROOMS})
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/${room}/*.h)
  if(NOT POSEIDON_TORCH)
    list(FILTER headers EXCLUDE REGEX ${POSEIDON_TORCH_HEADERS})
  endif()
  if(NOT TARGET poseidon_hdf5)
    list(FILTER headers EXCLUDE REGEX ${POSEIDON_HDF5_HEADERS})
  endif()
  if(NOT POSEIDON_WITH_CUDA)
    list(FILTER headers EXCLUDE REGEX ${POSEIDON_CUDA_HEADERS})
  endif()
  list(FILTER headers EXCLUDE REGEX ${POSEIDON_CAFFE_HEADERS})
  foreach(header ${headers})
    set(source ${PROJECT_BINARY_DIR}/header_check/${header}.cc)
    file(GENERATE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND header_check_sources ${source})
  endforeach()
endforeach()

add_library(header_check OBJECT EXCLUDE_FROM_ALL ${header_check_sources})
poseidon_compile_options(header_check)
foreach(room ${POSEIDON_ROOMS})
  if(TARGET poseidon_${room})
    target_link_libraries(header_check PRIVATE poseidon_${room})
  endif()
endforeach()

target_link_libraries(header_check PRIVATE poseidon_cuda)
if(TARGET poseidon_hdf5)
  target_link_libraries(header_check PRIVATE poseidon_hdf5)
endif()

add_test(NAME house.headers
         COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target header_check)
# Minutes where every header is new to the compiler cache, on two cores.
set_tests_properties(house.headers PROPERTIES LABELS house TIMEOUT 900)
