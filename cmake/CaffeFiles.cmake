# Where the files of the Caffe are that Caffe_DIR or POSEIDON_CAFFE_ROOT names (Caffe.cmake):
# POSEIDON_CAFFE_INCLUDE, POSEIDON_CAFFE_PROTO_INCLUDE and POSEIDON_CAFFE_LIBRARY. Stops with an
# advice if one is not there. Also a script of its own, for its test.
set(caffe_roots ${POSEIDON_CAFFE_ROOT})
if(Caffe_DIR)
  list(APPEND caffe_roots ${Caffe_DIR} ${Caffe_DIR}/.. ${Caffe_DIR}/../..)
  # A build directory may lie anywhere; CMake notes there of which sources it is.
  if(EXISTS ${Caffe_DIR}/CMakeCache.txt)
    file(STRINGS ${Caffe_DIR}/CMakeCache.txt sources REGEX "^CMAKE_HOME_DIRECTORY:")
    string(REGEX REPLACE "^[^=]*=" "" sources "${sources}")
    list(APPEND caffe_roots ${sources})
  endif()
  # And both a build and an install name the directories of headers.
  foreach(file CaffeConfig.cmake CaffeTargets.cmake)
    if(EXISTS ${Caffe_DIR}/${file})
      file(STRINGS ${Caffe_DIR}/${file} named REGEX "Caffe_INCLUDE_DIRS|INTERFACE_INCLUDE_DIRECTORIES")
      string(REGEX MATCHALL "/[^\";$<>]+" named "${named}")
      list(APPEND caffe_roots ${named})
    endif()
  endforeach()
endif()

set(caffe_places include src build/include build/src .build_release/src)
find_path(POSEIDON_CAFFE_INCLUDE caffe/caffe.hpp NO_DEFAULT_PATH
          HINTS ${caffe_roots} PATH_SUFFIXES ${caffe_places})
find_path(POSEIDON_CAFFE_PROTO_INCLUDE caffe/proto/caffe.pb.h NO_DEFAULT_PATH
          HINTS ${caffe_roots} PATH_SUFFIXES ${caffe_places})
find_library(POSEIDON_CAFFE_LIBRARY NAMES caffe caffe-d libcaffe.so libcaffe-d.so NO_DEFAULT_PATH
             HINTS ${caffe_roots} PATH_SUFFIXES lib lib64 build/lib .build_release/lib)

set(missing)
foreach(file "POSEIDON_CAFFE_INCLUDE=caffe/caffe.hpp" "POSEIDON_CAFFE_PROTO_INCLUDE=caffe/proto/caffe.pb.h"
             "POSEIDON_CAFFE_LIBRARY=libcaffe.so")
  string(REPLACE "=" ";" file "${file}")
  list(GET file 0 variable)
  list(GET file 1 name)
  if(NOT ${variable})
    list(APPEND missing "${name} (or say -D${variable}=DIR)")
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  list(JOIN caffe_roots "\n  " caffe_roots)
  string(REPLACE "POSEIDON_CAFFE_LIBRARY=DIR" "POSEIDON_CAFFE_LIBRARY=FILE" missing "${missing}")
  message(FATAL_ERROR
    "No Caffe in ${Caffe_DIR}${POSEIDON_CAFFE_ROOT}: there is no ${missing}. Looked in\n  ${caffe_roots}\n"
    "Caffe_DIR must be the directory in which CMake has built a BVLC Caffe, or that of an installed "
    "CaffeConfig.cmake; POSEIDON_CAFFE_ROOT a source tree built in place by CMake or make, or where "
    "Caffe is installed. caffe.pb.h and libcaffe.so are made by the build: has it run?")
endif()
